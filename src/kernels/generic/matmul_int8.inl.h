// Affine codes times int8 inputs (reference/matmul.h has the rule). The integer sums of a group are exact, so how they
// are formed (VNNI, pairs in 16 bits, plain loops) can't change a bit. Needs matmul_common.inl.h and from the ISA
//
//   Sum                      int32 x kWidth; Vec to_float(Sum)
//   Vec fused(a, b, c)       a * b + c, rounded once
//   Dot<kBits>               kRows: the largest row tile; and
//     dot<MR>(codes, x, quads, sum): sum[i] = Σ codes x[i], code vectors 64 bytes apart, x[i] advancing 4 bytes each

constexpr int kInt8RowBlock = 512;  // rows whose inputs of one K block stay in L2
constexpr int kInt8KBlock = 1024;   // decoded codes of one panel: 16 KiB, in L1 while the rows pass

// `groups` groups of one register's columns.
struct Int8Tile {
  const uint8_t* codes;
  int group, groups;
  const void* w_scale;  // of the first group and column, in the stored type
  const void* w_bias;
  bool scale_float32;
  int lanes;   // valid output columns
  bool first;  // start from zero, not from y
};

struct Int8Row {
  const int8_t* q;
  const float* scale;
  const float* sum;
  float* y;
};

template <int kBits, int MR>
TUTTI_INLINE void int8_tile(const Int8Tile& t, const Int8Row* rows) {
  Vec acc[MR];
  const int8_t* x[MR];
  TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
    x[i] = rows[i].q;
    acc[i] = t.first ? Vec::zero() : load_lanes(rows[i].y, t.lanes);
  }
  const uint8_t* codes = t.codes;
  const int quads = t.group / 4;
  for (int g = 0; g < t.groups; ++g, codes += quads * 64) {
    Sum sum[MR];
    Dot<kBits>::template dot<MR>(codes, x, quads, sum);
    const Vec scale = load_scale(t.w_scale, t.scale_float32, g * kPanel);
    const Vec bias = load_scale(t.w_bias, t.scale_float32, g * kPanel);
    TUTTI_UNROLL for (int i = 0; i < MR; ++i) {
      x[i] += t.group;
      acc[i] = fused(mul(to_float(sum[i]), scale), Vec::broadcast(rows[i].scale[g]), acc[i]);
      acc[i] = fused(bias, Vec::broadcast(rows[i].sum[g]), acc[i]);
    }
  }
  TUTTI_UNROLL for (int i = 0; i < MR; ++i) store_lanes(acc[i], rows[i].y, t.lanes);
}

// Groups [group, group + t.groups) of rows [m, m + count) with the columns from n on.
struct Int8Block {
  const MatmulArgs* args;
  int m, count;
  int group;
  int n;
};

template <int kBits, int MR>
TUTTI_KERNEL void int8_rows(const Int8Tile& t, const Int8Block& b) {
  const Activations& in = b.args->in;
  const int64_t groups = in.K / t.group;
  for (int m = b.m; m < b.m + b.count; m += MR) {
    Int8Row rows[MR];
    for (int i = 0; i < MR; ++i) {
      const int64_t row = input_row(*b.args, m + i);
      rows[i] = {in.q + row * in.K + b.group * t.group, in.scale + row * groups + b.group,
                 in.sum + row * groups + b.group, b.args->y + (m + i) * b.args->y_stride + b.n};
    }
    int8_tile<kBits, MR>(t, rows);
  }
}

// The rows in tiles of MR, the rest in halves of it.
template <int kBits, int MR>
TUTTI_INLINE void int8_tiles(const Int8Tile& t, Int8Block b) {
  const int rows = b.count;
  b.count = rows / MR * MR;
  if (b.count != 0) int8_rows<kBits, MR>(t, b);
  if constexpr (MR > 1) {
    b.m += b.count;
    b.count = rows - b.count;
    if (b.count != 0) int8_tiles<kBits, MR / 2>(t, b);
  }
}

template <int kBits, int kBase, int kExtra>
TUTTI_INLINE void int8_panel(const MatmulArgs& args, int panel, int m, int rows) {
  const Matrix& w = *args.w;
  const int group = w.format.affine.group, groups = w.K / group;
  alignas(64) uint8_t decoded[kBits == 8 ? 64 : kInt8KBlock * kPanel];
  // With one tile of rows the codes are used once: a group at a time, so that decoding and multiplying overlap.
  const int step = args.M <= Dot<kBits>::kRows ? 1 : kInt8KBlock / group;
  const int64_t scale_size = w.scale_float32 ? 4 : 2;
  for (int g = 0; g < groups; g += step) {
    const int count = smaller(step, groups - g);
    const PlanePointers p = planes_at<kBase, kExtra>(w, panel, g * group);
    const uint8_t* codes = p.base;  // 8 bits lie as the products want them
    if constexpr (kBits != 8) {
      decode_codes<kBase, kExtra>(p.base, p.extra, count * group / 4, decoded);
      codes = decoded;
    }
    for (int part = 0; part < kParts; ++part) {
      const int n = panel * kPanel + part * Vec::kWidth;
      if (n >= w.N) break;
      const int64_t at = ((static_cast<int64_t>(panel) * groups + g) * kPanel + part * Vec::kWidth) * scale_size;
      const Int8Tile t{.codes = codes + part * Vec::kWidth * 4,
                       .group = group,
                       .groups = count,
                       .w_scale = static_cast<const uint8_t*>(w.scales) + at,
                       .w_bias = static_cast<const uint8_t*>(w.biases) + at,
                       .scale_float32 = w.scale_float32,
                       .lanes = smaller(Vec::kWidth, w.N - n),
                       .first = g == 0};
      int8_tiles<kBits, Dot<kBits>::kRows>(t, {.args = &args, .m = m, .count = rows, .group = g, .n = n});
    }
  }
}

template <int kBits, int kBase, int kExtra>
TUTTI_KERNEL void matmul_codes(const MatmulArgs& args) {
  for (int m = 0; m < args.M; m += kInt8RowBlock) {
    for (int panel = args.panel_begin; panel < args.panel_end; ++panel) {
      int8_panel<kBits, kBase, kExtra>(args, panel, m, smaller(kInt8RowBlock, args.M - m));
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
