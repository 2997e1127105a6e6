// Norms over rows. The sum of squares of a row runs through four accumulators in an order fixed by the row's length.

inline float sum_of_squares(const float* x, int n) {
  Vec sum[4] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
  int i = 0;
  for (; i + 4 * Vec::kWidth <= n; i += 4 * Vec::kWidth) {
    TUTTI_UNROLL
    for (int j = 0; j < 4; ++j) {
      const Vec v = Vec::load(x + i + j * Vec::kWidth);
      sum[j] = fma(v, v, sum[j]);
    }
  }
  for (; i + Vec::kWidth <= n; i += Vec::kWidth) {
    const Vec v = Vec::load(x + i);
    sum[0] = fma(v, v, sum[0]);
  }
  if (i < n) {
    const Vec v = Vec::load_partial(x + i, n - i);
    sum[0] = fma(v, v, sum[0]);
  }
  return reduce_add(add(add(sum[0], sum[1]), add(sum[2], sum[3])));
}

inline float inverse_rms(const float* x, int n, float eps) {
  return 1.0f / std::sqrt(sum_of_squares(x, n) / static_cast<float>(n) + eps);
}

void rms_norm(const float* x, const float* gamma, float eps, int rows, int H, float* y) noexcept {
  for (int r = 0; r < rows; ++r, x += H, y += H) {
    const Vec factor = Vec::broadcast(inverse_rms(x, H, eps));
    int i = 0;
    for (; i + Vec::kWidth <= H; i += Vec::kWidth)
      mul(mul(Vec::load(x + i), factor), Vec::load(gamma + i)).store(y + i);
    if (i < H) {
      const int n = H - i;
      mul(mul(Vec::load_partial(x + i, n), factor), Vec::load_partial(gamma + i, n)).store_partial(y + i, n);
    }
  }
}

TUTTI_INLINE Vec gated(Vec o, Vec factor, Vec gamma, Vec z) {
  return mul(mul(mul(o, factor), gamma), silu(z));
}

void gated_rms_norm(const float* o, const float* z, const float* gamma, float eps, int rows, int D, float* y) noexcept {
  for (int r = 0; r < rows; ++r, o += D, z += D, y += D) {
    const Vec factor = Vec::broadcast(inverse_rms(o, D, eps));
    int i = 0;
    for (; i + Vec::kWidth <= D; i += Vec::kWidth) {
      gated(Vec::load(o + i), factor, Vec::load(gamma + i), Vec::load(z + i)).store(y + i);
    }
    if (i < D) {
      const int n = D - i;
      gated(Vec::load_partial(o + i, n), factor, Vec::load_partial(gamma + i, n), Vec::load_partial(z + i, n))
          .store_partial(y + i, n);
    }
  }
}

void l2_norm(float* x, int64_t stride, int rows, int D, float scale) noexcept {
  for (int r = 0; r < rows; ++r, x += stride) {
    const Vec factor = Vec::broadcast(1.0f / std::sqrt(sum_of_squares(x, D) + 1e-6f) * scale);
    int i = 0;
    for (; i + Vec::kWidth <= D; i += Vec::kWidth) mul(Vec::load(x + i), factor).store(x + i);
    if (i < D) mul(Vec::load_partial(x + i, D - i), factor).store_partial(x + i, D - i);
  }
}
