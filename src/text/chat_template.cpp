#include "text/chat_template.h"

#include <algorithm>

#include "base/error.h"
#include "text/rust_abi.h"
#include "text/tokenizer_impl.h"

namespace tutti::text {

struct ChatTemplate::Impl {
  struct Free {
    void operator()(tutti_template* t) const { tutti_template_free(t); }
  };

  Result<Prompt, RenderError> render(const std::string& context_json, bool open) const;

  std::shared_ptr<const Tokenizer> tokenizer;
  const tutti_tokenizer* rust_tokenizer;
  std::unique_ptr<tutti_template, Free> rust;
  std::vector<std::string> variables;
};

ChatTemplate::ChatTemplate(std::string source, std::shared_ptr<const Tokenizer> tokenizer, TemplateOptions options)
    : impl_(std::make_unique<Impl>()) {
  impl_->rust_tokenizer = tokenizer->impl_->rust.get();
  impl_->tokenizer = std::move(tokenizer);
  RustBytes error, names;
  impl_->rust.reset(tutti_template_new(bytes_of(source), source.size(), impl_->rust_tokenizer,
                                       options.special_tokens_in_text, error.out()));
  if (!impl_->rust || !tutti_template_variables(impl_->rust.get(), names.out(), error.out())) {
    throw LoadError("chat template: " + error.str());
  }
  std::string_view rest = names.view();
  while (!rest.empty()) {
    size_t end = std::min(rest.find('\n'), rest.size());
    impl_->variables.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

ChatTemplate::~ChatTemplate() = default;

Result<Prompt, RenderError> ChatTemplate::Impl::render(const std::string& context_json, bool open) const {
  RustIds ids;
  RustBytes text, error;
  tutti_prompt raw{};
  if (!tutti_template_render(rust.get(), rust_tokenizer, bytes_of(context_json), context_json.size(), open, &raw,
                             error.out())) {
    return RenderError{error.str()};
  }
  *ids.out() = raw.ids;
  *text.out() = raw.text;
  return Prompt{.ids = ids.vector(), .text = text.str(), .in_reasoning = raw.in_reasoning};
}

Result<Prompt, RenderError> ChatTemplate::render(const std::string& context_json) const {
  return impl_->render(context_json, false);
}

Result<Prompt, RenderError> ChatTemplate::render_open(const std::string& context_json) const {
  return impl_->render(context_json, true);
}

bool ChatTemplate::accepts_late_system() const {
  return tutti_template_accepts_late_system(impl_->rust.get());
}

const std::vector<std::string>& ChatTemplate::variables() const {
  return impl_->variables;
}

bool ChatTemplate::reads(std::string_view variable) const {
  return std::find(impl_->variables.begin(), impl_->variables.end(), variable) != impl_->variables.end();
}

}  // namespace tutti::text
