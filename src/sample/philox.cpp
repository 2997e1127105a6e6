#include "sample/philox.h"

#include "sample/sampler.h"

namespace tutti::sample {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

constexpr uint32_t low(uint64_t x) {
  return static_cast<uint32_t>(x);
}
constexpr uint32_t high(uint64_t x) {
  return static_cast<uint32_t>(x >> 32);
}

}  // namespace

PhiloxCounter philox4x32_10(PhiloxCounter c, PhiloxKey key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * c[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * c[2];
    c = {high(product1) ^ c[1] ^ key[0], low(product1), high(product0) ^ c[3] ^ key[1], low(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return c;
}

double uniform(uint64_t seed, uint32_t choice, uint64_t position, Purpose purpose) {
  const PhiloxCounter words =
      philox4x32_10({low(position), high(position), choice, static_cast<uint32_t>(purpose)}, {low(seed), high(seed)});
  const uint64_t bits = uint64_t{words[1]} << 32 | words[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace tutti::sample
