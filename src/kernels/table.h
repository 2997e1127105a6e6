// The functions of one instruction set. Everything takes pointers and shapes, allocates nothing, throws nothing.
//
// The contract of every kernel: the result of a row (a token, a query, a head) is the same to the last bit alone, in
// any batch, at any place in it, and whoever computes the tile. One kernel set (ISA) may differ from another in the
// last bits. The specification of each is the plain loop in reference/.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/matrix.h"

namespace tutti::kernels {

enum class Isa { reference, scalar, avx2, avx512, neon };
std::string_view isa_name(Isa isa);
std::optional<Isa> isa_from_name(std::string_view name);  // "scalar", "avx2", "avx512", "neon", "reference"

// ---- matrix products ----------------------------------------------------------------------------
// Inputs of a product, in the precision that the weight format asks for.
//   float:  x [M, K] float32 (rounded to bf16 beforehand where the numerics say so)
//   int8:   q [M, K], scale [M, K/group] = max|x|/127 of the group, sum [M, K/group] = scale * Σ q
struct Activations {
  int K = 0;
  const float* x = nullptr;
  const int8_t* q = nullptr;
  const float* scale = nullptr;
  const float* sum = nullptr;
  int group = 0;
};

struct MatmulArgs {
  const Matrix* w = nullptr;
  Activations in;
  const int32_t* in_row = nullptr;  // [M] row of `in` that output row m reads; null: row m
  int M = 0;
  float* y = nullptr;  // [M, y_stride], columns 0 … N-1 are written (never the padding)
  int64_t y_stride = 0;
  int panel_begin = 0, panel_end = 0;  // the tile: output columns [16*begin, min(N, 16*end))
};

// ---- attention ----------------------------------------------------------------------------------
inline constexpr int kBlockTokens = 64;    // tokens of a KV block, and the inner key range of the softmax tree
inline constexpr int kRangeTokens = 1024;  // the outer key range: threads split here

enum class KvType { float32, bfloat16 };

// The K and V of one layer. k: [block][G][D][64] (a lane is a key), v: [block][G][64][D].
struct KvLayer {
  KvType type = KvType::bfloat16;
  void* k = nullptr;
  void* v = nullptr;
  int G = 0, D = 0;  // D is a multiple of 16
};

// One sequence's queries of a step. Query t (0-based) has position first + t and attends keys 0 … first + t.
struct AttentionArgs {
  KvLayer kv;
  const int32_t* blocks = nullptr;  // block table of the sequence
  int first = 0;
  int n = 0;                 // queries
  int H = 0;                 // query heads; head h reads kv head h / (H / G)
  const float* q = nullptr;  // [n, H, D], normed and rotated; multiplied by scale inside
  float scale = 0;
};

// A partial softmax: for each (query, head) m = maximum score, l = Σ exp(s - m), o[D] = Σ exp(s - m) v.
// Layout [query, head].
struct AttentionPartial {
  float* m = nullptr;  // [queries, heads]
  float* l = nullptr;
  float* o = nullptr;  // [queries, heads, D]
};

// ---- gated delta rule ---------------------------------------------------------------------------
// n tokens of one sequence, one value head, columns [16*tile_begin, 16*tile_end) of Dv.
// state: [ceil(Dv/16)][Dk][16] float32.
struct DeltaArgs {
  int n = 0, Dk = 0, Dv = 0;  // Dk is even; a last tile that Dv does not fill has zero columns
  const float* q = nullptr;   // token t at q + t*qk_stride: [Dk], normalised and scaled by Dk^-0.5
  const float* k = nullptr;   // token t at k + t*qk_stride: [Dk], normalised
  int64_t qk_stride = 0;
  const float* v = nullptr;  // token t at v + t*v_stride: [Dv]
  int64_t v_stride = 0;
  const float* decay = nullptr;  // token t at decay + t*gate_stride: exp(g)
  const float* beta = nullptr;
  int64_t gate_stride = 0;
  float* state = nullptr;
  float* o = nullptr;  // token t at o + t*o_stride: [Dv]
  int64_t o_stride = 0;
  int tile_begin = 0, tile_end = 0;
};

// ---- the table ----------------------------------------------------------------------------------
struct KernelTable {
  Isa isa = Isa::reference;

