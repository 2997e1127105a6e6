// Requests through the dispatcher, an engine of paper behind it: routes, keys, ids, answers and streams.
#include "api/endpoints.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <random>
#include <thread>

#include "api/auth.h"
#include "api/canary.h"
#include "api/fakes.h"
#include "api/session.h"

namespace tutti::api {
namespace {

using schedule::FinishReason;

std::vector<TokenId> ids(std::string_view text) {
  return canary_tokenizer()->encode(text, true);
}

class Endpoints : public ::testing::Test {
 protected:
  Endpoints() : tasks_(1), service_(canary_service(&tasks_)) {}

  void start() {
    auto backend = std::make_unique<FakeBackend>();
    backend_ = backend.get();
    backend_->on_submit = [this](engine::Submission& s) { play(s); };
    handler_ = make_handler_on(service_, std::move(backend));
  }

  // The answers that the engine gives, per choice.
  void play(engine::Submission& s) {
    if (script_.empty()) return;
    for (int i = 0; i < s.choices; ++i) s.stream->push({.choice = s.first_choice + i, .started = true});
    for (size_t t = 0; t < script_.size(); ++t) {
      for (int i = 0; i < s.choices; ++i) {
        engine::Event event{.choice = s.first_choice + i, .token = script_[t]};
        event.generated = static_cast<int>(t) + 1;
        if (s.sampling.logprobs) {
          event.logprobs = sample::Logprobs{.chosen = {script_[t], -0.1f * static_cast<float>(t + 1), 1}};
          for (int k = 0; k < s.sampling.top_logprobs; ++k) event.logprobs->top.push_back({k + 5, -0.5f, k + 1});
        }
        if (t == 0 && s.sampling.prompt_logprobs >= 0) {
          for (size_t p = 1; p < s.prompt.size(); ++p)
            event.prompt_logprobs.push_back({.chosen = {s.prompt[p], -2, 3}});
        }
        if (t + 1 == script_.size()) {
          event.finish = finish_;
          if (finish_ == FinishReason::stop) event.stop_token = script_[t];
          if (finish_ == FinishReason::error) event.error_code = "numerical_error", event.token = -1;
        }
        s.stream->push(std::move(event));
      }
    }
  }

  std::shared_ptr<FakeExchange> send(const std::string& method, const std::string& path, const std::string& body = "",
                                     http::Headers headers = {}) {
    if (!handler_) start();
    auto exchange = std::make_shared<FakeExchange>(
        http::Request{.method = method, .path = path, .headers = std::move(headers), .body = body});
    handler_(exchange);
    finish_tasks();
    return exchange;
  }

  void finish_tasks() {
    std::mutex mutex;
    std::condition_variable done;
    bool ready = false;
    tasks_.post([&] {
      const std::lock_guard lock(mutex);
      ready = true;
      done.notify_one();
    });
    std::unique_lock lock(mutex);
    done.wait(lock, [&] { return ready; });
  }

  std::shared_ptr<FakeExchange> chat(const std::string& more = "", http::Headers headers = {}) {
    return send("POST", "/v1/chat/completions",
                R"({"messages":[{"role":"user","content":"Hi"}])" + (more.empty() ? "" : "," + more) + "}",
                std::move(headers));
  }
  std::shared_ptr<FakeExchange> complete(const std::string& more, const std::string& prompt = "\"Hi\"") {
    return send("POST", "/v1/completions", R"({"prompt":)" + prompt + (more.empty() ? "" : "," + more) + "}");
  }

  static std::string error_code(const FakeExchange& e) {
    return Json::parse(e.body)["error"]["code"].get<std::string>();
  }

