// The tables of request fields: what each endpoint takes, ranges, types, paths of errors.
#include "api/request_fields.h"

#include <gtest/gtest.h>

#include "api/canary.h"

namespace tutti::api {
namespace {

constexpr Limits kLimits{.vocab = 2048, .max_n = 16, .max_logprobs = 20};
const char* const kChat = R"("messages":[{"role":"user","content":"Hi"}])";
const char* const kCompletion = R"("prompt":"Hi")";

ApiError no_error() {
  return {.status = 200, .code = "ok"};
}

ApiError chat_error(const std::string& more, Limits limits = kLimits) {
  auto body = parse_json(std::string("{") + kChat + (more.empty() ? "" : ",") + more + "}");
  EXPECT_TRUE(body.ok()) << more;
  std::vector<std::string> ignored;
  auto read = RequestReader(limits).chat(body.value(), ignored);
  return read.ok() ? no_error() : read.error();
}

ApiError completion_error(const std::string& more) {
  auto body = parse_json(std::string("{") + kCompletion + (more.empty() ? "" : ",") + more + "}");
  EXPECT_TRUE(body.ok()) << more;
  std::vector<std::string> ignored;
  auto read = RequestReader(kLimits).completion(body.value(), ignored);
  return read.ok() ? no_error() : read.error();
}

ChatRequest chat(const std::string& more) {
  auto body = parse_json(std::string("{") + kChat + (more.empty() ? "" : ",") + more + "}");
  std::vector<std::string> ignored;
  auto read = RequestReader(kLimits).chat(body.value(), ignored);
  EXPECT_TRUE(read.ok()) << more << ": " << (read.ok() ? "" : read.error().message);
  return std::move(read.value());
}

struct Range {
  const char* name;
  std::vector<const char*> good, bad, wrong_type;
};

const std::vector<Range> kRanges = {
    {"temperature", {"0", "2", "0.7", "1e-9"}, {"-1", "2.1", "-0.0001", "1e300"}, {"\"hot\"", "true", "[1]", "{}"}},
    {"top_p", {"0", "1", "0.5"}, {"-0.1", "2", "1.0001"}, {"\"1\"", "false"}},
    {"top_k", {"-1", "0", "40", "5.0", "9000000000"}, {"-2"}, {"5.5", "\"5\"", "true"}},
    {"min_p", {"0", "1"}, {"-0.1", "1.1"}, {"\"0\""}},
    {"presence_penalty", {"-2", "2"}, {"-2.1", "2.1"}, {"\"0\""}},
    {"frequency_penalty", {"-2", "2"}, {"-2.1", "2.1"}, {"true"}},
    {"repetition_penalty", {"0.01", "10"}, {"0", "-1", "10.1"}, {"\"1\""}},
    {"seed",
     {"0", "-5", "9223372036854775807", "-9223372036854775808"},
     {"9223372036854775808", "1e30"},
     {"1.5", "\"1\""}},
    {"n", {"1", "16"}, {"0", "-1", "17", "100000"}, {"\"2\"", "1.5"}},
    {"max_tokens", {"1", "1000000"}, {"0", "-4"}, {"true", "\"5\"", "5.5"}},
    {"max_completion_tokens", {"1"}, {"0", "-1"}, {"[]"}},
    {"min_tokens", {"0"}, {"-1"}, {"\"0\""}},
    {"prompt_logprobs", {"0", "20"}, {"-1", "21"}, {"true"}},
    {"stream_interval", {"1", "50"}, {"0"}, {"true"}},
    {"priority", {"-5", "5"}, {}, {"0.5"}},
    {"timeout", {"0.5", "600"}, {"0", "-1"}, {"\"5\""}},
    {"num_speculative_tokens", {"0", "8"}, {"-1", "9"}, {"\"1\""}},
    {"use_prefix_cache", {"true", "false"}, {}, {"1", "\"true\""}},
    {"cache_salt", {"\"a\""}, {"\"\""}, {"5"}},
    {"request_id", {"\"a-B.9_:\""}, {"\"\"", "\"a b\"", "\"\\u00e9\""}, {"5"}},
    {"stop", {"\"x\"", "[\"x\",\"yz\"]", "[]"}, {"\"\"", "[\"a\",\"\"]"}, {"5", "[5]", "{}"}},
    {"stop_token_ids", {"[]", "[0,2047]"}, {"[2048]", "[-1]"}, {"5", "[\"1\"]", "[1.5]"}},
    {"allowed_token_ids", {"[1]"}, {"[]", "[99999]"}, {"1"}},
    {"bad_words", {"[]", "[\"x\"]"}, {"[\"\"]"}, {"\"x\"", "[1]"}},
    {"logit_bias",
     {"{}", "{\"5\":-100,\"6\":100}"},
     {"{\"99999999\":5}", "{\"-1\":5}", "{\"x\":5}", "{\"5\":101}", "{\"\":1}"},
     {"[]", "{\"5\":\"1\"}"}},
    {"ignore_eos", {"true"}, {}, {"1"}},
    {"skip_special_tokens", {"false"}, {}, {"0"}},
    {"include_stop_str_in_output", {"true"}, {}, {"\"yes\""}},
    {"return_token_ids", {"true"}, {}, {"1"}},
    {"stream", {"true", "false"}, {}, {"1", "\"true\""}},
    {"repetition_detection",
     {"{\"max_pattern_size\":4,\"min_count\":2}"},
     {"{\"max_pattern_size\":0,\"min_count\":2}", "{\"max_pattern_size\":4,\"min_count\":1}",
      "{\"max_pattern_size\":2,\"min_pattern_size\":3,\"min_count\":2}"},
     {"true"}},
};

TEST(SamplingFields, check_ranges_and_types) {
  for (const Range& range : kRanges) {
    const auto body = [&](const char* value) { return fmt::format("\"{}\":{}", range.name, value); };
    const auto begins_with_name = [&](const ApiError& e) { return e.param.value_or("").rfind(range.name, 0) == 0; };
    for (const char* value : range.good)
      EXPECT_EQ(chat_error(body(value)).code, "ok") << body(value) << chat_error(body(value)).message;
    for (const char* value : range.bad) {
      EXPECT_EQ(chat_error(body(value)).code, "invalid_value") << body(value);
      EXPECT_TRUE(begins_with_name(chat_error(body(value)))) << body(value);
    }
    for (const char* value : range.wrong_type) {
      EXPECT_EQ(chat_error(body(value)).code, "invalid_type") << body(value);
      EXPECT_TRUE(begins_with_name(chat_error(body(value)))) << body(value);
    }
    EXPECT_EQ(chat_error(body("null")).code, "ok") << range.name;
  }
}

struct Wrong {
  const char* body;
  const char* code;
  const char* param;
};

TEST(ChatFields, refuse_with_code_and_path) {
  const Wrong cases[] = {
      {R"("foo":1)", "unknown_parameter", "foo"},
      {R"("max_token":5)", "unknown_parameter", "max_token"},
      {R"("stream":true,"stream_options":{"include_usag":true})", "unknown_parameter", "stream_options.include_usag"},
      {R"("stream_options":{"include_usage":true})", "invalid_value", "stream_options"},
      {R"("repetition_detection":{"min_count":2})", "missing_required_parameter",
       "repetition_detection.max_pattern_size"},
      {R"("repetition_detection":{"max_pattern_size":2})", "missing_required_parameter",
       "repetition_detection.min_count"},
      {R"("top_logprobs":5)", "invalid_value", "top_logprobs"},
      {R"("logprobs":true,"top_logprobs":99)", "invalid_value", "top_logprobs"},
      {R"("logprob_token_ids":[1])", "invalid_value", "logprob_token_ids"},
      {R"("prompt_logprobs":1,"stream":true)", "invalid_value", "prompt_logprobs"},
      {R"("n":2,"best_of":3)", "unsupported_value", "best_of"},
      {R"("min_tokens":9,"max_tokens":5)", "invalid_value", "min_tokens"},
      {R"("tools":[{"type":"function","function":{"name":"f"}}])", "unsupported_parameter", "tools"},
      {R"("tool_choice":"required")", "invalid_value", "tool_choice"},
      {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "invalid_value", "tool_choice"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{}}})", "unsupported_value",
       "response_format"},
      {R"("response_format":{"type":"json_object"})", "unsupported_value", "response_format"},
      {R"("response_format":{"type":"yaml"})", "invalid_value", "response_format.type"},
      {R"("response_format":{})", "missing_required_parameter", "response_format.type"},
      {R"("structured_outputs":{"json":{}})", "unsupported_parameter", "structured_outputs"},
      {R"("guided_json":{"type":"object"})", "unsupported_parameter", "guided_json"},
      {R"("thinking_token_budget":100)", "unsupported_parameter", "thinking_token_budget"},
      {R"("thinking_token_budget":-2)", "invalid_value", "thinking_token_budget"},
      {R"("min_response_tokens":3)", "unsupported_parameter", "min_response_tokens"},
      {R"("store":true)", "unsupported_parameter", "store"},
      {R"("service_tier":"flex")", "unsupported_value", "service_tier"},
      {R"("service_tier":"gold")", "invalid_value", "service_tier"},
      {R"("modalities":["text","audio"])", "unsupported_value", "modalities[1]"},
      {R"("verbosity":"low")", "unsupported_value", "verbosity"},
      {R"("functions":[{"name":"f"}])", "unsupported_parameter", "functions"},
      {R"("echo":true)", "unsupported_parameter", "echo"},
      {R"("use_beam_search":true)", "unsupported_parameter", "use_beam_search"},
      {R"("length_penalty":0.5)", "unsupported_parameter", "length_penalty"},
      {R"("xtc_probability":0.5)", "unsupported_parameter", "xtc_probability"},
      {R"("mirostat":2)", "unsupported_parameter", "mirostat"},
      {R"("mm_processor_kwargs":{"max_pixels":5})", "unsupported_parameter", "mm_processor_kwargs"},
      {R"("chat_template":"{{ 1 }}")", "unsupported_parameter", "chat_template"},
      {R"("reasoning_effort":"huge")", "invalid_value", "reasoning_effort"},
      {R"("metadata":{"a":1})", "invalid_type", "metadata.a"},
      {R"("add_generation_prompt":true,"continue_final_message":true)", "invalid_value", "add_generation_prompt"},
      {R"("continue_final_message":true)", "invalid_value", "continue_final_message"},
      {R"("prompt":"x")", "unknown_parameter", "prompt"},
      {R"("user":5)", "invalid_type", "user"},
  };
  for (const Wrong& c : cases) {
    const ApiError error = chat_error(c.body);
    EXPECT_EQ(error.status, 400) << c.body;
    EXPECT_EQ(error.code, c.code) << c.body << " " << error.message;
    EXPECT_EQ(error.param.value_or(""), c.param) << c.body;
  }
}

