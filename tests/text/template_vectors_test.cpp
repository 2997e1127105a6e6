// The interpreter against jinja2 as the reference uses it: every output of template_vectors.json was rendered by it
// (tools/make_text_vectors.py).
#include "base/error.h"
#include "text/text_fixture.h"

namespace tutti::text {
namespace {

const Json& vectors() {
  static const Json v = Json::parse(source_file("tests/text/template_vectors.json"));
  return v;
}

std::string rendered(const Json& c) {
  std::string source = vectors()["templates"][c["template"].get<size_t>()];
  const Json& context = c.contains("context") ? c["context"] : vectors()["values"];
  try {
    return render_text(ChatTemplate(source, canary_tokenizer(), {.special_tokens_in_text = true}), context);
  } catch (const LoadError& e) {
    return e.what();
  }
}

TEST(TemplateVectors, OutputsEqualJinja2) {
  for (const Json& c : vectors()["cases"]) {
    if (c.contains("error")) continue;
    EXPECT_EQ(rendered(c), c["output"].get<std::string>()) << vectors()["templates"][c["template"].get<size_t>()];
  }
}

TEST(TemplateVectors, WhatTheTemplateRaisesIsTheError) {
  int raised = 0;
  for (const Json& c : vectors()["cases"]) {
    if (!c.contains("error") || c["error"] == "'nope' is undefined") continue;
    EXPECT_EQ(rendered(c), "error: " + c["error"].get<std::string>());
    ++raised;
  }
  EXPECT_GE(raised, 8);
}

}  // namespace
}  // namespace tutti::text
