// The canary's tokenizer and template, and a service made of them.
#pragma once

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "api/service.h"

namespace tutti::api {

inline std::string canary_file(const std::string& name) {
  std::ifstream file(std::string(TUTTI_SOURCE_DIR) + "/models/canary/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::shared_ptr<const text::Tokenizer> canary_tokenizer() {
  static const auto tokenizer =
      std::make_shared<const text::Tokenizer>(canary_file("tokenizer.json"), canary_file("tokenizer_config.json"));
  return tokenizer;
}

inline TokenId canary_id(std::string_view added) {
  return canary_tokenizer()->id_of(added).value();
}

inline std::shared_ptr<Service> canary_service(TaskPool* tasks) {
  static const auto chat_template = std::make_shared<const text::ChatTemplate>(
      canary_file("chat_template.jinja"), canary_tokenizer(), text::TemplateOptions{});
  auto service = std::make_shared<Service>();
  service->options.served_model_names = {"canary", "team/other"};
  service->tokenizer = canary_tokenizer();
  service->chat_template = chat_template;
  service->tasks = tasks;
  service->end_ids = {canary_id("<|im_end|>"), canary_id("<|endoftext|>")};
  service->max_model_len = 512;
  service->vocab = canary_tokenizer()->vocab();
  service->version_json = R"({"version":"test"})";
  service->system_fingerprint = "tt-test";
  service->started_unix = 1700000000;
  return service;
}

}  // namespace tutti::api
