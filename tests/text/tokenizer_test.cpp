#include "text/tokenizer.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "text/text_fixture.h"

namespace tutti::text {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Ids made by the tokenizers package (tools/make_text_vectors.py).
TEST(Tokenizer, IdsEqualTheReference) {
  const Json vectors = Json::parse(source_file("tests/text/canary_vectors.json"));
  EXPECT_GE(vectors.size(), 100u);
  for (const Json& v : vectors) {
    std::string text = v["text"];
    EXPECT_EQ(canary_tokenizer()->encode(text, true), v["ids"].get<std::vector<TokenId>>()) << text;
    EXPECT_EQ(canary_tokenizer()->encode(text, false), v["plain"].get<std::vector<TokenId>>()) << text;
  }
}

TEST(Tokenizer, TokenBytesJoinToTheText) {
  for (std::string text : {"Hello, world!", "Tiếng Việt 🇻🇳 العربية", "<|im_start|>a<think>\r\n", "tab\t\x01 \x7f"}) {
    for (bool with_added : {false, true}) {
      EXPECT_EQ(decode(*canary_tokenizer(), canary_tokenizer()->encode(text, with_added)), text);
    }
  }
}

TEST(Tokenizer, EveryByteHasAToken) {
  std::vector<bool> seen(256);
  for (TokenId id = 0; id < canary_tokenizer()->vocab(); ++id) {
    const std::string& bytes = canary_tokenizer()->token_bytes(id);
    if (bytes.size() == 1) seen[static_cast<unsigned char>(bytes[0])] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 256);
}

TEST(Tokenizer, AddedTokens) {
  const Tokenizer& t = *canary_tokenizer();
  EXPECT_EQ(t.vocab(), 2048);
  EXPECT_EQ(t.added_tokens().size(), 13u);
  EXPECT_EQ(t.added_tokens().front().content, "<|endoftext|>");
  EXPECT_EQ(t.id_of("<|im_end|>"), 2037);
  EXPECT_EQ(t.id_of("</think>"), 2043);
  EXPECT_EQ(t.id_of("hello"), std::nullopt);
  EXPECT_EQ(t.eos(), 2037);
  EXPECT_TRUE(t.is_special(2037));
  EXPECT_FALSE(t.is_special(2042)) << "<think> must survive where specials are skipped";
  EXPECT_FALSE(t.is_special(0));
  EXPECT_EQ(t.token_bytes(2037), "<|im_end|>");
}

TEST(Tokenizer, IdsOutsideTheVocabularyHaveNoText) {
  for (TokenId id : {-1, 2048, 1 << 30}) {
    EXPECT_EQ(canary_tokenizer()->token_bytes(id), "");
    EXPECT_FALSE(canary_tokenizer()->is_special(id));
  }
}

TEST(Tokenizer, BrokenUtf8DoesNotCrash) {
  for (std::string text : {"\xff", "a\xc3", "\xed\xa0\x80", "\xf5\x80\x80\x80", "<|im_\xffstart|>"}) {
    EXPECT_FALSE(canary_tokenizer()->encode(text, true).empty());
    EXPECT_FALSE(canary_tokenizer()->encode(text, false).empty());
  }
}

// tokenizer.json with parts exchanged.
class TokenizerFiles : public testing::Test {
 protected:
  std::string problems() const {
    try {
      load();
    } catch (const LoadError& e) {
      return e.what();
    }
    return "";
  }
  std::unique_ptr<Tokenizer> load() const { return std::make_unique<Tokenizer>(json.dump(), config.dump()); }
  static Json added(const std::string& content, bool special = true) {
    return {{"content", content}, {"special", special}, {"lstrip", false}, {"rstrip", false}, {"normalized", false}};
  }

