// Shared by the matrix products of every ISA. Included inside an anonymous namespace of the ISA, in its target region,
// after its Vec and Bytes.
//
// A panel of 16 output columns is kParts registers wide; a tile is a few input rows by a few such registers.
//
// Bytes: kSize bytes in a register with load, store, operator & | and shift_right<s>, shift_left<s>, whose lanes may be
// wider than a byte: bits that cross from a neighbour are masked off afterwards.
// quad_floats<kk>(p): byte 4*i + kk of p as float, i in [0, kWidth).

// A function that stays one: the borders at which the bodies of a product are compiled apart.
#define TUTTI_KERNEL __attribute__((noinline))

constexpr int kParts = kPanel / Vec::kWidth;

TUTTI_INLINE int smaller(int a, int b) {
  return a < b ? a : b;
}

TUTTI_INLINE int64_t input_row(const MatmulArgs& args, int m) {
  return args.in_row != nullptr ? args.in_row[m] : m;
}

// The first `lanes` of a register (none when lanes <= 0); the full width is the usual case.
TUTTI_KERNEL Vec load_some(const float* p, int lanes) {
  return lanes > 0 ? Vec::load_partial(p, lanes) : Vec::zero();
}
TUTTI_KERNEL void store_some(Vec v, float* p, int lanes) {
  if (lanes > 0) v.store_partial(p, lanes);
}
TUTTI_INLINE Vec load_lanes(const float* p, int lanes) {
  return lanes >= Vec::kWidth ? Vec::load(p) : load_some(p, lanes);
}
TUTTI_INLINE void store_lanes(Vec v, float* p, int lanes) {
  if (lanes >= Vec::kWidth) {
    v.store(p);
  } else {
    store_some(v, p, lanes);
  }
}

TUTTI_INLINE Vec load_scale(const void* plane, bool float32, int64_t index) {
  return float32 ? Vec::load(static_cast<const float*>(plane) + index)
                 : Vec::load_bf16(static_cast<const bf16*>(plane) + index);
}

// Bytes between what is read and what is fetched ahead. Planes and scales of a panel and the panels themselves follow
// each other in memory, so the next panel is on its way before this one ends.
constexpr int kCodesAhead = 1536;
constexpr int kScalesAhead = 256;

TUTTI_INLINE void prefetch_scales(const Matrix& w, int64_t index) {
  const int64_t byte = index * (w.scale_float32 ? 4 : 2) + kScalesAhead;
  __builtin_prefetch(static_cast<const uint8_t*>(w.scales) + byte);
  __builtin_prefetch(static_cast<const uint8_t*>(w.biases) + byte);
}

// ---- codes ----

// Code vectors (16 rows x 4 k, one byte each) of one group of eight, from the planes.
template <int kBase, int kExtra, int J>
TUTTI_INLINE void decode_one(const uint8_t* base, const uint8_t* extra, uint8_t* out) {
  constexpr int kBasePer = 8 / kBase;
  const Bytes low = Bytes::load(base + J / kBasePer * 64);
  Bytes code = low.template shift_right<J % kBasePer * kBase>() & Bytes::fill((1 << kBase) - 1);
  if constexpr (kExtra != 0) {
    constexpr int kExtraPer = 8 / kExtra;
    constexpr int kShift = J % kExtraPer * kExtra - kBase;  // from its place in the plane to above the base bits
    const Bytes high = Bytes::load(extra + J / kExtraPer * 64);
    constexpr int kMask = ((1 << kExtra) - 1) << kBase;
    if constexpr (kShift >= 0) {
      code = code | (high.template shift_right<kShift>() & Bytes::fill(kMask));
    } else {
      code = code | (high.template shift_left<-kShift>() & Bytes::fill(kMask));
    }
  }
  code.store(out + J * 64);
}

template <int kBase, int kExtra, int... J>
TUTTI_INLINE void decode_eight(const uint8_t* base, const uint8_t* extra, uint8_t* out,
                               std::integer_sequence<int, J...>) {
  (decode_one<kBase, kExtra, J>(base, extra, out), ...);
}

// One panel's codes [quad][64] for `quads` quads (a multiple of 8) whose first is a multiple of 8.
template <int kBase, int kExtra>
TUTTI_INLINE void decode_codes(const uint8_t* base, const uint8_t* extra, int quads, uint8_t* out) {
  for (int q = 0; q < quads; q += 8) {
    for (int line = 0; line < kBase; ++line) __builtin_prefetch(base + kCodesAhead + line * 64);
    for (int line = 0; line < kExtra; ++line) __builtin_prefetch(extra + kCodesAhead * kExtra / kBase + line * 64);
    for (int part = 0; part < 64; part += Bytes::kSize) {
      decode_eight<kBase, kExtra>(base + part, extra + part, out + part, std::make_integer_sequence<int, 8>());
    }
    base += kBase * 64;
    extra += kExtra * 64;
    out += 8 * 64;
  }
}

// The planes of a panel at column k.
struct PlanePointers {
  const uint8_t* base = nullptr;
  const uint8_t* extra = nullptr;
};
template <int kBase, int kExtra>
TUTTI_INLINE PlanePointers planes_at(const Matrix& w, int panel, int k) {
  const int64_t quad = static_cast<int64_t>(panel) * (w.K / 4) + k / 4;
  PlanePointers p{static_cast<const uint8_t*>(w.values) + quad * kBase * 8, nullptr};
  if constexpr (kExtra != 0) p.extra = static_cast<const uint8_t*>(w.extra) + quad * kExtra * 8;
  return p;
}
