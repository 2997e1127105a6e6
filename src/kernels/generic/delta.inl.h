// The gated delta rule and what feeds it (spec/model.md 6.3, 6.4).

// y = silu(((w0 c0 + w1 c1) + w2 c2) + w3 u), then the window moves on by one input.
TUTTI_INLINE Vec conv_step(Vec (&c)[3], Vec u, const Vec (&w)[4]) {
  const Vec y = fma(w[3], u, fma(w[2], c[2], fma(w[1], c[1], mul(w[0], c[0]))));
  c[0] = c[1];
  c[1] = c[2];
  c[2] = u;
  return silu(y);
}

// N vectors of channels side by side, so that a token costs few pages.
template <int N>
TUTTI_INLINE void conv_channels(const float* u, int64_t u_stride, int n, int C, const float* w, float* window,
                                float* y) {
  Vec taps[N][4], c[N][3];
  TUTTI_UNROLL
  for (int v = 0; v < N; ++v) {
    const int at = v * Vec::kWidth;
    for (int j = 0; j < 4; ++j) taps[v][j] = Vec::load(w + static_cast<int64_t>(j) * C + at);
    for (int j = 0; j < 3; ++j) c[v][j] = Vec::load(window + static_cast<int64_t>(j) * C + at);
  }
  for (int t = 0; t < n; ++t, u += u_stride, y += C) {
    TUTTI_UNROLL
    for (int v = 0; v < N; ++v) {
      conv_step(c[v], Vec::load(u + v * Vec::kWidth), taps[v]).store(y + v * Vec::kWidth);
    }
  }
  TUTTI_UNROLL
  for (int v = 0; v < N; ++v) {
    for (int j = 0; j < 3; ++j) c[v][j].store(window + static_cast<int64_t>(j) * C + v * Vec::kWidth);
  }
}

inline void conv_channels_partial(const float* u, int64_t u_stride, int n, int C, const float* w, float* window,
                                  float* y, int lanes) {
  Vec taps[4], c[3];
  for (int j = 0; j < 4; ++j) taps[j] = Vec::load_partial(w + static_cast<int64_t>(j) * C, lanes);
  for (int j = 0; j < 3; ++j) c[j] = Vec::load_partial(window + static_cast<int64_t>(j) * C, lanes);
  for (int t = 0; t < n; ++t, u += u_stride, y += C) {
    conv_step(c, Vec::load_partial(u, lanes), taps).store_partial(y, lanes);
  }
  for (int j = 0; j < 3; ++j) c[j].store_partial(window + static_cast<int64_t>(j) * C, lanes);
}

void conv_silu(const float* u, int64_t u_stride, int n, int C, const float* w, float* window, float* y, int begin,
               int end) noexcept {
  int i = begin;
  for (; i + 2 * Vec::kWidth <= end; i += 2 * Vec::kWidth) {
    conv_channels<2>(u + i, u_stride, n, C, w + i, window + i, y + i);
  }
  for (; i + Vec::kWidth <= end; i += Vec::kWidth) {
    conv_channels<1>(u + i, u_stride, n, C, w + i, window + i, y + i);
  }
  if (i < end) conv_channels_partial(u + i, u_stride, n, C, w + i, window + i, y + i, end - i);
}

void delta_gates(const float* a, const float* b, const float* A_log, const float* dt_bias, int Hv, float* decay,
                 float* beta) noexcept {
  for (int i = 0; i < Hv; i += Vec::kWidth) {
    const int n = Hv - i < Vec::kWidth ? Hv - i : Vec::kWidth;
    const Vec rate = exp(Vec::load_partial(A_log + i, n));
    const Vec step = softplus(add(Vec::load_partial(a + i, n), Vec::load_partial(dt_bias + i, n)));
    const Vec keep = exp(sub(Vec::zero(), mul(rate, step)));
    const Vec write = sigmoid(Vec::load_partial(b + i, n));
    keep.store_partial(decay + i, n);
    write.store_partial(beta + i, n);
  }
}

// A column vector of the state: Dk rows, kStateStride floats apart.
inline constexpr int kStateStride = 16;

// Sums over the Dk rows run through two accumulators, even rows and odd rows: one is too few to hide the latency.
template <int N>
struct ColumnSum {
  Vec half[2][N];

  TUTTI_INLINE void clear() {
    TUTTI_UNROLL
    for (int v = 0; v < N; ++v) half[0][v] = half[1][v] = Vec::zero();
  }
  TUTTI_INLINE Vec total(int v) const { return add(half[0][v], half[1][v]); }
  TUTTI_INLINE void add_row(int parity, float factor, const Vec (&row)[N]) {
    const Vec f = pinned(Vec::broadcast(factor));
    TUTTI_UNROLL
    for (int v = 0; v < N; ++v) half[parity][v] = fma(f, row[v], half[parity][v]);
  }
};