TEST(ChatFields, take_neutral_values_of_what_is_not_offered) {
  for (const char* body : {R"("tools":[])",
                           R"("tools":null)",
                           R"("tool_choice":"none")",
                           R"("tool_choice":"auto")",
                           R"("parallel_tool_calls":true)",
                           R"("response_format":{"type":"text"})",
                           R"("store":false)",
                           R"("service_tier":"auto")",
                           R"("modalities":["text"])",
                           R"("verbosity":"medium")",
                           R"("length_penalty":1)",
                           R"("length_penalty":1.0)",
                           R"("use_beam_search":false)",
                           R"("thinking_token_budget":-1)",
                           R"("min_response_tokens":0)",
                           R"("top_a":0,"typical_p":1,"tfs":1,"top_n_sigma":-1)",
                           R"("dry_multiplier":0,"dry_base":1.75,"dry_sequence_breakers":["\n"])",
                           R"("echo":false)",
                           R"("functions":[])",
                           R"("mm_processor_kwargs":{})",
                           R"("vllm_xargs":{})",
                           R"("user":"u","safety_identifier":"s","prompt_cache_key":"k")",
                           R"("metadata":{"a":"b"})",
                           R"("prediction":{"type":"content","content":"x"})",
                           R"("guided_json":null)",
                           R"("logit_bias":null,"stop":null,"n":null,"stream":null)",
                           R"("spaces_between_special_tokens":true)"}) {
    EXPECT_EQ(chat_error(body).code, "ok") << body << " " << chat_error(body).message;
  }
}

