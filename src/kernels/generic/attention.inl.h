// Rotary embedding and paged attention (spec/model.md 4). The rows of a kv head are its queries times its heads; a tile
// of rows shares every K and V load.
//
// The result of a row is a chain fixed by the absolute positions of its keys: scores are sums over d in order (a lane
// is a key); a range of 64 keys updates m, l and o of the row; o takes the keys in order (a lane is a dim). What the
// neighbours of a row in its tile are can't be seen in it.

void rope(float* x, int64_t head_stride, int heads, const float* cos, const float* sin, int half) noexcept {
  for (int h = 0; h < heads; ++h, x += head_stride) {
    for (int i = 0; i < half; i += Vec::kWidth) {
      const int n = half - i < Vec::kWidth ? half - i : Vec::kWidth;
      const Vec a = Vec::load_partial(x + i, n), b = Vec::load_partial(x + half + i, n);
      const Vec c = Vec::load_partial(cos + i, n), s = Vec::load_partial(sin + i, n);
      sub(mul(a, c), mul(b, s)).store_partial(x + i, n);
      add(mul(b, c), mul(a, s)).store_partial(x + half + i, n);
    }
  }
}

TUTTI_INLINE Vec load_stored(const float* p) {
  return Vec::load(p);
}
TUTTI_INLINE Vec load_stored(const bf16* p) {
  return Vec::load_bf16(p);
}
TUTTI_INLINE void store_rounded(Vec v, float* p) {
  v.store(p);
}
TUTTI_INLINE void store_rounded(Vec v, bf16* p) {
  v.store_bf16(p);
}

// First element of the K or V of (block, kv head): D * 64 values of the stored type.
template <class T>
TUTTI_INLINE T* block_of(void* base, const KvLayer& kv, int32_t block, int g) {
  return static_cast<T*>(base) + (static_cast<int64_t>(block) * kv.G + g) * kv.D * kBlockTokens;
}

template <class T>
void kv_write_as(const KvLayer& kv, int32_t block, int slot, const float* k, const float* v) {
  T rounded[Vec::kWidth];
  for (int g = 0; g < kv.G; ++g, k += kv.D, v += kv.D) {
    T* to_k = block_of<T>(kv.k, kv, block, g) + slot;
    T* to_v = block_of<T>(kv.v, kv, block, g) + static_cast<int64_t>(slot) * kv.D;
    for (int d = 0; d < kv.D; d += Vec::kWidth) {
      store_rounded(Vec::load(k + d), rounded);
      for (int i = 0; i < Vec::kWidth; ++i) to_k[static_cast<int64_t>(d + i) * kBlockTokens] = rounded[i];
      store_rounded(Vec::load(v + d), to_v + d);
    }
  }
}

void kv_write(const KvLayer& kv, const int32_t* blocks, int position, const float* k, const float* v) noexcept {
  const int32_t block = blocks[position / kBlockTokens];
  if (kv.type == KvType::bfloat16) {
    kv_write_as<bf16>(kv, block, position % kBlockTokens, k, v);
  } else {
    kv_write_as<float>(kv, block, position % kBlockTokens, k, v);
  }
}

// c[r][v] = (kAdd ? c[r][v] : 0) + Σ_k a[r * kRow + k * kStep] b[k * ldb + v], k in order, for R rows and V vectors.
template <int R, int V, int kRow, int kStep, bool kAdd, class T>
TUTTI_INLINE void product_tile(const float* a, const T* b, int ldb, int k_count, float* c, int64_t ldc) {
  Vec sum[R][V];
  TUTTI_UNROLL
  for (int r = 0; r < R; ++r) {
    TUTTI_UNROLL
    for (int v = 0; v < V; ++v) sum[r][v] = kAdd ? Vec::load(c + r * ldc + v * Vec::kWidth) : Vec::zero();
  }
  for (int k = 0; k < k_count; ++k, a += kStep, b += ldb) {
    Vec x[V];
    TUTTI_UNROLL
    for (int v = 0; v < V; ++v) x[v] = load_stored(b + v * Vec::kWidth);
    TUTTI_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vec y = Vec::broadcast(a[r * kRow]);
      TUTTI_UNROLL
      for (int v = 0; v < V; ++v) sum[r][v] = fma(y, x[v], sum[r][v]);
    }
  }
  TUTTI_UNROLL
  for (int r = 0; r < R; ++r) {
    TUTTI_UNROLL
    for (int v = 0; v < V; ++v) sum[r][v].store(c + r * ldc + v * Vec::kWidth);
  }
}