  TaskPool tasks_;
  std::shared_ptr<Service> service_;
  FakeBackend* backend_ = nullptr;
  http::Handler handler_;
  std::vector<TokenId> script_ = ids("I think.\n</think>\n\nHello there!<|im_end|>");
  FinishReason finish_ = FinishReason::stop;
};

// The events of a stream.
std::vector<Json> events(const std::string& body) {
  std::vector<Json> out;
  size_t at = 0;
  while (at < body.size()) {
    const size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    if (event[0] == ':') continue;
    EXPECT_EQ(event.rfind("data: ", 0), 0u) << event;
    out.push_back(event == "data: [DONE]" ? Json("[DONE]") : Json::parse(event.substr(6)));
  }
  return out;
}

TEST_F(Endpoints, routes) {
  struct Case {
    const char* method;
    const char* path;
    int status;
    const char* code;
  };
  const Case cases[] = {
      {"GET", "/nope", 404, "not_found"},
      {"GET", "/", 404, "not_found"},
      {"GET", "/v1/models/", 404, "not_found"},
      {"POST", "/v1/chat/completions/", 404, "not_found"},
      {"GET", "/v1/chat/completions", 405, "method_not_allowed"},
      {"DELETE", "/v1/models", 405, "method_not_allowed"},
      {"POST", "/health", 405, "method_not_allowed"},
      {"POST", "/v1/embeddings", 501, "unsupported_endpoint"},
      {"GET", "/v1/files/abc", 501, "unsupported_endpoint"},
      {"POST", "/v1/audio/speech", 501, "unsupported_endpoint"},
      {"POST", "/v1/responses", 501, "unsupported_endpoint"},
      {"GET", "/v1/models/unknown", 404, "model_not_found"},
  };
  for (const Case& c : cases) {
    const auto e = send(c.method, c.path);
    EXPECT_EQ(e->head.status, c.status) << c.path;
    EXPECT_EQ(error_code(*e), c.code) << c.path;
    EXPECT_NE(e->header("X-Request-Id"), "") << c.path;
  }
  EXPECT_EQ(send("GET", "/v1/chat/completions")->header("Allow"), "POST, OPTIONS");
  EXPECT_EQ(send("PUT", "/v1/models")->header("Allow"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(send("OPTIONS", "/v1/models")->head.status, 204);
  EXPECT_EQ(send("HEAD", "/v1/models")->head.status, 200);
}

TEST_F(Endpoints, every_row_of_the_table_answers) {
  for (const Endpoint& endpoint : endpoints()) {
    if (endpoint.method != "GET" || endpoint.path.ends_with('*')) continue;
    EXPECT_EQ(send("GET", std::string(endpoint.path))->head.status, 200) << endpoint.path;
  }
}

TEST_F(Endpoints, models) {
  const Json list = Json::parse(send("GET", "/v1/models")->body);
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "canary");
  EXPECT_EQ(list["data"][0]["max_model_len"], 512);
  EXPECT_EQ(Json::parse(send("GET", "/v1/models/team/other")->body)["id"], "team/other");
  const Json other = Json::parse(send("GET", "/v1/models", "", {{"anthropic-version", "x"}})->body);
  EXPECT_EQ(other["data"][0]["type"], "model");
  EXPECT_EQ(other["first_id"], "canary");
}

TEST_F(Endpoints, health_is_red_when_the_engine_hangs) {
  start();
  backend_->state = {.healthy = false, .last_progress_s = 99, .running = 2, .waiting = 3};
  const auto e = send("GET", "/health");
  EXPECT_EQ(e->head.status, 503);
  EXPECT_EQ(Json::parse(e->body)["waiting"], 3);
  EXPECT_EQ(send("GET", "/ready")->head.status, 503);
}

TEST_F(Endpoints, a_draining_server_is_healthy_but_not_ready) {
  start();
  backend_->state = {.healthy = true, .draining = true, .running = 1};
  const auto health = send("GET", "/health");
  EXPECT_EQ(health->head.status, 200);
  EXPECT_EQ(Json::parse(health->body)["status"], "draining");
  EXPECT_EQ(send("GET", "/ready")->head.status, 503);
}

TEST_F(Endpoints, keys) {
  service_->options.api_keys = {"first", "second"};
  EXPECT_EQ(send("GET", "/v1/models")->head.status, 401);
  EXPECT_EQ(chat()->head.status, 401);
  EXPECT_EQ(send("GET", "/nope")->head.status, 401);
  for (const http::Headers& headers : std::vector<http::Headers>{
           {{"authorization", "Bearer second"}}, {{"authorization", "bearer first"}}, {{"x-api-key", "first"}}}) {
    EXPECT_EQ(send("GET", "/v1/models", "", headers)->head.status, 200);
  }
  for (const http::Headers& headers : std::vector<http::Headers>{{{"authorization", "Bearer third"}},
                                                                 {{"authorization", "first"}},
                                                                 {{"authorization", "Bearer "}},
                                                                 {{"x-api-key", "firs"}},
                                                                 {{"x-api-key", "firstfirst"}}}) {
    EXPECT_EQ(send("GET", "/v1/models", "", headers)->head.status, 401);
  }
  for (const char* open : {"/health", "/ping", "/ready", "/version", "/metrics"})
    EXPECT_EQ(send("GET", open)->head.status, 200) << open;
  service_->options.protect_metrics = true;
  EXPECT_EQ(send("GET", "/metrics")->head.status, 401);
  EXPECT_EQ(send("GET", "/metrics", "", {{"x-api-key", "first"}})->head.status, 200);
}

TEST(EqualSecret, compares) {
  EXPECT_TRUE(equal_secret("abc", "abc"));
  EXPECT_FALSE(equal_secret("abc", "abd"));
  EXPECT_FALSE(equal_secret("abc", "ab"));
  EXPECT_FALSE(equal_secret("abab", "ab"));
  EXPECT_FALSE(equal_secret("a", ""));
  EXPECT_FALSE(equal_secret("", "a"));
}

TEST_F(Endpoints, content_type) {
  EXPECT_EQ(chat("", {{"content-type", "text/plain"}})->head.status, 415);
  EXPECT_EQ(chat("", {{"content-type", "Application/JSON; charset=utf-8"}})->head.status, 200);
}

TEST_F(Endpoints, request_ids) {
  EXPECT_EQ(chat("", {{"x-request-id", "mine.1"}})->header("X-Request-Id"), "mine.1");
  EXPECT_NE(chat("", {{"x-request-id", "not mine"}})->header("X-Request-Id"), "not mine");
  const auto e = chat(R"("request_id":"body")", {{"x-request-id", "header"}});
  EXPECT_EQ(e->header("X-Request-Id"), "body");
  EXPECT_EQ(Json::parse(e->body)["id"], "chatcmpl-body");
  script_.clear();  // an answer that goes on
  const auto first = chat(R"("request_id":"same")");
  chat(R"("request_id":"same")");
  EXPECT_EQ(backend_->submissions.back().request_id, "same-2");
  first->close();
  chat(R"("request_id":"same")");
  EXPECT_EQ(backend_->submissions.back().request_id, "same");
}

TEST_F(Endpoints, bad_bodies) {
  for (const std::string& body :
       std::vector<std::string>{"{", "", "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}",
                                R"({"messages":[],"temperature":NaN})", R"({"temperature":1e999})"}) {
    const auto e = send("POST", "/v1/chat/completions", body);
    EXPECT_EQ(e->head.status, 400) << body;
    EXPECT_EQ(error_code(*e), "invalid_json") << body;
  }
  EXPECT_EQ(error_code(*chat(R"("model":"nope")")), "model_not_found");
  EXPECT_EQ(chat(R"("model":"nope")")->head.status, 404);
  EXPECT_EQ(error_code(*chat(R"("chat_template_kwargs":{"enable_thinkin":true})")), "unknown_parameter");
  EXPECT_TRUE(backend_->submissions.empty());
}

TEST_F(Endpoints, template_errors_are_the_clients) {
  const auto e = send("POST", "/v1/chat/completions", R"({"messages":[{"role":"assistant","content":"x"}]})");
  EXPECT_EQ(e->head.status, 400);
  EXPECT_EQ(error_code(*e), "template_error");
}

TEST_F(Endpoints, room_behind_the_prompt) {
  const int prompt = static_cast<int>([&] {
    chat();
    return backend_->submissions[0].prompt.size();
  }());
  EXPECT_EQ(backend_->submissions[0].max_tokens, 512 - prompt);  // all that fits
  chat(R"("max_tokens":3)");
  EXPECT_EQ(backend_->submissions[1].max_tokens, 3);
  chat(R"("max_tokens":3,"max_completion_tokens":4)");
  EXPECT_EQ(backend_->submissions[2].max_tokens, 4);
  chat(R"("max_tokens":100000)");
  EXPECT_EQ(backend_->submissions[3].max_tokens, 512 - prompt);
  complete("");
  EXPECT_EQ(backend_->submissions[4].max_tokens, 16);

  const auto of_length = [](int n) {
    std::string list = "[5";
    for (int i = 1; i < n; ++i) list += ",5";
    return list + "]";
  };
  EXPECT_EQ(complete("", of_length(511))->head.status, 200);
  EXPECT_EQ(backend_->submissions.back().max_tokens, 1);
  for (int n : {512, 513}) {
    const auto e = complete("", of_length(n));
    EXPECT_EQ(e->head.status, 400) << n;
    EXPECT_EQ(error_code(*e), "context_length_exceeded") << n;
    EXPECT_NE(e->body.find("maximum context length is 512 tokens"), std::string::npos);
  }
  complete(R"("truncate_prompt_tokens":-1,"max_tokens":12)", of_length(600));
  EXPECT_EQ(backend_->submissions.back().prompt.size(), 500u);
  complete(R"("truncate_prompt_tokens":2)", "[1,2,3]");
  EXPECT_EQ(backend_->submissions.back().prompt, (std::vector<TokenId>{2, 3}));
}

TEST_F(Endpoints, chat_answer) {
  const auto e = chat(R"("return_token_ids":true,"return_prompt_text":true,"service_tier":"auto")");
  ASSERT_EQ(e->head.status, 200) << e->body;
  const Json a = Json::parse(e->body);
  EXPECT_EQ(a["object"], "chat.completion");
  EXPECT_EQ(a["model"], "canary");
  EXPECT_EQ(a["system_fingerprint"], "tt-test");
  EXPECT_EQ(a["service_tier"], "default");
  const Json& choice = a["choices"][0];
  EXPECT_EQ(choice["message"].dump(),
            R"({"role":"assistant","content":"Hello there!","refusal":null,"reasoning_content":"I think."})");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["stop_reason"].is_null());
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_EQ(choice["token_ids"].get<std::vector<TokenId>>(), script_);
  EXPECT_EQ(a["prompt_token_ids"].get<std::vector<TokenId>>(), backend_->submissions[0].prompt);
  EXPECT_NE(a["prompt_text"].get<std::string>().find("Hi<|im_end|>"), std::string::npos);
  const Json& usage = a["usage"];
  EXPECT_EQ(usage["prompt_tokens"], backend_->submissions[0].prompt.size());
  EXPECT_EQ(usage["completion_tokens"], script_.size());
  EXPECT_EQ(usage["total_tokens"], backend_->submissions[0].prompt.size() + script_.size());
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], ids("I think.\n</think>").size());
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 0);
}