TEST(ChatFields, first_fault_in_document_order_wins) {
  EXPECT_EQ(chat_error(R"("temperature":9,"foo":1)").param, "temperature");
  EXPECT_EQ(chat_error(R"("foo":1,"temperature":9)").param, "foo");
  EXPECT_EQ(chat_error(R"("top_logprobs":5,"n":0)").param, "n");  // rules over two fields come after all fields
}

TEST(ChatFields, need_messages) {
  const RequestReader reader(kLimits);
  std::vector<std::string> ignored;
  for (const char* body : {"{}", R"({"messages":null})", R"({"messages":[]})"}) {
    auto read = reader.chat(parse_json(body).value(), ignored);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, "missing_required_parameter") << body;
    EXPECT_EQ(read.error().param, "messages") << body;
  }
  auto read = reader.chat(parse_json("[]").value(), ignored);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, "invalid_type");
}

TEST(ChatFields, unknown_ones_can_be_reported_instead) {
  Limits limits = kLimits;
  limits.report_unknown = true;
  auto body = parse_json(R"({"messages":[{"role":"user","content":"Hi","colour":1}],"foo":1})");
  std::vector<std::string> ignored;
  ASSERT_TRUE(RequestReader(limits).chat(body.value(), ignored).ok());
  EXPECT_EQ(ignored, (std::vector<std::string>{"messages[0].colour", "foo"}));
}