// Vectors beside each other in a tile of R rows: as many of 4, 2, 1 as the registers hold.
template <int R>
constexpr int tile_vectors() {
  for (int v : {4, 2}) {
    if (R * v + v + 1 <= Vec::kRegisters) return v;
  }
  return 1;
}

// The largest tile that fits `rows`; the tiles of a call are the same at every block.
constexpr int tile_rows(int rows) {
  constexpr int kLargest = Vec::kRegisters >= 32 ? 12 : 6;
  for (int r : {12, 8, 6, 4, 2}) {
    if (r <= kLargest && r <= rows) return r;
  }
  return 1;
}

// One product over `width` columns of b (a multiple of the vector width).
template <int R, int kRow, int kStep, bool kAdd, class T>
inline void product(const float* a, const T* b, int ldb, int k_count, float* c, int64_t ldc, int width) {
  constexpr int V = tile_vectors<R>();
  int i = 0;
  for (; i + V * Vec::kWidth <= width; i += V * Vec::kWidth) {
    product_tile<R, V, kRow, kStep, kAdd>(a, b + i, ldb, k_count, c + i, ldc);
  }
  for (; i < width; i += Vec::kWidth) product_tile<R, 1, kRow, kStep, kAdd>(a, b + i, ldb, k_count, c + i, ldc);
}

// scores [R, 64] = packed queries [D][R] × K [D][64], the first `keys` of them.
template <int R, class T>
void score_tile(const float* q, const T* k, int D, int keys, float* scores) {
  const int width = (keys + Vec::kWidth - 1) / Vec::kWidth * Vec::kWidth;
  product<R, 1, R, false>(q, k, kBlockTokens, D, scores, kBlockTokens, width);
}

// o [R, D] += p [R, 64] × V [keys][D]. The rows of later queries see more keys than the first.
template <int R, class T>
void value_tile(const float* p, const T* v, int D, const int* keys, float* o) {
  const int common = keys[0];
  product<R, kBlockTokens, 1, true>(p, v, D, common, o, D, D);
  for (int r = 0; r < R; ++r) {
    if (keys[r] <= common) continue;
    product<1, kBlockTokens, 1, true>(p + r * kBlockTokens + common, v + static_cast<int64_t>(common) * D, D,
                                      keys[r] - common, o + static_cast<int64_t>(r) * D, D, D);
  }
}

// THE switch over the sizes of a tile. Work is a class template over R with a static run().
template <template <int> class Work, class... Args>
TUTTI_INLINE void for_tile(int rows, Args... args) {
  if constexpr (Vec::kRegisters >= 32) {
    if (rows == 12) return Work<12>::run(args...);
    if (rows == 8) return Work<8>::run(args...);
  }
  if (rows == 6) return Work<6>::run(args...);
  if (rows == 4) return Work<4>::run(args...);
  if (rows == 2) return Work<2>::run(args...);
  Work<1>::run(args...);
}
template <int R>
struct ScoreWork {
  template <class... Args>
  static TUTTI_INLINE void run(Args... args) {
    score_tile<R>(args...);
  }
};
template <int R>
struct ValueWork {
  template <class... Args>
  static TUTTI_INLINE void run(Args... args) {
    value_tile<R>(args...);
  }
};

// The softmax of one row over `keys` >= 1 scores of a range of 64: scores become weights, m and l are updated, o is
// scaled.
inline void softmax_row(float* scores, int keys, int D, float& m, float& l, float* o) {
  const int width = (keys + Vec::kWidth - 1) / Vec::kWidth * Vec::kWidth;
  for (int i = keys; i < width; ++i) scores[i] = -INFINITY;
  Vec top = Vec::load(scores);
  for (int i = Vec::kWidth; i < width; i += Vec::kWidth) top = max(top, Vec::load(scores + i));
  const float range_m = reduce_max(top);
  const float new_m = m > range_m ? m : range_m;
  Vec sum = Vec::zero();
  const Vec shift = Vec::broadcast(new_m);
  for (int i = 0; i < width; i += Vec::kWidth) {
    const Vec p = exp(sub(Vec::load(scores + i), shift));
    p.store(scores + i);
    sum = add(sum, p);
  }
  if (new_m != m) {  // else the factor is 1
    const Vec factor = exp(Vec::broadcast(m - new_m));
    l *= first_lane(factor);
    for (int d = 0; d < D; d += Vec::kWidth) mul(Vec::load(o + d), factor).store(o + d);
    m = new_m;
  }
  l += reduce_add(sum);
}

struct AttentionRows {
  int heads, rows;
  int position;  // of the first query