TEST_F(Endpoints, chat_without_thinking_is_content) {
  script_ = ids("Hello!<|im_end|>");
  const Json a = Json::parse(chat(R"("chat_template_kwargs":{"enable_thinking":false})")->body);
  EXPECT_EQ(a["choices"][0]["message"].dump(), R"({"role":"assistant","content":"Hello!","refusal":null})");
}

TEST_F(Endpoints, reasoning_fields) {
  service_->options.reasoning_field = "both";
  const Json both = Json::parse(chat()->body)["choices"][0]["message"];
  EXPECT_EQ(both["reasoning"], "I think.");
  EXPECT_EQ(both["reasoning_content"], "I think.");
  const Json none = Json::parse(chat(R"("include_reasoning":false)")->body);
  EXPECT_FALSE(none["choices"][0]["message"].contains("reasoning_content"));
  EXPECT_GT(none["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
  EXPECT_EQ(chat(R"("include_reasoning":false,"stream":true)")->body.find("I think"), std::string::npos);
}

TEST_F(Endpoints, chat_stream) {
  const auto e = chat(R"("stream":true,"stream_options":{"include_usage":true})");
  EXPECT_EQ(e->head.content_type, "text/event-stream; charset=utf-8");
  EXPECT_EQ(e->header("Cache-Control"), "no-cache");
  EXPECT_TRUE(e->ended);
  const auto list = events(e->body);
  ASSERT_GT(list.size(), 5u);
  EXPECT_EQ(list.front()["choices"][0]["delta"].dump(), R"({"role":"assistant","content":""})");
  EXPECT_EQ(list.back(), "[DONE]");
  const Json& usage = list[list.size() - 2];
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["completion_tokens"], script_.size());
  const Json& last = list[list.size() - 3];
  EXPECT_EQ(last["choices"][0]["delta"], Json::object());
  EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(last["choices"][0]["stop_reason"].is_null());
  int finished = 0;
  for (size_t i = 0; i + 1 < list.size(); ++i) {
    EXPECT_EQ(list[i]["id"], list[0]["id"]);
    EXPECT_EQ(list[i]["created"], list[0]["created"]);
    EXPECT_EQ(list[i]["object"], "chat.completion.chunk");
    EXPECT_TRUE(list[i].contains("usage"));
    if (i + 2 < list.size()) {
      EXPECT_TRUE(list[i]["usage"].is_null());
      finished += !list[i]["choices"][0]["finish_reason"].is_null();
    }
  }
  EXPECT_EQ(finished, 1);
  EXPECT_EQ(chat(R"("stream":true)")->body.find("usage"), std::string::npos);
}

TEST_F(Endpoints, continuous_usage_counts_up) {
  const auto list =
      events(chat(R"("stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})")->body);
  int64_t last = -1;
  for (size_t i = 0; i + 1 < list.size(); ++i) {
    const int64_t now = list[i]["usage"]["completion_tokens"];
    EXPECT_GE(now, last);
    last = now;
  }
  EXPECT_EQ(last, static_cast<int64_t>(script_.size()));
}

struct Joined {
  std::string content, reasoning, finish;
  Json stop_reason, content_logprobs = Json::array(), reasoning_logprobs = Json::array();
  std::vector<TokenId> token_ids;
  bool operator==(const Joined&) const = default;
};

std::vector<Joined> joined(const std::string& body, size_t choices) {
  std::vector<Joined> out(choices);
  for (const Json& event : events(body)) {
    if (event == "[DONE]") continue;
    for (const Json& choice : event["choices"]) {
      Joined& j = out[choice["index"].get<size_t>()];
      const Json& delta = choice["delta"];
      j.content += delta.value("content", "");
      j.reasoning += delta.value("reasoning_content", "");
      if (!choice["logprobs"].is_null()) {
        for (const Json& x : choice["logprobs"]["content"]) j.content_logprobs.push_back(x);
        if (choice["logprobs"].contains("reasoning")) {
          for (const Json& x : choice["logprobs"]["reasoning"]) j.reasoning_logprobs.push_back(x);
        }
      }
      if (choice.contains("token_ids")) {
        for (TokenId id : choice["token_ids"]) j.token_ids.push_back(id);
      }
      if (choice["finish_reason"].is_null()) continue;
      EXPECT_EQ(j.finish, "");
      j.finish = choice["finish_reason"];
      j.stop_reason = choice["stop_reason"];
    }
  }
  return out;
}

std::vector<Joined> whole(const std::string& body) {
  std::vector<Joined> out;
  const Json answer = Json::parse(body);
  for (const Json& choice : answer["choices"]) {
    const Json& message = choice["message"];
    Joined j{message["content"], message.value("reasoning_content", ""), choice["finish_reason"],
             choice["stop_reason"]};
    if (!choice["logprobs"].is_null()) {
      j.content_logprobs = choice["logprobs"]["content"];
      if (choice["logprobs"].contains("reasoning")) j.reasoning_logprobs = choice["logprobs"]["reasoning"];
    }
    j.token_ids = choice["token_ids"].get<std::vector<TokenId>>();
    out.push_back(j);
  }
  return out;
}

TEST_F(Endpoints, streams_and_whole_answers_are_the_same) {
  const std::vector<std::string> texts = {
      "I think.\n</think>\n\nHello there!<|im_end|>",
      "\nthought\n\n</think>\n\n\nZeile 1\nein STOP da, Baum<|im_end|>",
      "emoji 😀😀 ünd\n</think>a😀 日本語 \"quoted\" \\ \t<|im_end|>",
      "never closed 😀\n",
      "</think>STO<|im_end|>",
      "<think>\n\n</think>\n\n<|im_end|>",
      "\x01\x02</think>\x7f \u2028\u2029 </script> \ufeff\r\n\t\b<|im_end|>",
  };
  for (const std::string& text : texts) {
    script_ = ids(text);
    finish_ = text.ends_with("<|im_end|>") ? FinishReason::stop : FinishReason::length;
    for (const char* more : {"", R"("stop":["STOP","Baum"])", R"("stop":"STOP","include_stop_str_in_output":true)",
                             R"("n":3)", R"("skip_special_tokens":false)"}) {
      const std::string common =
          std::string(R"("return_token_ids":true,"logprobs":true,"top_logprobs":2)") + (*more ? "," : "") + more;
      const auto expected = whole(chat(common)->body);
      for (int interval : {1, 2, 5, 1000}) {
        const auto stream = chat(common + R"(,"stream":true,"stream_interval":)" + std::to_string(interval));
        EXPECT_EQ(joined(stream->body, expected.size()), expected) << text << more << interval;
      }
    }
  }
}

TEST_F(Endpoints, any_tokens_make_valid_json_and_the_same_text) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    script_.clear();
    const int n = 1 + static_cast<int>(random() % 24);
    // Single bytes of all kinds, halves of characters, control tokens, ids without text.
    for (int i = 0; i < n; ++i) {
      const auto range = random() % 3 ? 300u : static_cast<unsigned>(service_->vocab);
      script_.push_back(static_cast<TokenId>(random() % range));
    }
    finish_ = FinishReason::length;
    const std::string common = round % 2 ? R"("return_token_ids":true,"logprobs":true,"stop":["e","\\","0 "])"
                                         : R"("return_token_ids":true,"skip_special_tokens":false,"logprobs":true)";
    const auto expected = whole(chat(common)->body);
    EXPECT_EQ(joined(chat(common + R"(,"stream":true)")->body, 1), expected);
    EXPECT_EQ(joined(chat(common + R"(,"stream":true,"stream_interval":3)")->body, 1), expected);
    EXPECT_TRUE(Json::accept(complete(R"("logprobs":2)")->body));
    EXPECT_EQ(events(complete(R"("logprobs":2,"stream":true)")->body).back(), "[DONE]");
  }
}

