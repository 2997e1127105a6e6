#include "weights/safetensors.h"

#include <gmock/gmock.h>

#include <random>

#include "weights/checkpoint_files.h"

namespace tutti::weights {
namespace {

using ::testing::AllOf;
using testing::bf16_tensor;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::raw_safetensors;
using testing::safetensors;

struct Result {
  SafetensorsFile file;
  Problems problems;
};

Result read(const std::string& bytes) {
  Result result;
  result.file = read_safetensors(std::as_bytes(std::span(bytes)), "f", result.problems);
  return result;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
}

// The one problem of a header with these entries over 16 bytes of data.
std::string problem_of(const std::string& entries) {
  const Result result = read(raw_safetensors("{" + entries + "}", std::string(16, '\0')));
  EXPECT_EQ(result.problems.count(), 1u) << entries;
  return result.problems.empty() ? "" : result.problems.lines().front();
}

TEST(SafetensorsTest, ReadsNamesShapesAndData) {
  const std::string bytes = safetensors(
      {bf16_tensor("a", {2, 3}, 1, 1), {"b", "U8", {}, "x"}, {"c", "I64", {2}, std::string(16, 'y')}}, "mlx");
  const Result result = read(bytes);
  EXPECT_TRUE(result.problems.empty());
  EXPECT_EQ(result.file.format, "mlx");
  ASSERT_EQ(result.file.entries.size(), 3u);
  const SafetensorsEntry& a = result.file.entries[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, DType::bfloat16);
  EXPECT_THAT(a.shape, ElementsAre(2, 3));
  ASSERT_EQ(a.data.size(), 12u);
  EXPECT_EQ(static_cast<int>(a.data[1]), 0x3f);
  EXPECT_EQ(result.file.entries[1].dtype, DType::uint8);
  EXPECT_TRUE(result.file.entries[1].shape.empty());
  EXPECT_EQ(result.file.entries[2].dtype, DType::other);
  EXPECT_EQ(result.file.entries[2].stored_dtype, "I64");
}

TEST(SafetensorsTest, TheHeaderMayListTensorsInAnyOrderAndEndInSpaces) {
  const Result result = read(
      raw_safetensors("{" + entry("late", "U8", "[8]", "[8,16]") + "," + entry("early", "U8", "[8]", "[0,8]") + "}   ",
                      std::string(16, 0)));
  EXPECT_TRUE(result.problems.empty());
  EXPECT_EQ(result.file.entries[0].data.data(), result.file.entries[1].data.data() + 8);
}

TEST(SafetensorsTest, LyingLengths) {
  EXPECT_THAT(read("").problems.lines(), ElementsAre(HasSubstr("found 0 bytes")));
  EXPECT_THAT(read("1234567").problems.lines(), ElementsAre(HasSubstr("found 7 bytes")));
  EXPECT_THAT(read(std::string("\x10\0\0\0\0\0\0\0{}", 10)).problems.lines(),
              ElementsAre(HasSubstr("claims 16 bytes, the file has 2")));
  EXPECT_THAT(read(std::string("\0\0\0\0\1\0\0\0{}", 10)).problems.lines(),
              ElementsAre(HasSubstr("at most 100000000")));
  EXPECT_THAT(read(std::string(8, '\xff') + "{}").problems.lines(), ElementsAre(HasSubstr("at most 100000000")));
  EXPECT_THAT(read(std::string(8, '\0')).problems.lines(), ElementsAre(HasSubstr("f: header: not valid JSON")));
}

TEST(SafetensorsTest, WrongHeaders) {
  const std::string data(16, '\0');
  const auto header = [&](const std::string& text) {
    const Result result = read(raw_safetensors(text, data));
    return result.problems.empty() ? "" : result.problems.lines().front();
  };
  EXPECT_THAT(header("[]"), HasSubstr("not an object"));
  EXPECT_THAT(header("{\"a\":1}"), HasSubstr("a is a number, expected an object"));
  EXPECT_THAT(header("{\"a\":{}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(header("{\"a\":{\"shape\":[[1]]}}"), HasSubstr("tensor a: \"shape\" holds a list"));
  EXPECT_THAT(header("{\"a\":{\"shape\":{}}}"), HasSubstr("tensor a: \"shape\" is an object"));
  EXPECT_THAT(header("{\"a\":{\"dtype\":1}}"), HasSubstr("tensor a: \"dtype\" is a number"));
  EXPECT_THAT(header("{\"a\":{\"extra\":1}}"), HasSubstr("unknown field \"extra\""));
  EXPECT_THAT(header("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}"), HasSubstr("\"dtype\" occurs twice"));
  EXPECT_THAT(header("{\"__metadata__\":{\"format\":1}}"), HasSubstr("__metadata__.format is a number"));
  EXPECT_THAT(header("{\"a\":{\"shape\":[1,1,1,1,1,1,1,1,1]}}"), HasSubstr("more than 8 numbers"));
  EXPECT_THAT(header(std::string(1'000'000, '[')), HasSubstr("not an object"));
  EXPECT_THAT(header("{\"a\":" + std::string(1'000'000, '{')), HasSubstr("not valid JSON"));
  EXPECT_THAT(header("{\"a\":{\"shape\":" + std::string(1'000'000, '[')), HasSubstr("holds a list"));
}

TEST(SafetensorsTest, WrongTensors) {
  EXPECT_THAT(problem_of(entry("t", "U8", "[-1]", "[0,16]")),
              HasSubstr("f: t: \"shape\" holds the negative number -1"));
  EXPECT_THAT(problem_of(entry("t", "U8", "[1.5]", "[0,16]")), HasSubstr("the number 1.5"));
  EXPECT_THAT(problem_of(entry("t", "U8", "[\"1\"]", "[0,16]")), HasSubstr("a string"));
  EXPECT_THAT(problem_of(entry("t", "U8", "[99999999999999999999]", "[0,16]")), HasSubstr("holds the number 9999"));
  EXPECT_THAT(problem_of(entry("t", "U8", "[4294967296,4294967296]", "[0,16]")), HasSubstr("overflows"));
  EXPECT_THAT(problem_of(entry("t", "F32", "[4611686018427387904,4]", "[0,0]")), HasSubstr("overflows"));
  EXPECT_THAT(problem_of(entry("t", "U8", "[0,16]", "[0,0]")), HasSubstr("empty"));
  EXPECT_THAT(problem_of(entry("t", "Q4", "[16]", "[0,16]")), HasSubstr("unknown dtype \"Q4\""));
  EXPECT_THAT(problem_of(entry("t", "BF16", "[16]", "[0,16]")), HasSubstr("expected 32 bytes for its dtype BF16"));
  EXPECT_THAT(problem_of(entry("t", "U8", "[16]", "[16,0]")), HasSubstr("not [begin, end]"));
  EXPECT_THAT(problem_of(entry("t", "U8", "[16]", "[0]")), HasSubstr("not [begin, end]"));
  EXPECT_THAT(problem_of(entry("t", "U8", "[16]", "[8,24]")), HasSubstr("up to byte 24, found 16 bytes of data"));
  EXPECT_THAT(problem_of(entry("t", "U8", "[16]", "[18446744073709551600,18446744073709551615]")),
              HasSubstr("expected 16 bytes"));
  EXPECT_THAT(problem_of("\"t\":{}"), HasSubstr("t: dtype, shape or data_offsets is missing"));
  EXPECT_THAT(problem_of(entry("t", "U8", "[8]", "[0,8]")), HasSubstr("last 8 bytes belong to no tensor"));
  EXPECT_THAT(problem_of(entry("t", "U8", "[8]", "[8,16]")), HasSubstr("t: 8 bytes before its data"));
  EXPECT_THAT(problem_of(entry("t", "U8", "[16]", "[0,16]") + "," + entry("u", "U8", "[8]", "[8,16]")),
              HasSubstr("u: its data overlaps"));
}

TEST(SafetensorsTest, DuplicateNames) {
  const Result result = read(raw_safetensors(
      "{" + entry("t", "U8", "[8]", "[0,8]") + "," + entry("t", "U8", "[8]", "[8,16]") + "}", std::string(16, 0)));
  EXPECT_THAT(result.problems.lines(), Contains(HasSubstr("f: t: the name occurs twice")));
}

TEST(SafetensorsTest, ReportsEveryTensorAndKeepsTheGoodOnes) {
  const Result result =
      read(raw_safetensors("{" + entry("a", "Q4", "[16]", "[0,8]") + "," + entry("b", "U8", "[8]", "[8,16]") + "," +
                               entry("c", "U8", "[-1]", "[8,16]") + "}",
                           std::string(16, 0)));
  EXPECT_THAT(result.problems.lines(), ElementsAre(HasSubstr("a: unknown dtype"), HasSubstr("c: \"shape\"")));
  ASSERT_EQ(result.file.entries.size(), 1u);
  EXPECT_EQ(result.file.entries[0].name, "b");
}

TEST(SafetensorsTest, ATruncatedFileIsOneFaultNotThousands) {
  std::vector<testing::TestTensor> tensors;
  for (int i = 0; i < 100; ++i) tensors.push_back(bf16_tensor(fmt::format("t{}", i), {100}));
  const std::string bytes = safetensors(tensors);
  const Result result = read(bytes.substr(0, bytes.size() - 200 * 50));
  EXPECT_THAT(result.problems.lines(),
              ElementsAre(AllOf(HasSubstr("f: t50:"), HasSubstr("truncated")), HasSubstr("49 more")));
}

TEST(SafetensorsTest, NamesArePrintedWithoutControlCharacters) {
  EXPECT_THAT(problem_of(entry("t\\u001b[2J\\n", "Q4", "[16]", "[0,16]")), HasSubstr("t\\x1b[2J\\x0a"));
}

// Any header, however mangled, ends in problems or in entries that lie inside the file and have the bytes of their
// shape.
void expect_sound(const std::string& bytes) {
  const Result result = read(bytes);
  if (!result.problems.empty()) return;
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  for (const SafetensorsEntry& e : result.file.entries) {
    ASSERT_GE(e.data.data(), begin);
    ASSERT_LE(e.data.data() + e.data.size(), begin + bytes.size());
    ASSERT_GT(testing::elements(e.shape), 0);
    ASSERT_GE(e.data.size() * 8, static_cast<size_t>(testing::elements(e.shape)) * 4);
  }
}

TEST(SafetensorsTest, MangledHeadersNeverCrash) {
  const std::string good =
      safetensors({bf16_tensor("model.layers.0.mlp.gate.weight", {4, 8}),
                   testing::u32_tensor("model.embed_tokens.weight", {3, 2}), bf16_tensor("s", {})});
  const size_t header = good.size() - 64 - 24 - 2;
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  constexpr std::string_view kPieces[] = {"[",
                                          "]",
                                          "{",
                                          "}",
                                          "\"",
                                          ",",
                                          ":",
                                          "-1",
                                          "0",
                                          "null",
                                          "1e400",
                                          "18446744073709551615",
                                          "\"shape\"",
                                          "\"data_offsets\":[0,8]",
                                          "\"dtype\":\"F64\"",
                                          "\\u0000",
                                          "\xff",
                                          "true"};
  int sound = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (size_t edits = 1 + below(3); edits > 0; --edits) {
      const size_t at = below(header);
      switch (below(5)) {
        case 0:
          bytes[at] = static_cast<char>(below(256));
          break;
        case 1:
          bytes[at] = static_cast<char>('0' + below(10));
          break;
        case 2:
          bytes.insert(at, kPieces[below(std::size(kPieces))]);
          break;
        case 3:
          bytes.erase(at, 1 + below(9));
          break;
        default:
          bytes.resize(bytes.size() - below(20));
          break;
      }
    }
    if (below(2) == 0 && bytes.size() > 8) {  // keep the length true, so that the JSON itself is reached
      const uint64_t length = bytes.size() > 90 + 8 ? bytes.size() - 90 - 8 : 0;
      std::memcpy(bytes.data(), &length, 8);
    }
    ASSERT_NO_FATAL_FAILURE(expect_sound(bytes)) << bytes;
    sound += read(bytes).problems.empty() ? 1 : 0;
  }
  EXPECT_GT(sound, 0);  // harmless edits exist: the loop does reach the end of the reader
}

}  // namespace
}  // namespace tutti::weights
