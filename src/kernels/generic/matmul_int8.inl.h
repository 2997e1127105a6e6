// Affine codes times int8 inputs (reference/matmul.h has the rule). The integer sums of a group are exact, so how they
// are formed (VNNI, pairs in 16 bits, plain loops) can't change a bit. Needs matmul_common.inl.h and from the ISA
//
//   Sum                      int32 x kWidth; Vec to_float(Sum)
//   Vec fused(a, b, c)       a * b + c, rounded once
//   Dot<kBits>               kRows: the largest row tile; and
//     dot<MR>(codes, x, quads, sum): sum[i] = Σ codes x[i], code vectors 64 bytes apart, x[i] advancing 4 bytes each

// Up to kInt8FewRows rows: one pass over the weights per tile of rows, decoding a group at a time, so that reading,
// decoding and multiplying overlap. More rows: codes are decoded once for all rows of a block.
constexpr int kInt8FewRows = 16;
constexpr int kInt8RowBlock = 512;  // rows whose inputs of one K block stay in L2
constexpr int kInt8KBlock = 1024;   // decoded codes of one panel: 16 KiB, in L1 while the rows pass

// The inputs of one row from some group on, and its output.
struct Int8Row {
  const int8_t* q;
  const float* scale;
  const float* sum;
  float* y;
};

TUTTI_INLINE Int8Row int8_row(const MatmulArgs& args, int m, int group, int groups) {
  const int64_t row = input_row(args, m);
  return {args.in.q + row * args.in.K + group * args.in.group, args.in.scale + row * groups + group,
          args.in.sum + row * groups + group, args.y + m * args.y_stride};
}

// acc += what group g gives; x: inputs of the group.
template <int kBits, int MR>
TUTTI_INLINE void int8_group(const uint8_t* codes, const int8_t* const* x, int quads, Vec scale, Vec bias,
                             const Int8Row* rows, int g, Vec* acc) {
  Sum sum[MR];
  Dot<kBits>::template dot<MR>(codes, x, quads, sum);
  TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
    acc[i] = fused(mul(to_float(sum[i]), scale), Vec::broadcast(rows[i].scale[g]), acc[i]);
    acc[i] = fused(bias, Vec::broadcast(rows[i].sum[g]), acc[i]);
  }
}

// ---- few rows ----

// All panels of the call for rows [m, m + count); count <= MR, the tile is filled up with the last row.
template <int kBits, int kBase, int kExtra, int MR>
TUTTI_KERNEL void int8_few(const MatmulArgs& args, int m, int count) {
  const Matrix& w = *args.w;
  const int group = w.format.affine.group, groups = w.K / group, quads = group / 4;
  Int8Row rows[MR];
  TUTTI_UNROLL for (int i = 0; i < MR; ++i) rows[i] = int8_row(args, m + smaller(i, count - 1), 0, groups);
  alignas(64) uint8_t decoded[kBits == 8 ? 64 : 32 * 64];  // the largest group: 32 quads
  for (int panel = args.panel_begin; panel < args.panel_end; ++panel) {
    Vec acc[kParts][MR];
    const int8_t* x[MR];
    TUTTI_UNROLL for (int i = 0; i < MR; ++i) x[i] = rows[i].q;
    for (int part = 0; part < kParts; ++part) {
      TUTTI_UNROLL for (int i = 0; i < MR; ++i) acc[part][i] = Vec::zero();
    }
    PlanePointers p = planes_at<kBase, kExtra>(w, panel, 0);
    int64_t at = static_cast<int64_t>(panel) * groups * kPanel;
    for (int g = 0; g < groups; ++g, at += kPanel) {
      const uint8_t* codes = p.base;  // 8 bits lie as the products want them
      prefetch_scales(w, at);
      if constexpr (kBits != 8) {
        decode_codes<kBase, kExtra>(p.base, p.extra, quads, decoded);
        codes = decoded;
      }
      p.base += quads * kBase * 8;
      if constexpr (kExtra != 0) p.extra += quads * kExtra * 8;
      for (int part = 0; part < kParts; ++part) {
        const Vec scale = load_scale(w.scales, w.scale_float32, at + part * Vec::kWidth);
        const Vec bias = load_scale(w.biases, w.scale_float32, at + part * Vec::kWidth);
        int8_group<kBits, MR>(codes + part * Vec::kWidth * 4, x, quads, scale, bias, rows, g, acc[part]);
      }
      TUTTI_UNROLL for (int i = 0; i < MR; ++i) x[i] += group;
    }
    for (int part = 0; part < kParts; ++part) {
      const int n = panel * kPanel + part * Vec::kWidth;
      TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
        if (i < count) store_lanes(acc[part][i], rows[i].y + n, w.N - n);
      }
    }
  }
}

template <int kBits, int kBase, int kExtra, int MR>
TUTTI_INLINE void int8_few_rows(const MatmulArgs& args, int m, int count) {
  if constexpr (MR <= Dot<kBits>::kRows) int8_few<kBits, kBase, kExtra, MR>(args, m, count);
}