TEST(ChatFields, values_arrive) {
  const ChatRequest r =
      chat(R"("temperature":0.5,"n":3,"max_tokens":7.0,"stop":["a","b"],"logit_bias":{"7":2.5,"3":-1},"seed":-1,
    "stream":true,"stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":4,"include_reasoning":false,"priority":-3)");
  EXPECT_EQ(r.temperature, 0.5);
  EXPECT_EQ(r.n, 3);
  EXPECT_EQ(r.max_tokens, 7);
  EXPECT_EQ(r.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.logit_bias, (std::vector<std::pair<TokenId, float>>{{3, -1.f}, {7, 2.5f}}));
  EXPECT_EQ(r.seed, -1);
  EXPECT_TRUE(r.stream && r.include_usage && r.logprobs && !r.include_reasoning);
  EXPECT_EQ(r.top_logprobs, 4);
  EXPECT_EQ(r.priority, -3);
}

TEST(CompletionFields, refuse_with_code_and_path) {
  const Wrong cases[] = {
      {R"("messages":[])", "unknown_parameter", "messages"},
      {R"("max_tokens":0)", "invalid_value", "max_tokens"},
      {R"("max_tokens":-1)", "invalid_value", "max_tokens"},
      {R"("logprobs":21)", "invalid_value", "logprobs"},
      {R"("logprobs":true)", "invalid_type", "logprobs"},
      {R"("suffix":"x")", "unsupported_parameter", "suffix"},
      {R"("prompt_embeds":"x")", "unsupported_parameter", "prompt_embeds"},
      {R"("truncate_prompt_tokens":0)", "invalid_value", "truncate_prompt_tokens"},
      {R"("truncation_side":"middle")", "invalid_value", "truncation_side"},
      {R"("reasoning_effort":"low")", "unknown_parameter", "reasoning_effort"},
  };
  for (const Wrong& c : cases) {
    const ApiError error = completion_error(c.body);
    EXPECT_EQ(error.code, c.code) << c.body << " " << error.message;
    EXPECT_EQ(error.param.value_or(""), c.param) << c.body;
  }
  for (const char* body : {R"("max_tokens":0,"echo":true)", R"("max_tokens":0,"prompt_logprobs":0)", R"("logprobs":0)",
                           R"("truncate_prompt_tokens":-1)", R"("suffix":"")"}) {
    EXPECT_EQ(completion_error(body).code, "ok") << body;
  }
}

