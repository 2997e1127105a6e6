// Products with float inputs: acc = fma(x[k], w[k], acc) for k in order, one accumulator per output, whatever the tile.
// Blocking over K goes through y, which holds float32 exactly. Needs matmul_common.inl.h and Bf16Pairs of the ISA.
//
// FloatShape<rows>: panels that a tile of so many input rows takes at once. With few rows that is what hides the
// latency of the FMA; kFloatRows is the largest tile.

constexpr int kFloatRowBlock = 128;  // rows whose inputs of one K block stay in L2
constexpr int kFloatKBlock = 512;

struct FloatPairs {
  using Value = float;
  static constexpr int kPartStride = Vec::kWidth;
  static TUTTI_INLINE void load(const float* p, Vec& even, Vec& odd) {
    even = Vec::load(p);
    odd = Vec::load(p + kPanel);
  }
};

constexpr int kPairStride = 2 * kPanel;  // values of one pair of k in a panel, in both formats

// What a tile works on: panels at w, w + panel_stride, …; k columns of x; output columns at y.
template <class Source>
struct FloatTile {
  const typename Source::Value* w;
  int64_t panel_stride;
  int k;
  int columns;  // valid output columns from the first panel on
  bool first;   // start from zero, not from y
};

template <class Source, int MR, int NP>
TUTTI_INLINE void float_tile(const FloatTile<Source>& t, const float* const* rows, float* const* outputs) {
  constexpr int kColumns = NP * kParts;
  Vec acc[MR][kColumns];
  const float* x[MR];
  TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
    x[i] = rows[i];
    TUTTI_UNROLL for (int c = 0; c < kColumns; ++c) {
      acc[i][c] = t.first ? Vec::zero() : load_lanes(outputs[i] + c * Vec::kWidth, t.columns - c * Vec::kWidth);
    }
  }
  const typename Source::Value* w = t.w;
  const int paired = t.k & ~1;
  for (int k = 0; k < paired; k += 2, w += kPairStride) {
    Vec even[kColumns], odd[kColumns];
    TUTTI_UNROLL for (int c = 0; c < kColumns; ++c) {
      Source::load(w + c / kParts * t.panel_stride + c % kParts * Source::kPartStride, even[c], odd[c]);
    }
    TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
      const Vec a = Vec::broadcast(x[i][k]);
      TUTTI_UNROLL for (int c = 0; c < kColumns; ++c) acc[i][c] = fma(a, even[c], acc[i][c]);
    }
    TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
      const Vec a = Vec::broadcast(x[i][k + 1]);
      TUTTI_UNROLL for (int c = 0; c < kColumns; ++c) acc[i][c] = fma(a, odd[c], acc[i][c]);
    }
  }
  if (paired != t.k) {
    TUTTI_UNROLL for (int c = 0; c < kColumns; ++c) {
      Vec even, odd;
      Source::load(w + c / kParts * t.panel_stride + c % kParts * Source::kPartStride, even, odd);
      TUTTI_UNROLL for (int i = 0; i < MR; ++i) acc[i][c] = fma(Vec::broadcast(x[i][paired]), even, acc[i][c]);
    }
  }
  TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
    TUTTI_UNROLL for (int c = 0; c < kColumns; ++c) {
      store_lanes(acc[i][c], outputs[i] + c * Vec::kWidth, t.columns - c * Vec::kWidth);
    }
  }
}

// A block of a product: input rows [m, m + rows), k [k, k + t.k), panels from `panel` on; t.w is that of the first.
struct FloatBlock {
  const MatmulArgs* args;
  int m, rows;
  int k;
  int panel, panels;
};

template <class Source, int MR, int NP>
TUTTI_INLINE void float_rows(const FloatTile<Source>& t, const FloatBlock& b, int m, int panel) {
  const float* rows[MR];
  float* outputs[MR];
  for (int i = 0; i < MR; ++i) {
    rows[i] = b.args->in.x + input_row(*b.args, m + i) * b.args->in.K + b.k;
    outputs[i] = b.args->y + (m + i) * b.args->y_stride + panel * kPanel;
  }
  FloatTile<Source> at = t;
  at.w += (panel - b.panel) * t.panel_stride;
  at.columns = b.args->w->N - panel * kPanel;
  float_tile<Source, MR, NP>(at, rows, outputs);
}

// Row tiles of MR from m on, `count` rows in all, over the panels from `panel` on: NP at a time, the rest in halves of
// it.
template <class Source, int MR, int NP>
TUTTI_KERNEL void float_panels(const FloatTile<Source>& t, const FloatBlock& b, int m, int count, int panel) {
  const int end = b.panel + b.panels;
  for (; panel + NP <= end; panel += NP) {
    for (int i = 0; i < count; i += MR) float_rows<Source, MR, NP>(t, b, m + i, panel);
  }
  if constexpr (NP > 1) {
    if (panel < end) float_panels<Source, MR, NP / 2>(t, b, m, count, panel);
  }
}

template <class Source, int MR>
void float_rest(const FloatTile<Source>& t, const FloatBlock& b, int m, int count) {
  if constexpr (MR > 0) {
    if (count == MR) {
      float_panels<Source, MR, kFloatPanels<MR>>(t, b, m, count, b.panel);
    } else {
      float_rest<Source, MR - 1>(t, b, m, count);
    }
  }
}

