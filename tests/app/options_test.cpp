#include "app/options.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti::app {
namespace {

Parsed parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tutti");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

TEST(Options, DefaultsAreLoopbackAndTheCanary) {
  const auto p = parse({"serve"});
  ASSERT_TRUE(p.serve);
  EXPECT_EQ(p.serve->model_folder, "");
  EXPECT_EQ(p.serve->http.host, "127.0.0.1");
  EXPECT_EQ(p.serve->http.port, 8000);
  EXPECT_TRUE(p.serve->api.api_keys.empty());
  EXPECT_EQ(p.serve->engine.schedule.max_num_batched_tokens, 2048);
  EXPECT_EQ(p.serve->engine.schedule.max_num_seqs, 64);
  EXPECT_EQ(p.serve->engine.max_queue, 1024);
}

TEST(Options, FlagsReachTheirRooms) {
  const auto p = parse({"serve", "some/model", "--port", "0", "--max-num-batched-tokens", "16", "--max-num-seqs", "3",
                        "--dtype", "float32", "--kv-cache-dtype", "float32", "--api-key", "k", "--max-body-mib", "2"});
  ASSERT_TRUE(p.serve);
  EXPECT_EQ(p.serve->model_folder, "some/model");
  EXPECT_EQ(p.serve->engine.schedule.max_num_batched_tokens, 16);
  EXPECT_EQ(p.serve->engine.schedule.max_num_seqs, 3);
  EXPECT_TRUE(p.serve->numerics.float32);
  EXPECT_EQ(p.serve->numerics.kv, kernels::KvType::float32);
  EXPECT_EQ(p.serve->api.api_keys, std::vector<std::string>{"k"});
  EXPECT_EQ(p.serve->http.max_body_bytes, size_t{2} << 20);
}

TEST(Options, WhatCannotBeUsedIsExitCode2WithALine) {
  for (const auto& arguments : std::vector<std::vector<const char*>>{{"serve", "--port", "70000"},
                                                                     {"serve", "--no-such-flag"},
                                                                     {"serve", "--max-num-seqs", "0"},
                                                                     {"dance"},
                                                                     {},
                                                                     {"serve", "--dtype", "float8"}}) {
    const auto p = parse(arguments);
    EXPECT_FALSE(p.serve);
    EXPECT_EQ(p.exit_code, 2);
    EXPECT_FALSE(p.text.empty());
  }
  EXPECT_THROW(parse({"serve", "--default-chat-template-kwargs", "[1]"}), OptionError);
  EXPECT_THROW(parse({"serve", "--api-key-file", "/nonexistent/keys"}), OptionError);
  EXPECT_THROW(parse({"serve", "--no-enable-prefix-caching", "--prefix-cache-dir", "kv"}), OptionError);
  EXPECT_THROW(parse({"serve", "--no-enable-prefix-caching", "--warm-prefix", "prompts"}), OptionError);
}

TEST(Options, HelpAndVersionAreNoErrors) {
  EXPECT_EQ(parse({"--version"}).exit_code, 0);
  EXPECT_EQ(parse({"serve", "--help"}).exit_code, 0);
}

}  // namespace
}  // namespace tutti::app
