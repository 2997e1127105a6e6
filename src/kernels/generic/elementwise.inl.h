// Elementwise kernels: vectors, then a partial vector with the same instructions.

TUTTI_INLINE Vec silu_times(Vec gate, Vec up) {
  return mul(silu(gate), up);
}
TUTTI_INLINE Vec times_sigmoid(Vec x, Vec gate) {
  return mul(x, sigmoid(gate));
}

void silu_mul(const float* gate, const float* up, int64_t n, float* y) noexcept {
  int64_t i = 0;
  for (; i + Vec::kWidth <= n; i += Vec::kWidth) silu_times(Vec::load(gate + i), Vec::load(up + i)).store(y + i);
  const int left = static_cast<int>(n - i);
  if (left > 0) {
    silu_times(Vec::load_partial(gate + i, left), Vec::load_partial(up + i, left)).store_partial(y + i, left);
  }
}

void sigmoid_mul(const float* x, const float* gate, int64_t n, float* y) noexcept {
  int64_t i = 0;
  for (; i + Vec::kWidth <= n; i += Vec::kWidth) times_sigmoid(Vec::load(x + i), Vec::load(gate + i)).store(y + i);
  const int left = static_cast<int>(n - i);
  if (left > 0) {
    times_sigmoid(Vec::load_partial(x + i, left), Vec::load_partial(gate + i, left)).store_partial(y + i, left);
  }
}

void add_scaled(const float* x, float a, int64_t n, float* y) noexcept {
  const Vec factor = Vec::broadcast(a);
  int64_t i = 0;
  for (; i + Vec::kWidth <= n; i += Vec::kWidth) fma(Vec::load(x + i), factor, Vec::load(y + i)).store(y + i);
  const int left = static_cast<int>(n - i);
  if (left > 0) {
    fma(Vec::load_partial(x + i, left), factor, Vec::load_partial(y + i, left)).store_partial(y + i, left);
  }
}