TEST(CompletionFields, prompts_come_in_four_forms) {
  const RequestReader reader(kLimits);
  const auto prompts = [&](const std::string& prompt) {
    std::vector<std::string> ignored;
    return reader.completion(parse_json("{\"prompt\":" + prompt + "}").value(), ignored);
  };
  EXPECT_EQ(prompts(R"("a")")->prompts.size(), 1u);
  EXPECT_EQ(prompts(R"(["a","b"])")->prompts.size(), 2u);
  EXPECT_EQ(prompts("[1,2,3]")->prompts.size(), 1u);
  EXPECT_EQ(prompts("[[1],[2,3]]")->prompts.size(), 2u);
  for (const char* bad : {"[]", "\"\"", "[\"\"]", "[[]]", "[[1],[]]", "[2048]", "[[1],[-1]]", "[1,2.5]", "[\"a\",1]",
                          "[\"a\",[1]]", "{}", "5", "[null]", "[true]"}) {
    auto read = prompts(bad);
    ASSERT_FALSE(read.ok()) << bad;
    EXPECT_EQ(read.error().param.value_or("").rfind("prompt", 0), 0u) << bad;
  }
  std::string many = "[";
  for (int i = 0; i < 129; ++i) many += i ? ",\"x\"" : "\"x\"";
  EXPECT_FALSE(prompts(many + "]").ok());
}

TEST(SamplingDefaults, chain_of_request_override_and_file) {
  auto service = std::make_shared<Service>();
  service->vocab = 2048;
  service->end_ids = {1, 2};
  service->options.generation_config =
      R"({"temperature":0.6,"top_k":20,"top_p":0.95,"eos_token_id":[1],"do_sample":true})";
  service->options.override_generation_config = R"({"top_p":0.8})";
  const auto defaults = sampling_defaults(service->options);
  GenerationFields fields;
  auto params = resolve_sampling({fields, defaults, *service, 10});
  EXPECT_FLOAT_EQ(params.temperature, 0.6f);
  EXPECT_EQ(params.top_k, 20);
  EXPECT_FLOAT_EQ(params.top_p, 0.8f);
  EXPECT_FLOAT_EQ(params.repetition_penalty, 1);
  fields.temperature = 0;
  fields.top_k = -1;
  fields.seed = -1;
  fields.min_tokens = 50;
  fields.stop_token_ids = {9};
  params = resolve_sampling({fields, defaults, *service, 10});
  EXPECT_TRUE(params.greedy());
  EXPECT_EQ(params.top_k, 0);
  EXPECT_EQ(params.seed, ~uint64_t{0});
  EXPECT_EQ(params.min_tokens, 10);  // no more than the answer may have
  EXPECT_EQ(params.blocked_early, (std::vector<TokenId>{1, 2, 9}));
  EXPECT_EQ(stop_ids(fields, *service), (std::vector<TokenId>{1, 2, 9}));
  fields.ignore_eos = true;
  EXPECT_EQ(stop_ids(fields, *service), (std::vector<TokenId>{9}));
}

TEST(SamplingDefaults, absent_seeds_differ) {
  auto service = std::make_shared<Service>();
  service->vocab = 2048;
  const GenerationFields fields;
  const auto a = resolve_sampling({fields, {}, *service, 1}).seed, b = resolve_sampling({fields, {}, *service, 1}).seed;
  EXPECT_NE(a, b);
}

TEST(SamplingDefaults, bad_words_get_a_leading_space_too) {
  auto service = canary_service(nullptr);
  GenerationFields fields;
  fields.bad_words = {"Paris"};
  const auto params = resolve_sampling({fields, {}, *service, 1});
  ASSERT_EQ(params.bad_words.size(), 2u);
  EXPECT_EQ(params.bad_words[0], service->tokenizer->encode("Paris", false));
  EXPECT_EQ(params.bad_words[1], service->tokenizer->encode(" Paris", false));
}

TEST(ApiOptions, validate_names_every_problem) {
  ApiOptions options;
  options.served_model_names = {"m"};
  EXPECT_TRUE(options.validate().empty());
  options.max_n = 0;
  options.reasoning_field = "thoughts";
  options.override_generation_config = R"({"temprature":1})";
  options.default_chat_template_kwargs = "[]";
  options.unknown_fields = "maybe";
  EXPECT_EQ(options.validate().size(), 5u);
}

}  // namespace
}  // namespace tutti::api