template <class Source>
void float_block(const FloatTile<Source>& t, const FloatBlock& b) {
  const int whole = b.rows / kFloatRows * kFloatRows;
  if (whole != 0) {
    float_panels<Source, kFloatRows, kFloatPanels<kFloatRows>>(t, b, b.m, whole, b.panel);
  }
  float_rest<Source, kFloatRows - 1>(t, b, b.m + whole, b.rows - whole);
}

template <class Source>
void matmul_float_as(const MatmulArgs& args) {
  const Matrix& w = *args.w;
  const int64_t panel_stride = static_cast<int64_t>((w.K + 1) / 2) * kPairStride;
  const auto* values = static_cast<const typename Source::Value*>(w.values);
  const int k_block = args.M <= kFloatRows ? w.K : kFloatKBlock;
  for (int m = 0; m < args.M; m += kFloatRowBlock) {
    for (int k = 0; k < w.K; k += k_block) {
      const FloatTile<Source> t{.w = values + args.panel_begin * panel_stride + static_cast<int64_t>(k) * kPanel,
                                .panel_stride = panel_stride,
                                .k = smaller(k_block, w.K - k),
                                .columns = 0,
                                .first = k == 0};
      float_block(t, {.args = &args,
                      .m = m,
                      .rows = smaller(kFloatRowBlock, args.M - m),
                      .k = k,
                      .panel = args.panel_begin,
                      .panels = args.panel_end - args.panel_begin});
    }
  }
}

void matmul_float(const MatmulArgs& args) noexcept {
  if (args.w->format.format == quant::Format::float32) {
    matmul_float_as<FloatPairs>(args);
  } else {
    matmul_float_as<Bf16Pairs>(args);
  }
}

// ---- affine weights with float inputs: panels are widened to float32, a block of K at a time ----

constexpr int kWidenPanels = 2;
constexpr int kWidenK = 256;

template <int kk>
TUTTI_INLINE void widen_quad(const uint8_t* codes, const Vec* scale, const Vec* bias, float* out) {
  for (int part = 0; part < kParts; ++part) {
    const Vec code = quad_floats<kk>(codes + part * Vec::kWidth * 4);
    add(mul(scale[part], code), bias[part]).store(out + kk * kPanel + part * Vec::kWidth);
  }
}

// out [k][16] = scale * code + bias for k columns of one panel.
template <int kBase, int kExtra>
TUTTI_INLINE void widen_panel(const Matrix& w, int panel, int k_begin, int k_count, float* out) {
  const int group = w.format.affine.group;
  alignas(64) uint8_t codes[8 * 64];
  for (int k = k_begin; k < k_begin + k_count; k += 32) {
    const PlanePointers p = planes_at<kBase, kExtra>(w, panel, k);
    decode_codes<kBase, kExtra>(p.base, p.extra, 8, codes);
    const int64_t at = (static_cast<int64_t>(panel) * (w.K / group) + k / group) * kPanel;
    Vec scale[kParts], bias[kParts];
    for (int part = 0; part < kParts; ++part) {
      scale[part] = load_scale(w.scales, w.scale_float32, at + part * Vec::kWidth);
      bias[part] = load_scale(w.biases, w.scale_float32, at + part * Vec::kWidth);
    }
    for (int q = 0; q < 8; ++q, out += 4 * kPanel) {
      widen_quad<0>(codes + q * 64, scale, bias, out);
      widen_quad<1>(codes + q * 64, scale, bias, out);
      widen_quad<2>(codes + q * 64, scale, bias, out);
      widen_quad<3>(codes + q * 64, scale, bias, out);
    }
  }
}

template <int kBase, int kExtra>
TUTTI_KERNEL void matmul_widened(const MatmulArgs& args) {
  const Matrix& w = *args.w;
  alignas(64) float wide[kWidenPanels * kWidenK * kPanel];
  for (int panel = args.panel_begin; panel < args.panel_end; panel += kWidenPanels) {
    const int panels = smaller(kWidenPanels, args.panel_end - panel);
    for (int k = 0; k < w.K; k += kWidenK) {
      const int count = smaller(kWidenK, w.K - k);
      for (int p = 0; p < panels; ++p) {
        widen_panel<kBase, kExtra>(w, panel + p, k, count, wide + p * kWidenK * kPanel);
      }
      const FloatTile<FloatPairs> t{
          .w = wide, .panel_stride = kWidenK * kPanel, .k = count, .columns = 0, .first = k == 0};
      float_block(t, {.args = &args, .m = 0, .rows = args.M, .k = k, .panel = panel, .panels = panels});
    }
  }
}

void matmul_affine_float(const MatmulArgs& args) noexcept {
  switch (args.w->format.affine.bits) {
    case 2:
      return matmul_widened<2, 0>(args);
    case 3:
      return matmul_widened<2, 1>(args);
    case 4:
      return matmul_widened<4, 0>(args);
    case 5:
      return matmul_widened<4, 1>(args);
    case 6:
      return matmul_widened<4, 2>(args);
    default:
      return matmul_widened<8, 0>(args);
  }
}