// sum = kᵀ S.
template <int N>
TUTTI_INLINE void delta_predict(const float* k, int Dk, float* const (&s)[N], ColumnSum<N>& sum) {
  sum.clear();
  for (int i = 0; i < Dk; i += 2) {
    TUTTI_UNROLL
    for (int parity = 0; parity < 2; ++parity) {
      Vec row[N];
      TUTTI_UNROLL
      for (int v = 0; v < N; ++v) row[v] = Vec::load(s[v] + (i + parity) * kStateStride);
      sum.add_row(parity, k[i + parity], row);
    }
  }
}

struct DeltaToken {
  const float* k;
  const float* q;
  const float* next_k;  // of the token after this one, null for the last
  float decay;
};

// S = decay S + k uᵀ; out = qᵀ S; and, where there is a next token, next = next_kᵀ S: its prediction needs no pass of
// its own.
template <int N, bool kNext>
TUTTI_INLINE void delta_update(const DeltaToken& token, int Dk, float* const (&s)[N], const Vec (&u)[N],
                               ColumnSum<N>& out, ColumnSum<N>& next) {
  const Vec decay = Vec::broadcast(token.decay);
  out.clear();
  if constexpr (kNext) next.clear();
  for (int i = 0; i < Dk; i += 2) {
    TUTTI_UNROLL
    for (int parity = 0; parity < 2; ++parity) {
      const int at = (i + parity) * kStateStride;
      Vec row[N];
      // All loads before the stores: tiles lie multiples of 4096 bytes apart, where a load seems to depend on a store.
      TUTTI_UNROLL
      for (int v = 0; v < N; ++v) row[v] = mul(decay, Vec::load(s[v] + at));
      const Vec k = pinned(Vec::broadcast(token.k[i + parity]));
      TUTTI_UNROLL
      for (int v = 0; v < N; ++v) {
        row[v] = fma(k, u[v], row[v]);
        row[v].store(s[v] + at);
      }
      out.add_row(parity, token.q[i + parity], row);
      if constexpr (kNext) next.add_row(parity, token.next_k[i + parity], row);
    }
  }
}

// N column vectors from column `first` on, all tokens. lanes: columns of the last vector that exist.
template <int N>
inline void delta_columns(const DeltaArgs& args, int first, int lanes) {
  float* s[N];
  for (int v = 0; v < N; ++v) {
    const int column = first + v * Vec::kWidth;
    s[v] = args.state + static_cast<int64_t>(column / kStateStride) * args.Dk * kStateStride + column % kStateStride;
  }
  ColumnSum<N> predicted, out;
  delta_predict<N>(args.k, args.Dk, s, predicted);
  for (int t = 0; t < args.n; ++t) {
    const float* k = args.k + t * args.qk_stride;
    const DeltaToken token{k, args.q + t * args.qk_stride, k + args.qk_stride, args.decay[t * args.gate_stride]};
    const Vec decay = Vec::broadcast(token.decay), beta = Vec::broadcast(args.beta[t * args.gate_stride]);
    const float* value = args.v + t * args.v_stride + first;
    Vec u[N];
    TUTTI_UNROLL
    for (int v = 0; v < N; ++v) {
      const Vec x = v == N - 1 ? Vec::load_partial(value + v * Vec::kWidth, lanes) : Vec::load(value + v * Vec::kWidth);
      u[v] = mul(beta, sub(x, mul(decay, predicted.total(v))));
    }
    if (t + 1 < args.n) {
      delta_update<N, true>(token, args.Dk, s, u, out, predicted);
    } else {
      delta_update<N, false>(token, args.Dk, s, u, out, predicted);
    }
    float* o = args.o + t * args.o_stride + first;
    TUTTI_UNROLL
    for (int v = 0; v < N; ++v) {
      if (v == N - 1) {
        out.total(v).store_partial(o + v * Vec::kWidth, lanes);
      } else {
        out.total(v).store(o + v * Vec::kWidth);
      }
    }
  }
}

void delta_rule(const DeltaArgs& args) noexcept {
  constexpr int kTogether = Vec::kRegisters >= 32 ? 3 : 2;
  if (args.n <= 0) return;
  const int end = args.tile_end * kStateStride < args.Dv ? args.tile_end * kStateStride : args.Dv;
  int column = args.tile_begin * kStateStride;
  for (; column + kTogether * Vec::kWidth <= end; column += kTogether * Vec::kWidth) {
    delta_columns<kTogether>(args, column, Vec::kWidth);
  }
  if (kTogether == 3 && column + 2 * Vec::kWidth <= end) {
    delta_columns<2>(args, column, Vec::kWidth);
    column += 2 * Vec::kWidth;
  }
  for (; column < end; column += Vec::kWidth) {
    delta_columns<1>(args, column, end - column < Vec::kWidth ? end - column : Vec::kWidth);
  }
}
