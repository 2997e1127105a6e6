// round_bf16 and quantize_int8 (reference/matmul.h has the rule). Needs Vec and from the ISA
//   uint32_t max_magnitude(x, n)                 largest |x| as bits: infinities and NaN come out as >= 0x7f800000
//   int round_int8(x, n, Vec inverse, int8_t* q) q = x * inverse rounded half to even; returns Σ q
// n is a multiple of 32.

void round_bf16(const float* x, int64_t n, float* y) noexcept {
  bf16 narrow[Vec::kWidth];
  int64_t i = 0;
  for (; i + Vec::kWidth <= n; i += Vec::kWidth) {
    Vec::load(x + i).store_bf16(narrow);
    Vec::load_bf16(narrow).store(y + i);
  }
  for (; i < n; ++i) {
    Vec::broadcast(x[i]).store_bf16(narrow);
    Vec::load_bf16(narrow).store_partial(y + i, 1);
  }
}

void quantize_int8(const float* x, int M, int K, int group, int8_t* q, float* scale, float* sum) noexcept {
  constexpr uint32_t kInfinity = 0x7f800000u, kQuietNan = 0x7fc00000u;
  const int64_t groups = static_cast<int64_t>(M) * (K / group);
  for (int64_t g = 0; g < groups; ++g, x += group, q += group) {
    const uint32_t bits = max_magnitude(x, group);
    float max;
    std::memcpy(&max, &bits, sizeof max);
    if (bits >= kInfinity || max < reference::kSmallestGroup) {
      std::memset(q, 0, static_cast<size_t>(group));
      const uint32_t fill = bits >= kInfinity ? kQuietNan : 0;
      std::memcpy(scale + g, &fill, sizeof fill);
      std::memcpy(sum + g, &fill, sizeof fill);
      continue;
    }
    const int total = round_int8(x, group, Vec::broadcast(127.0f / max), q);
    scale[g] = max / 127.0f;
    sum[g] = scale[g] * static_cast<float>(total);
  }
}
