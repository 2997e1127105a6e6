#include "app/canary.h"

#include <string_view>

// Symbols of the assembler file that cmake/canary.cmake writes.
#define TUTTI_EMBEDDED(id)                        \
  extern "C" const std::byte tutti_canary_##id[]; \
  extern "C" const std::byte tutti_canary_##id##_end[];
TUTTI_EMBEDDED(config_json)
TUTTI_EMBEDDED(generation_config_json)
TUTTI_EMBEDDED(tokenizer_json)
TUTTI_EMBEDDED(tokenizer_config_json)
TUTTI_EMBEDDED(chat_template_jinja)
TUTTI_EMBEDDED(model_safetensors)
#undef TUTTI_EMBEDDED

namespace tutti::app {
namespace {

std::span<const std::byte> between(const std::byte* begin, const std::byte* end) {
  return {begin, end};
}

}  // namespace

std::shared_ptr<const weights::Checkpoint> open_canary() {
  std::vector<weights::NamedBytes> files = {
      {"config.json", between(tutti_canary_config_json, tutti_canary_config_json_end)},
      {"generation_config.json", between(tutti_canary_generation_config_json, tutti_canary_generation_config_json_end)},
      {"tokenizer.json", between(tutti_canary_tokenizer_json, tutti_canary_tokenizer_json_end)},
      {"tokenizer_config.json", between(tutti_canary_tokenizer_config_json, tutti_canary_tokenizer_config_json_end)},
      {"chat_template.jinja", between(tutti_canary_chat_template_jinja, tutti_canary_chat_template_jinja_end)},
      {"model.safetensors", between(tutti_canary_model_safetensors, tutti_canary_model_safetensors_end)},
  };
  return weights::Checkpoint::from_memory("canary", std::move(files));
}

std::string canary_chat_template() {
  const auto bytes = between(tutti_canary_chat_template_jinja, tutti_canary_chat_template_jinja_end);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace tutti::app