TEST_F(Endpoints, stream_interval_gathers_tokens) {
  script_ = ids("</think>one two three four five six seven eight<|im_end|>");
  const auto content_chunks = [&](const std::string& interval) {
    size_t n = 0;
    for (const Json& e : events(chat(R"("stream":true,"stream_interval":)" + interval)->body)) {
      n += e != "[DONE]" && !e["choices"].empty() && !e["choices"][0]["delta"].value("content", "").empty();
    }
    return n;
  };
  EXPECT_EQ(content_chunks("1"), script_.size() - 2);
  EXPECT_LT(content_chunks("4"), script_.size() / 2);
}

TEST_F(Endpoints, stop_strings_give_the_row_back) {
  script_ = ids("</think>\n\none two three four five six<|im_end|>");
  for (const char* stream : {"false", "true"}) {
    backend_ = nullptr;
    handler_ = nullptr;
    const auto e = chat(std::string(R"("stop":"three","stream":)") + stream);
    EXPECT_EQ(backend_->stopped_choices, (std::vector<int64_t>{0})) << stream;
    if (*stream == 'f') {
      const Json a = Json::parse(e->body);
      EXPECT_EQ(a["choices"][0]["message"]["content"], "one two ");
      EXPECT_EQ(a["choices"][0]["stop_reason"], "three");
      EXPECT_LT(a["usage"]["completion_tokens"], script_.size());
    }
  }
}