  // Keys of the range of 64 that begins at `base` which a row may attend.
  TUTTI_INLINE int keys(int row, int base) const {
    const int n = position + row / heads + 1 - base;
    return n < 0 ? 0 : n > kBlockTokens ? kBlockTokens : n;
  }
};

// q: tiles of [D][R], scaled.
inline void pack_queries(const AttentionArgs& args, int q_begin, int g, const AttentionRows& rows, float* packed) {
  const int D = args.kv.D;
  for (int begin = 0; begin < rows.rows;) {
    const int R = tile_rows(rows.rows - begin);
    for (int r = 0; r < R; ++r) {
      const int query = q_begin + (begin + r) / rows.heads, head = g * rows.heads + (begin + r) % rows.heads;
      const float* q = args.q + (static_cast<int64_t>(query) * args.H + head) * D;
      for (int d = 0; d < D; ++d) packed[static_cast<int64_t>(d) * R + r] = q[d] * args.scale;
    }
    packed += static_cast<int64_t>(R) * D;
    begin += R;
  }
}

template <class T>
void attention_block(const AttentionArgs& args, const AttentionRows& rows, int base, int g, const float* packed,
                     float* scores, const AttentionPartial& out) {
  const int D = args.kv.D;
  const int32_t block = args.blocks[base / kBlockTokens];
  const T* k = block_of<T>(args.kv.k, args.kv, block, g);
  const T* v = block_of<T>(args.kv.v, args.kv, block, g);
  for (int begin = 0, R; begin < rows.rows; begin += R) {
    R = tile_rows(rows.rows - begin);
    const int most = rows.keys(begin + R - 1, base);
    if (most == 0) continue;
    float* tile = scores + static_cast<int64_t>(begin) * kBlockTokens;
    float* o = out.o + static_cast<int64_t>(begin) * D;
    for_tile<ScoreWork>(R, packed + static_cast<int64_t>(begin) * D, k, D, most, tile);
    int keys[12];
    for (int r = 0; r < R; ++r) {
      keys[r] = rows.keys(begin + r, base);
      if (keys[r] == 0) continue;
      softmax_row(tile + r * kBlockTokens, keys[r], D, out.m[begin + r], out.l[begin + r],
                  o + static_cast<int64_t>(r) * D);
    }
    for_tile<ValueWork>(R, static_cast<const float*>(tile), v, D, static_cast<const int*>(keys), o);
  }
}

void attention_range(const AttentionArgs& args, int q_begin, int q_end, int g, int range, const AttentionPartial& out,
                     float* scratch) noexcept {
  const int heads = args.H / args.kv.G, D = args.kv.D;
  const AttentionRows rows{heads, (q_end - q_begin) * heads, args.first + q_begin};
  float* packed = scratch;
  float* scores = scratch + static_cast<int64_t>(rows.rows) * D;
  pack_queries(args, q_begin, g, rows, packed);
  for (int r = 0; r < rows.rows; ++r) {
    out.m[r] = -INFINITY;
    out.l[r] = 0;
  }
  std::memset(out.o, 0, sizeof(float) * static_cast<size_t>(rows.rows) * static_cast<size_t>(D));
  const int last = args.first + q_end;  // keys of the last query
  const int begin = range * kRangeTokens, end = last < begin + kRangeTokens ? last : begin + kRangeTokens;
  for (int base = begin; base < end; base += kBlockTokens) {
    if (args.kv.type == KvType::bfloat16) {
      attention_block<bf16>(args, rows, base, g, packed, scores, out);
    } else {
      attention_block<float>(args, rows, base, g, packed, scores, out);
    }
  }
}

void attention_merge(const AttentionPartial& total, const AttentionPartial& part, int rows, int D) noexcept {
  for (int r = 0; r < rows; ++r) {
    const float a = total.m[r], b = part.m[r];
    float* to = total.o + static_cast<int64_t>(r) * D;
    const float* from = part.o + static_cast<int64_t>(r) * D;
    if (b == -INFINITY) continue;
    if (a == -INFINITY) {
      total.m[r] = b;
      total.l[r] = part.l[r];
      std::memcpy(to, from, sizeof(float) * static_cast<size_t>(D));
      continue;
    }
    const float m = a > b ? a : b;
    const Vec keep = exp(Vec::broadcast(a - m)), take = exp(Vec::broadcast(b - m));
    total.m[r] = m;
    total.l[r] = total.l[r] * first_lane(keep) + part.l[r] * first_lane(take);
    for (int d = 0; d < D; d += Vec::kWidth) {
      fma(Vec::load(to + d), keep, mul(Vec::load(from + d), take)).store(to + d);
    }
  }
}