  Json json = Json::parse(source_file("models/canary/tokenizer.json"));
  Json config = Json::parse(source_file("models/canary/tokenizer_config.json"));
};

TEST_F(TokenizerFiles, ConfigCompletesTheAddedTokens) {
  json["added_tokens"].erase(json["added_tokens"].begin() + 6, json["added_tokens"].end());
  config["added_tokens_decoder"]["2060"] = added("<late>");
  auto t = load();
  EXPECT_EQ(t->vocab(), 2061);
  EXPECT_EQ(t->id_of("</tool_response>"), 2047);
  EXPECT_EQ(t->encode("a<late></think>", true).back(), 2043);
  EXPECT_EQ(t->encode("<late>", true), std::vector<TokenId>{2060});
  EXPECT_EQ(t->token_bytes(2050), "") << "a hole";
}

TEST_F(TokenizerFiles, WithoutConfig) {
  Tokenizer t(json.dump(), std::nullopt);
  EXPECT_EQ(t.id_of("<|im_end|>"), 2037);
  EXPECT_EQ(t.eos(), std::nullopt);
}

TEST_F(TokenizerFiles, EosMayBeAnObjectOrOrdinary) {
  config["eos_token"] = Json{{"content", "<|endoftext|>"}};
  EXPECT_EQ(load()->eos(), 2035);
  config["eos_token"] = "!";
  EXPECT_EQ(load()->eos(), load()->encode("!", false)[0]);
  config["eos_token"] = nullptr;
  EXPECT_EQ(load()->eos(), std::nullopt);
}

TEST_F(TokenizerFiles, ContradictionsAreErrors) {
  config["added_tokens_decoder"]["2037"]["content"] = "<|stop|>";
  config["added_tokens_decoder"]["2099"] = added("<|im_start|>");
  std::string what = problems();
  EXPECT_THAT(what, HasSubstr("\"<|stop|>\" = 2037 contradicts \"<|im_end|>\" = 2037"));
  EXPECT_THAT(what, HasSubstr("\"<|im_start|>\" = 2099 contradicts \"<|im_start|>\" = 2036"))
      << "all problems are listed";
}

TEST_F(TokenizerFiles, AnAddedTokenMustNotTakeAnIdOfTheVocabulary) {
  config["added_tokens_decoder"]["5"] = added("<new>");
  EXPECT_THAT(problems(), HasSubstr("added token \"<new>\" has id 5"));
  config["added_tokens_decoder"].erase("5");
  std::string in_vocabulary = json["model"]["vocab"].items().begin().key();
  config["added_tokens_decoder"]["3000"] = added(in_vocabulary);
  EXPECT_THAT(problems(), HasSubstr("has id 3000, in the vocabulary"));
}

TEST_F(TokenizerFiles, OrdinaryTextMustNotBecomeAnAddedToken) {
  json["model"]["vocab"]["zq"] = 2100;
  json["model"]["merges"].push_back({"z", "q"});
  config["added_tokens_decoder"]["2100"] = added("zq");
  EXPECT_THAT(problems(), HasSubstr("ordinary text \"zq\" is encoded as the added token 2100"));
}

TEST_F(TokenizerFiles, UnsupportedKindsAreNamed) {
  json["model"]["type"] = "Unigram";
  json["decoder"] = {{"type", "Metaspace"}};
  EXPECT_THAT(problems(), HasSubstr("model type Unigram"));
  EXPECT_THAT(problems(), HasSubstr("not a byte-level tokenizer"));
}

TEST_F(TokenizerFiles, BadFilesAreErrors) {
  EXPECT_THROW(Tokenizer("", std::nullopt), LoadError);
  EXPECT_THROW(Tokenizer("[]", std::nullopt), LoadError);
  EXPECT_THROW(Tokenizer("{}", std::nullopt), LoadError);
  EXPECT_THROW(Tokenizer(json.dump(), "{"), LoadError);
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(";
  EXPECT_THAT(problems(), HasSubstr("tokenizer.json"));
  config["added_tokens_decoder"]["x"] = added("<x>");
  EXPECT_THAT(problems(), HasSubstr("without a valid id"));
}

TEST_F(TokenizerFiles, StrippingAndWholeWordsAsInTheReference) {
  json["added_tokens"].push_back({{"id", 2048}, {"content", "<l>"}, {"lstrip", true}, {"special", true}});
  json["added_tokens"].push_back({{"id", 2049}, {"content", "<r>"}, {"rstrip", true}, {"special", true}});
  json["added_tokens"].push_back({{"id", 2050}, {"content", "zqzq"}, {"single_word", true}, {"special", true}});
  auto t = load();
  EXPECT_EQ(t->encode("a  <l>", true), (std::vector<TokenId>{t->encode("a", false)[0], 2048}));
  EXPECT_EQ(t->encode("<r> \n<l>", true), (std::vector<TokenId>{2049, 2048}));
  EXPECT_EQ(t->encode("<r>zqzq<l>", true), (std::vector<TokenId>{2049, 2050, 2048}));
  EXPECT_EQ(t->encode("zqzqs", true), t->encode("zqzqs", false));
  EXPECT_EQ(t->encode("a_zqzq", true), t->encode("a_zqzq", false));
}

}  // namespace
}  // namespace tutti::text