TEST_F(Endpoints, log_probabilities_print_all_digits) {
  const Json a = Json::parse(chat(R"("logprobs":true,"top_logprobs":1)")->body);
  const Json& entry = a["choices"][0]["logprobs"]["content"][0];
  const size_t t = ids("I think.\n</think>\n\n").size();
  EXPECT_EQ(entry["logprob"].get<double>(), std::stod(fmt::format("{}", -0.1f * static_cast<float>(t + 1))));
  EXPECT_EQ(entry["top_logprobs"].size(), 1u);
  std::string bytes;
  for (const Json& e : a["choices"][0]["logprobs"]["content"]) {
    for (int b : e["bytes"]) bytes += static_cast<char>(b);
  }
  EXPECT_EQ(bytes, "Hello there!");
  EXPECT_EQ(Json::parse(chat(R"("logprobs":true,"return_tokens_as_token_ids":true)")
                            ->body)["choices"][0]["logprobs"]["content"][0]["token"],
            "token_id:" + std::to_string(script_[t]));
}

TEST_F(Endpoints, engine_faults) {
  finish_ = FinishReason::error;
  const auto e = chat();
  EXPECT_EQ(e->head.status, 500);
  const Json a = Json::parse(e->body);
  EXPECT_EQ(a["error"]["code"], "numerical_error");
  EXPECT_EQ(a["usage"]["completion_tokens"], script_.size() - 1);
  const auto list = events(chat(R"("stream":true)")->body);
  EXPECT_EQ(list.back(), "[DONE]");
  const Json& fault = list[list.size() - 2];
  EXPECT_EQ(fault["error"]["code"], "numerical_error");
  for (size_t i = 0; i + 2 < list.size(); ++i) EXPECT_TRUE(list[i]["choices"][0]["finish_reason"].is_null());
}

