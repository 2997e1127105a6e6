#include "api/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace tutti::api {
namespace {

std::string fault(std::string_view text) {
  auto parsed = parse_json(text);
  return parsed.ok() ? "" : parsed.error().message;
}

std::string nested(int depth, const char* open, const char* close) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  text += "1";
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

TEST(ParseJson, keeps_order_and_types) {
  auto parsed = parse_json(R"({"b":1,"a":[true,null,2.5,"x\u00e9\ud83d\ude00"],"c":18446744073709551615})");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->dump(), "{\"b\":1,\"a\":[true,null,2.5,\"xé😀\"],\"c\":18446744073709551615}");
}

TEST(ParseJson, refuses_what_is_not_json) {
  for (const char* text : {"", "{", "{\"a\":}", "[1,]", "nul", "{\"a\":1}x", "NaN", "{\"a\":NaN}", "[Infinity]",
                           "[-Infinity]", "'a'", "{a:1}", "[01]", "[1.]", "\"a\nb\"", "[+1]"}) {
    EXPECT_NE(fault(text), "") << text;
  }
}

TEST(ParseJson, refuses_numbers_beyond_double) {
  EXPECT_EQ(fault("[1e999]"), "the number 1e999 is too large");
  EXPECT_NE(fault("[-1e400]"), "");
  EXPECT_EQ(fault("[1e308]"), "");
}

TEST(ParseJson, refuses_duplicate_keys_at_any_depth) {
  EXPECT_EQ(fault(R"({"a":1,"b":2,"a":3})"), "the key \"a\" stands twice in one object");
  EXPECT_NE(fault(R"({"x":[{"k":1,"k":1}]})"), "");
  EXPECT_EQ(fault(R"({"a":{"a":1},"b":{"a":1}})"), "");
}

TEST(ParseJson, refuses_broken_text) {
  EXPECT_NE(fault("{\"a\":\"\xff\"}"), "");
  EXPECT_NE(fault("\"\xc0\xaf\""), "");          // overlong
  EXPECT_NE(fault("\"\xed\xa0\x80\""), "");      // a surrogate as bytes
  EXPECT_NE(fault("\"\xf4\x90\x80\x80\""), "");  // above U+10FFFF
  EXPECT_NE(fault(R"("\ud83d")"), "");
  EXPECT_NE(fault(R"("\ude00")"), "");
  EXPECT_NE(fault(R"("\ud83dx")"), "");
}

TEST(ParseJson, limits_depth) {
  EXPECT_EQ(fault(nested(kMaxJsonDepth, "[", "]")), "");
  EXPECT_EQ(fault(nested(kMaxJsonDepth + 1, "[", "]")), "nested deeper than 128");
  EXPECT_EQ(fault(nested(500, "{\"a\":", "}")), "nested deeper than 128");
  EXPECT_EQ(fault(nested(2000000, "[", "]")), "nested deeper than 128");
}

TEST(ParseJson, large_objects_take_linear_time) {
  std::string text = "{";
  for (int i = 0; i < 200000; ++i) text += (i ? ",\"" : "\"") + std::to_string(i) + "\":0";
  text += "}";
  auto parsed = parse_json(text);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->size(), 200000u);
}

TEST(AppendString, escapes_what_json_needs) {
  std::string out;
  append_string(out, std::string_view("a\"b\\c\n\r\t\0\x1f\x7f/é\xe2\x80\xa8", 17));
  EXPECT_EQ(out, "\"a\\\"b\\\\c\\n\\r\\t\\u0000\\u001f\x7f/é\xe2\x80\xa8\"");
  EXPECT_EQ(Json::parse(out).get<std::string>(), std::string("a\"b\\c\n\r\t\0\x1f\x7f/é\xe2\x80\xa8", 17));
}

TEST(AppendFloat, reads_back_as_the_same_float) {
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    const uint32_t bits = random();
    float value;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    std::string out;
    append_float(out, value);
    ASSERT_EQ(static_cast<float>(Json::parse(out).get<double>()), value) << out;
    ASSERT_TRUE(Json::parse(out).is_number_float()) << out;
  }
}

TEST(AppendFloat, minus_infinity_has_a_number) {
  std::string out;
  append_float(out, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(out, "-9999.0");
  out.clear();
  append_float(out, -0.25f);
  EXPECT_EQ(out, "-0.25");
}

TEST(LossyUtf8, replaces_ill_formed_sequences) {
  EXPECT_EQ(lossy_utf8("aé😀"), "aé😀");
  EXPECT_EQ(lossy_utf8("a\xffz"), "a\xef\xbf\xbdz");
  EXPECT_EQ(lossy_utf8("\xe2\x82"), "\xef\xbf\xbd");
  EXPECT_EQ(lossy_utf8("\xe2\x82x"), "\xef\xbf\xbdx");
  EXPECT_TRUE(valid_utf8("é"));
  EXPECT_FALSE(valid_utf8("\xed\xa0\x80"));
}

}  // namespace
}  // namespace tutti::api
