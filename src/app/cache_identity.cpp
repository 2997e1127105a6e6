#include "app/cache_identity.h"

#include <fmt/format.h>
#include <mlx/version.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "base/error.h"

namespace tutti::app {
namespace {

std::string program() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.empty())
    throw OptionError("--prefix-cache-dir: can't read the program's own file, which entries depend on");
  return bytes;
}

// Libraries choose their kernels by it.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string found;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    if (line.starts_with("model") || line.starts_with("flags") || line.starts_with("CPU part")) found += line + "\n";
  }
  return found;
}

Digest256 digest_of(const std::string& name, const weights::Tensor& tensor) {
  std::string head = fmt::format("{} {} {}", name, tensor.stored_dtype, tensor.data.size());
  for (const int64_t extent : tensor.shape) head += fmt::format(" {}", extent);
  return Digester(Digester::Kind::blake2b).add(head).add(tensor.data.data(), tensor.data.size()).finish();
}

}  // namespace

Digest256 digest_of(const CacheIdentity& identity, ThreadPool& pool) {
  std::vector<const std::pair<const std::string, weights::Tensor>*> tensors;
  for (const auto& tensor : identity.checkpoint.tensors()) tensors.push_back(&tensor);
  std::vector<Digest256> digests(tensors.size());
  pool.run(static_cast<int>(tensors.size()), [&](int i, int) {
    const auto& [name, tensor] = *tensors[static_cast<size_t>(i)];
    digests[static_cast<size_t>(i)] = digest_of(name, tensor);
  });
  Digester all(Digester::Kind::blake2b);
  for (const Digest256& digest : digests) all.add(digest.data(), sizeof digest);
  const std::string& config = identity.checkpoint.config_json();
  const ops::Numerics& n = identity.numerics;
  return all.add(fmt::format("{} {}", config.size(), config))
      .add(fmt::format("{} {} {} {} {}\n", identity.isa, n.body == ops::Body::graph, n.float32,
                       n.kv == kernels::KvType::float32, identity.info.drafts))
      .add(fmt::format("{}\n{}", mlx::core::version(), processor()))
      .add(program())
      .finish();
}

}  // namespace tutti::app