TEST_F(Endpoints, full_queue_and_draining) {
  start();
  backend_->admission = engine::Admission::queue_full;
  for (const char* more : {"", R"("stream":true)"}) {
    const auto e = chat(more);
    EXPECT_EQ(e->head.status, 503);
    EXPECT_EQ(e->header("Retry-After"), "7");
    EXPECT_EQ(error_code(*e), "server_overloaded");
    EXPECT_FALSE(e->streaming);
  }
  backend_->admission = engine::Admission::draining;
  EXPECT_EQ(error_code(*chat()), "server_draining");
}

TEST_F(Endpoints, client_that_leaves_frees_its_rows) {
  script_.clear();
  for (const char* more : {"", R"("stream":true)"}) {
    const auto e = chat(more);
    const size_t before = backend_->aborted.size();
    e->close();
    EXPECT_EQ(backend_->aborted.size(), before + 1);
    e->close();
    EXPECT_EQ(backend_->aborted.size(), before + 1);
  }
}

TEST_F(Endpoints, slow_reader_leaves_events_in_the_stream) {
  script_.clear();
  const auto e = chat(R"("stream":true)");
  engine::Stream& stream = *backend_->submissions[0].stream;
  e->pending = Session::kMaxPendingBytes + 1;
  const size_t before = e->writes.size();
  for (size_t i = 0; i < Session::kEventsPerChoice; ++i) stream.push({.token = ids("x")[0]});
  EXPECT_EQ(e->writes.size(), before);
  EXPECT_TRUE(stream.full());
  e->drained();
  EXPECT_FALSE(stream.full());
  EXPECT_GT(e->writes.size(), before);
}

