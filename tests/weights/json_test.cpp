#include "weights/json.h"

#include <gmock/gmock.h>

#include "weights/checkpoint_files.h"

namespace tutti::weights {
namespace {

using ::testing::HasSubstr;
using testing::load_error;

std::string nested(int levels) {
  return std::string(static_cast<size_t>(levels), '[') + std::string(static_cast<size_t>(levels), ']');
}

TEST(JsonTest, ReadsAnObject) {
  EXPECT_EQ(parse_json(R"({"a":[1,{"b":null}]})", "x")["a"][0], 1);
}

TEST(JsonTest, LimitsTheDepth) {
  EXPECT_EQ(load_error([] { parse_json(nested(kMaxJsonDepth), "x"); }), "");
  EXPECT_THAT(load_error([] { parse_json(nested(kMaxJsonDepth + 1), "x"); }), HasSubstr("x: nested deeper than 64"));
  EXPECT_THAT(load_error([] { parse_json(std::string(10'000'000, '['), "x"); }), HasSubstr("nested deeper"));
}

TEST(JsonTest, LimitsTheNumberOfValues) {
  std::string text = "[0";
  for (int64_t i = 0; i < kMaxJsonValues; ++i) text += ",0";
  EXPECT_THAT(load_error([&] { parse_json(text + "]", "x"); }), HasSubstr("more than 1000000 values"));
}

TEST(JsonTest, RefusesDuplicateKeys) {
  EXPECT_THAT(load_error([] { parse_json(R"({"a":{"k":1},"b":{"k":1},"a":2})", "x"); }),
              HasSubstr("\"a\" occurs twice"));
  EXPECT_EQ(load_error([] { parse_json(R"({"a":{"k":1},"b":{"k":1}})", "x"); }), "");
}

TEST(JsonTest, NamesTheFileOfMalformedText) {
  for (const char* text : {"", "{", "{\"a\":1,}", "nul", "{\"a\":1e999}", "\"\xff\"", "{} {}"})
    EXPECT_THAT(load_error([&] { parse_json(text, "config.json"); }), HasSubstr("config.json: not valid JSON")) << text;
}

}  // namespace
}  // namespace tutti::weights