template <int kBits, int kBase, int kExtra>
TUTTI_KERNEL void matmul_few(const MatmulArgs& args) {
  for (int m = 0; m < args.M; m += Dot<kBits>::kRows) {
    const int count = smaller(Dot<kBits>::kRows, args.M - m);
    switch (count) {
      case 1:
        int8_few_rows<kBits, kBase, kExtra, 1>(args, m, count);
        break;
      case 2:
        int8_few_rows<kBits, kBase, kExtra, 2>(args, m, count);
        break;
      case 3:
        int8_few_rows<kBits, kBase, kExtra, 3>(args, m, count);
        break;
      case 4:
        int8_few_rows<kBits, kBase, kExtra, 4>(args, m, count);
        break;
      case 5:
      case 6:
        int8_few_rows<kBits, kBase, kExtra, 6>(args, m, count);
        break;
      default:
        int8_few_rows<kBits, kBase, kExtra, 8>(args, m, count);
        break;
    }
  }
}

// ---- many rows ----

// Decoded groups [group, group + groups) of one register's columns [n, n + lanes).
struct Int8Tile {
  const MatmulArgs* args;
  const uint8_t* codes;
  const void* w_scale;  // of the first group and column, in the stored type
  const void* w_bias;
  int group, groups, all_groups;
  int n;
};

// Rows [m, m + MR). Blocks of K follow each other through y, which holds float32 exactly.
template <int kBits, int MR>
TUTTI_INLINE void int8_tile(const Int8Tile& t, int m) {
  Int8Row rows[MR];
  Vec acc[MR];
  const int8_t* x[MR];
  const int lanes = t.args->w->N - t.n;
  TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
    rows[i] = int8_row(*t.args, m + i, t.group, t.all_groups);
    rows[i].y += t.n;
    x[i] = rows[i].q;
    acc[i] = t.group == 0 ? Vec::zero() : load_lanes(rows[i].y, lanes);
  }
  const bool float32 = t.args->w->scale_float32;
  const int size = t.args->in.group, quads = size / 4;
  const uint8_t* codes = t.codes;
  for (int g = 0; g < t.groups; ++g, codes += quads * 64) {
    const Vec scale = load_scale(t.w_scale, float32, g * kPanel), bias = load_scale(t.w_bias, float32, g * kPanel);
    int8_group<kBits, MR>(codes, x, quads, scale, bias, rows, g, acc);
    TUTTI_UNROLL for (int i = 0; i < MR; ++i) x[i] += size;
  }
  TUTTI_UNROLL for (int i = 0; i < MR; ++i) store_lanes(acc[i], rows[i].y, lanes);
}

template <int kBits, int MR>
TUTTI_KERNEL void int8_rows(const Int8Tile& t, int m, int end) {
  for (; m < end; m += MR) int8_tile<kBits, MR>(t, m);
}

// The rows in tiles of MR, the rest in halves of it.
template <int kBits, int MR>
TUTTI_INLINE void int8_tiles(const Int8Tile& t, int m, int end) {
  const int whole = m + (end - m) / MR * MR;
  if (m != whole) int8_rows<kBits, MR>(t, m, whole);
  if constexpr (MR > 1) {
    if (whole != end) int8_tiles<kBits, MR / 2>(t, whole, end);
  }
}

template <int kBits, int kBase, int kExtra>
TUTTI_INLINE void int8_panel(const MatmulArgs& args, int panel, int m, int end) {
  const Matrix& w = *args.w;
  const int size = w.format.affine.group, groups = w.K / size;
  alignas(64) uint8_t decoded[kBits == 8 ? 64 : kInt8KBlock * kPanel];
  const int step = kInt8KBlock / size;
  const int64_t scale_bytes = w.scale_float32 ? 4 : 2;
  for (int g = 0; g < groups; g += step) {
    const int count = smaller(step, groups - g);
    const PlanePointers p = planes_at<kBase, kExtra>(w, panel, g * size);
    const uint8_t* codes = p.base;
    if constexpr (kBits != 8) {
      decode_codes<kBase, kExtra>(p.base, p.extra, count * size / 4, decoded);
      codes = decoded;
    }
    for (int part = 0; part < kParts; ++part) {
      const int n = panel * kPanel + part * Vec::kWidth;
      if (n >= w.N) break;
      const int64_t at = ((static_cast<int64_t>(panel) * groups + g) * kPanel + part * Vec::kWidth) * scale_bytes;
      const Int8Tile t{.args = &args,
                       .codes = codes + part * Vec::kWidth * 4,
                       .w_scale = static_cast<const uint8_t*>(w.scales) + at,
                       .w_bias = static_cast<const uint8_t*>(w.biases) + at,
                       .group = g,
                       .groups = count,
                       .all_groups = groups,
                       .n = n};
      int8_tiles<kBits, Dot<kBits>::kRows>(t, m, end);
    }
  }
}

template <int kBits, int kBase, int kExtra>
TUTTI_KERNEL void matmul_codes(const MatmulArgs& args) {
  if (args.M <= kInt8FewRows) return matmul_few<kBits, kBase, kExtra>(args);
  for (int m = 0; m < args.M; m += kInt8RowBlock) {
    for (int panel = args.panel_begin; panel < args.panel_end; ++panel) {
      int8_panel<kBits, kBase, kExtra>(args, panel, m, smaller(m + kInt8RowBlock, args.M));
    }
  }
}

void matmul_affine_int8(const MatmulArgs& args) noexcept {
  switch (args.w->format.affine.bits) {
    case 2:
      return matmul_codes<2, 2, 0>(args);
    case 3:
      return matmul_codes<3, 2, 1>(args);
    case 4:
      return matmul_codes<4, 4, 0>(args);
    case 5:
      return matmul_codes<5, 4, 1>(args);
    case 6:
      return matmul_codes<6, 4, 2>(args);
    default:
      return matmul_codes<8, 8, 0>(args);
  }
}