TEST_F(Endpoints, silent_streams_are_kept_alive_and_deadlines_end_them) {
  service_->options.sse_keepalive_s = 1;
  script_.clear();
  const auto e = chat(R"("stream":true,"timeout":1.6)");
  const auto whole = chat(R"("timeout":0.2)");
  for (int i = 0; i < 300 && !e->ended; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  handler_ = nullptr;  // joins the clock
  ASSERT_TRUE(e->ended);
  EXPECT_EQ(e->writes[0], ": keep-alive\n\n");
  EXPECT_NE(e->body.find("\"code\":\"timeout\""), std::string::npos);
  EXPECT_EQ(whole->head.status, 504);
}

TEST_F(Endpoints, a_long_prompt_shows_its_progress_as_comments) {
  script_.clear();
  const auto e = chat(R"("stream":true)");
  const auto whole = chat("");
  for (const auto& submission : backend_->submissions) submission.stream->push({.prompt_computed = 3});
  const size_t tokens = backend_->submissions[0].prompt.size();
  EXPECT_EQ(e->writes.back(), fmt::format(": prompt 3 of {} tokens\n\n", tokens));
  EXPECT_TRUE(whole->writes.empty());
}

TEST_F(Endpoints, completion_answer) {
  script_ = ids("a b<|im_end|>");
  const Json a = Json::parse(complete(R"("logprobs":2)")->body);
  EXPECT_EQ(a["object"], "text_completion");
  EXPECT_EQ(a["id"].get<std::string>().rfind("cmpl-", 0), 0u);
  const Json& choice = a["choices"][0];
  EXPECT_EQ(choice["text"], "a b");
  EXPECT_EQ(choice["finish_reason"], "stop");
  const Json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"].size(), script_.size() - 1);
  EXPECT_EQ(logprobs["token_logprobs"].size(), script_.size() - 1);
  EXPECT_EQ(logprobs["top_logprobs"][0].size(), 2u);
  EXPECT_EQ(logprobs["text_offset"][0], 0);
  EXPECT_EQ(logprobs["text_offset"][1], 1);
}

TEST_F(Endpoints, completion_echo) {
  script_ = ids(" there<|im_end|>");
  const size_t prompt = ids("Grüße").size();
  const Json a = Json::parse(complete(R"("echo":true,"logprobs":0)", "\"Grüße\"")->body)["choices"][0];
  EXPECT_EQ(a["text"], "Grüße there");
  EXPECT_EQ(a["logprobs"]["tokens"].size(), prompt + script_.size() - 1);
  EXPECT_TRUE(a["logprobs"]["token_logprobs"][0].is_null());
  EXPECT_EQ(a["logprobs"]["text_offset"][prompt], 5);
  std::string text;
  for (const Json& e : events(complete(R"("echo":true,"stream":true)", "\"Grüße\"")->body)) {
    if (e != "[DONE]") text += e["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "Grüße there");
}

TEST_F(Endpoints, completion_prompt_logprobs) {
  const Json a = Json::parse(complete(R"("prompt_logprobs":0)", "[5,6,7]")->body)["choices"][0]["prompt_logprobs"];
  ASSERT_EQ(a.size(), 3u);
  EXPECT_TRUE(a[0].is_null());
  EXPECT_EQ(a[2]["7"]["logprob"], -2.0);
  EXPECT_EQ(a[2]["7"]["rank"], 3);
}

TEST_F(Endpoints, several_prompts_and_choices) {
  script_ = ids("x<|im_end|>");
  const Json a = Json::parse(complete(R"("n":2)", R"(["a","b c"])")->body);
  ASSERT_EQ(a["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(a["choices"][i]["index"], i);
  EXPECT_EQ(backend_->submissions[1].first_choice, 2);
  EXPECT_EQ(a["usage"]["prompt_tokens"], ids("a").size() + ids("b c").size());
  EXPECT_EQ(a["usage"]["completion_tokens"], 8);
}

TEST_F(Endpoints, raw_prompts_may_hold_control_tokens) {
  complete("", R"("<|im_start|>")");
  EXPECT_EQ(backend_->submissions.back().prompt, (std::vector<TokenId>{canary_id("<|im_start|>")}));
  complete(R"("parse_special":false)", R"("<|im_start|>")");
  EXPECT_GT(backend_->submissions.back().prompt.size(), 1u);
}

TEST_F(Endpoints, messages_can_not_hold_control_tokens) {
  send("POST", "/v1/chat/completions", R"({"messages":[{"role":"user","content":"<|im_end|></think>"}]})");
  const auto& prompt = backend_->submissions.back().prompt;
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), canary_id("<|im_end|>")), 1);
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), canary_id("</think>")), 0);
}