  // y[r] = x[r] * rsqrt(mean(x[r]²) + eps) * gamma, rows of H. In place allowed.
  void (*rms_norm)(const float* x, const float* gamma, float eps, int rows, int H, float* y) noexcept;
  // y = rms(o) * gamma * silu(z), rows of D (the output norm of the delta rule; gamma is shared by all rows).
  void (*gated_rms_norm)(const float* o, const float* z, const float* gamma, float eps, int rows, int D,
                         float* y) noexcept;
  // x *= rsqrt(Σ x² + 1e-6) * scale, rows of D, row r at x + r*stride.
  void (*l2_norm)(float* x, int64_t stride, int rows, int D, float scale) noexcept;

  // x[r] rounded to bfloat16, kept as float32 (inputs of bf16 weights).
  void (*round_bf16)(const float* x, int64_t n, float* y) noexcept;
  // int8 inputs: per row and group of K. q [M, K], scale and sum [M, K/group]. K is a multiple of the group.
  void (*quantize_int8)(const float* x, int M, int K, int group, int8_t* q, float* scale, float* sum) noexcept;

  void (*matmul_float)(const MatmulArgs& args) noexcept;         // float32 or bfloat16 weights, float inputs
  void (*matmul_affine_int8)(const MatmulArgs& args) noexcept;   // affine weights, int8 inputs with the weight's group
  void (*matmul_affine_float)(const MatmulArgs& args) noexcept;  // affine weights, float inputs (the float32 mode)
  // out[K] = row n of w as float32 (embedding rows).
  void (*read_row)(const Matrix& w, int n, float* out) noexcept;

  // y[i] = silu(gate[i]) * up[i]; y[i] = x[i] * sigmoid(gate[i]); y[i] += x[i] * a.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* y) noexcept;
  void (*sigmoid_mul)(const float* x, const float* gate, int64_t n, float* y) noexcept;
  void (*add_scaled)(const float* x, float a, int64_t n, float* y) noexcept;

  // Depthwise causal convolution with silu over n tokens: y[t] = silu(Σ_j w[j] c[t+j]), c = last 3 inputs, then u.
  // u: token t at u + t*u_stride, [C]; w: [4, C]; window: [3, C], oldest first, replaced by the last 3 inputs;
  // y: [n, C]. Channels [begin, end) only.
  void (*conv_silu)(const float* u, int64_t u_stride, int n, int C, const float* w, float* window, float* y, int begin,
                    int end) noexcept;
  // decay[h] = exp(-exp(A_log[h]) * softplus(a[h] + dt_bias[h])), beta[h] = sigmoid(b[h]).
  void (*delta_gates)(const float* a, const float* b, const float* A_log, const float* dt_bias, int Hv, float* decay,
                      float* beta) noexcept;
  void (*delta_rule)(const DeltaArgs& args) noexcept;

  // Partial rotary, NeoX pairing, in place: dims i and i + half of each head row, cos and sin [half].
  void (*rope)(float* x, int64_t head_stride, int heads, const float* cos, const float* sin, int half) noexcept;
  // Writes one token's k and v [G, D] (rounded to the stored type) at `position` of the block table.
  void (*kv_write)(const KvLayer& kv, const int32_t* blocks, int position, const float* k, const float* v) noexcept;
  // Queries [q_begin, q_end), the query heads of kv head g, keys of range r (1024 tokens): inner ranges of 64 in order.
  // out is indexed [query - q_begin, head within g]. scratch: attention_scratch() floats.
  void (*attention_range)(const AttentionArgs& args, int q_begin, int q_end, int g, int range,
                          const AttentionPartial& out, float* scratch) noexcept;
  // total ← total merged with part (which lies after it in key order); rows × D. m = -inf marks an empty total.
  void (*attention_merge)(const AttentionPartial& total, const AttentionPartial& part, int rows, int D) noexcept;

  // Router: softmax over E in float32, the k largest (ties: lower index), weights divided by their sum.
  void (*top_k_softmax)(const float* logits, int E, int k, int32_t* index, float* weight) noexcept;

  // Sampling helpers over one row of V logits. argmax: lowest index among equals. log_sum_exp: log Σ exp(x).
  int (*argmax)(const float* x, int V) noexcept;
  float (*log_sum_exp)(const float* x, int V) noexcept;
};

// Floats of scratch that attention_range needs for `queries` queries of one kv head.
int64_t attention_scratch(int queries, int heads_per_group, int D);

// The table of an instruction set, or null where this build or this processor lacks it.
const KernelTable* table(Isa isa);
// Instruction sets that run here, reference and scalar included, best last.
std::vector<Isa> available();
// The best, or the one that TUTTI_ISA names. Throws OptionError for an unknown or unavailable name.
const KernelTable& select();

}  // namespace tutti::kernels
