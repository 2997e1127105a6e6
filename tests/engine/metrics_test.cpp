#include "engine/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace tutti::engine {
namespace {

using testing::HasSubstr;

TEST(Metrics, histograms_count_upwards) {
  Histogram histogram({1, 2, 5});
  for (const double value : {0.5, 1.0, 1.5, 4.0, 100.0}) histogram.observe(value);
  std::string out;
  histogram.write(out, "h", "a=\"b\"");
  EXPECT_EQ(out,
            "h_bucket{a=\"b\",le=\"1\"} 2\nh_bucket{a=\"b\",le=\"2\"} 3\nh_bucket{a=\"b\",le=\"5\"} 4\n"
            "h_bucket{a=\"b\",le=\"+Inf\"} 5\nh_sum{a=\"b\"} 107\nh_count{a=\"b\"} 5\n");
}

TEST(Metrics, the_page_is_valid_prometheus_text) {
  Metrics metrics;
  metrics.running = 3;
  metrics.kv_blocks_total = 8;
  metrics.kv_blocks_used = 2;
  metrics.time_to_first_token.observe(0.03);
  metrics.count_http("/v1/chat/completions", 200);
  metrics.count_http("/v1/chat/completions", 200);
  metrics.count_http("/a\"b\\c\n", 404);
  metrics.count_rejected("queue_full");
  metrics.count_ignored_field();
  const std::string page = metrics.prometheus("my \"model\"");

  const std::regex sample(
      R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)\{([a-z_]+="([^"\\\n]|\\["\\n])*")(,[a-z_]+="([^"\\\n]|\\["\\n])*")*\} [-+0-9.e]+)re");
  const std::regex comment(R"re(# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) .+)re");
  std::map<std::string, std::string> types;
  std::set<std::string> helped;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    std::smatch m;
    if (line.starts_with("#")) {
      ASSERT_TRUE(std::regex_match(line, m, comment)) << line;
      if (m[1] == "HELP") {
        EXPECT_TRUE(helped.insert(m[2]).second) << line;
      } else {
        EXPECT_TRUE(types.emplace(m[2], line.substr(line.rfind(' ') + 1)).second) << line;
      }
      continue;
    }
    ASSERT_TRUE(std::regex_match(line, m, sample)) << line;
    std::string family = m[1];
    if (!types.contains(family)) family = std::regex_replace(family, std::regex("_(bucket|sum|count)$"), "");
    ASSERT_TRUE(types.contains(family)) << line;
    EXPECT_THAT(line, HasSubstr(R"(model_name="my \"model\"")"));
    if (types[family] == "counter") {
      EXPECT_TRUE(family.ends_with("_total")) << family;
    }
  }
  EXPECT_EQ(types.size(), helped.size());
  EXPECT_EQ(types["vllm:time_to_first_token_seconds"], "histogram");
  EXPECT_EQ(types["vllm:num_requests_running"], "gauge");
  EXPECT_THAT(page, HasSubstr("vllm:num_requests_running{model_name=\"my \\\"model\\\"\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("vllm:kv_cache_usage_perc{model_name=\"my \\\"model\\\"\"} 0.25\n"));
  EXPECT_THAT(page, HasSubstr(R"(path="/v1/chat/completions",code="200"} 2)"));
  EXPECT_THAT(page, HasSubstr(R"(path="/a\"b\\c\n",code="404"} 1)"));
  EXPECT_THAT(page, HasSubstr(R"(reason="queue_full"} 1)"));
}

TEST(Metrics, vllm_names_are_there) {
  const std::string page = Metrics().prometheus("m");
  for (const char* name :
       {"vllm:num_requests_waiting", "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
        "vllm:num_preemptions_total", "vllm:request_success_total", "vllm:inter_token_latency_seconds",
        "vllm:e2e_request_latency_seconds", "vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds",
        "vllm:request_decode_time_seconds", "vllm:iteration_tokens_total", "vllm:request_prompt_tokens",
        "vllm:request_generation_tokens", "tutti:engine_steps_total", "tutti:memory_bytes", "tutti:http_requests_total",
        "tutti:rejected_total", "tutti:ignored_fields_total"})
    EXPECT_THAT(page, HasSubstr(std::string("# TYPE ") + name + " "));
}

}  // namespace
}  // namespace tutti::engine
