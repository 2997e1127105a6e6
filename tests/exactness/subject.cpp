#include "exactness/subject.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <list>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>

#include "base/thread_pool.h"
#include "run/fake_model.h"

namespace tutti::exactness {

namespace {

const std::filesystem::path kSource = TUTTI_SOURCE_DIR;

std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("can't read " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

// The halves of the draft head's first matrix change places: it guesses, and badly.
void spoil_head(std::string& safetensors) {
  uint64_t header = 0;
  std::memcpy(&header, safetensors.data(), sizeof header);
  const auto json = nlohmann::json::parse(safetensors.substr(8, header));
  const auto offsets = json.at("mtp.fc.weight").at("data_offsets");
  const auto begin = safetensors.begin() + static_cast<std::ptrdiff_t>(8 + header + offsets[0].get<uint64_t>());
  const auto end = safetensors.begin() + static_cast<std::ptrdiff_t>(8 + header + offsets[1].get<uint64_t>());
  std::rotate(begin, begin + (end - begin) / 2, end);
}

std::shared_ptr<const weights::Checkpoint> canary_with_a_bad_head() {
  static std::list<std::string> contents;  // lives as long as the checkpoint
  std::vector<weights::NamedBytes> files;
  for (const auto& file : std::filesystem::directory_iterator(kSource / "models/canary")) {
    contents.push_back(file_bytes(file.path()));
    if (file.path().filename() == "model.safetensors") spoil_head(contents.back());
    files.push_back({file.path().filename(), std::as_bytes(std::span(contents.back()))});
  }
  return weights::Checkpoint::from_memory("canary-bad-head", std::move(files));
}

std::vector<std::vector<TokenId>> canary_texts() {
  const auto all = nlohmann::json::parse(file_bytes(kSource / "tests/canary/reference.json")).at("references");
  std::vector<std::vector<TokenId>> texts;
  for (const auto& one : all) {
    auto ids = one.at("prompt_ids").get<std::vector<TokenId>>();
    if (ids.size() < 400) texts.push_back(std::move(ids));
  }
  return texts;
}

Subject load(const std::string& name, const std::shared_ptr<const weights::Checkpoint>& checkpoint, bool float32) {
  static ThreadPool pool(1);
  Subject made{.name = name};
  made.numerics.float32 = float32;
  if (float32) made.numerics.kv = kernels::KvType::float32;
  made.model = model::load(checkpoint, {.numerics = made.numerics, .drafts = true, .pool = &pool});
  return made;
}

Subject golden(const std::string& name, const char* folder, bool float32 = false) {
  return load(name, weights::Checkpoint::open(kSource / "tests/golden" / folder), float32);
}

const std::map<std::string, std::function<Subject(const std::string&)>>& makers() {
  static const std::map<std::string, std::function<Subject(const std::string&)>> all = {
      {"fake",
       [](const std::string& name) {
         return Subject{.name = name, .model = std::make_shared<test::FakeModel>(true), .fake = true};
       }},
      {"canary",
       [](const std::string& name) {
         Subject made = load(name, weights::Checkpoint::open(kSource / "models/canary"), false);
         made.texts = canary_texts();
         return made;
       }},
      {"canary-bad-head",
       [](const std::string& name) {
         Subject made = load(name, canary_with_a_bad_head(), false);
         made.texts = canary_texts();
         return made;
       }},
      {"dense", [](const std::string& name) { return golden(name, "dense"); }},
      {"dense-float32", [](const std::string& name) { return golden(name, "dense", true); }},
      {"moe", [](const std::string& name) { return golden(name, "moe"); }},
      {"dense-affine8", [](const std::string& name) { return golden(name, "quant/dense-affine8-g32"); }},
      {"moe-affine4", [](const std::string& name) { return golden(name, "quant/moe-affine4-g32"); }},
      {"realdims-affine4", [](const std::string& name) { return golden(name, "quant/realdims-affine4-g64"); }},
  };
  return all;
}

}  // namespace

std::unique_ptr<cache::CacheStore> Subject::make_store(int blocks, int slots) const {
  if (fake) return std::make_unique<test::FakeStore>(blocks, slots);
  return cache::make_store(model->cache_specs(), blocks, slots, numerics);
}

const Subject& subject(const std::string& name) {
  static std::map<std::string, Subject> made;
  const auto it = made.find(name);
  return it != made.end() ? it->second : made.emplace(name, makers().at(name)(name)).first->second;
}

std::vector<std::string> subject_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : makers()) names.push_back(name);
  return names;
}

}  // namespace tutti::exactness