TEST_F(Endpoints, continued_messages_and_prompts_without_opening) {
  const std::string history = R"("messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"I am"}])";
  const auto prompt_of = [&](const std::string& more) {
    const auto e = send("POST", "/v1/chat/completions", "{" + history + more + "}");
    EXPECT_EQ(e->head.status, 200) << e->body;
    return backend_->submissions.back().prompt;
  };
  const auto tail = ids("I am");
  const auto open = prompt_of(R"(,"continue_final_message":true)");
  ASSERT_GT(open.size(), tail.size());
  EXPECT_TRUE(std::equal(tail.rbegin(), tail.rend(), open.rbegin()));
  const auto closed = prompt_of(R"(,"add_generation_prompt":false)");
  EXPECT_GT(closed.size(), open.size());
  EXPECT_EQ(std::count(closed.begin(), closed.end(), canary_id("<|im_start|>")), 2);
  const auto next = prompt_of("");
  EXPECT_EQ(std::count(next.begin(), next.end(), canary_id("<|im_start|>")), 3);
}

TEST_F(Endpoints, ignored_fields_are_named) {
  service_->options.unknown_fields = "report";
  const auto e = chat(R"("foo":1,"bär":2)");
  EXPECT_EQ(e->head.status, 200);
  EXPECT_EQ(e->header("X-Tutti-Ignored"), "foo, b??r");
}

TEST_F(Endpoints, requests_are_counted) {
  chat();
  chat(R"("foo":1)");
  send("GET", "/nope/secret");
  const std::string text = send("GET", "/metrics")->body;
  EXPECT_NE(text.find(R"(path="/v1/chat/completions")"), std::string::npos);
  EXPECT_EQ(text.find("secret"), std::string::npos);
  EXPECT_NE(text.find("unknown_parameter"), std::string::npos);
}

TEST_F(Endpoints, seeds_and_choices_reach_the_engine) {
  chat(R"("seed":7,"n":3,"priority":-2,"temperature":0.3)");
  const auto& s = backend_->submissions[0];
  EXPECT_EQ(s.sampling.seed, 7u);
  EXPECT_EQ(s.choices, 3);
  EXPECT_EQ(s.priority, -2);
  EXPECT_FLOAT_EQ(s.sampling.temperature, 0.3f);
}

}  // namespace
}  // namespace tutti::api
