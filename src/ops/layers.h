// The sub-layers that the model is written in. Each is one function: x [T, H] float32 in, x plus the sub-layer's output
// out, norm and residual included. With packed weights it is one MLX node whose body runs our kernels over the thread
// pool
// (*_cpu.cpp); with graph weights it is plain MLX ops (*_graph.cpp: the reference, and the path of other devices).
// Formulas: docs/model.md. Errors: std::invalid_argument("[op] …") with the shapes, when the graph is built.
//
// Weights, ropes and the memory behind cache views are referred to, not copied: they must outlive the evaluation of the
// step.
//
// Order: every op takes the previous op's x, so that writes to the caches happen in the order of the graph.
#pragma once

#include <mlx/array.h>

#include <array>
#include <functional>
#include <memory>

#include "base/thread_pool.h"
#include "ops/cache_views.h"
#include "ops/numerics.h"
#include "ops/step_batch.h"
#include "ops/weight.h"

namespace tutti::ops {

// What every op of a step shares. Lives until the step's arrays are evaluated (held by the nodes).
// Rows of a matrix, in panels of 16.
struct PanelRange {
  int begin = 0, end = 0;
};

struct StepContext {
  StepBatch batch;
  Numerics numerics;
  ThreadPool* pool = nullptr;                   // CPU bodies
  const kernels::KernelTable* table = nullptr;  // CPU bodies
  // For tests of the error boundary: called with the op's name at the start of every CPU node, before it writes
  // anything.
  std::function<void(const char* op)> before_node;
  // Ascending. The CPU head computes the logits of these ids only and leaves the others undefined; empty: all.
  std::vector<PanelRange> head_ranges;
};
using Step = std::shared_ptr<const StepContext>;

struct Rope {
  int rotary_dim = 64;          // the first rotary_dim dims of a head are rotated
  std::vector<float> inv_freq;  // [rotary_dim / 2]
  std::vector<int> axis;        // [rotary_dim / 2] 0 temporal, 1 height, 2 width
  float attention_factor = 1;   // multiplies cos and sin (YaRN)
};

struct AttentionWeights {
  Vector input_norm;      // gamma [H]
  Weight q, k, v, o;      // q rows: per head D query rows, then D gate rows
  Vector q_norm, k_norm;  // gamma [D]
  int heads = 0, kv_heads = 0, head_dim = 0;
  float eps = 1e-6f;
};

struct DeltaWeights {
  Vector input_norm;         // gamma [H]
  Weight qkv, z, a, b, out;  // qkv rows: q [Hk*Dk], k [Hk*Dk], v [Hv*Dv]
  Vector conv;               // [4, C]: tap 3 multiplies the current token
  Vector A_log, dt_bias;     // [Hv]
  Vector norm;               // gamma [Dv], plain
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  float eps = 1e-6f;
};

struct MlpWeights {
  Vector norm;  // gamma [H] of post_attention_layernorm
  Weight gate, up, down;
  float eps = 1e-6f;
};

struct MoeWeights {
  Vector norm;
  Weight router;          // [E, H]
  Weight gate, up, down;  // experts: [E] matrices
  Weight shared_gate, shared_up, shared_down;
  Weight shared_expert_gate;  // [1, H]
  int experts = 0, top_k = 0;
  float eps = 1e-6f;
};

struct HeadWeights {
  Vector norm;                   // gamma [H] of the final norm
  const Weight* head = nullptr;  // lm_head, or the embedding when tied
  int vocab = 0;                 // ids ≥ vocab are padding rows: their logits become -inf
  float eps = 1e-6f;
};

// The way into the draft head: per token the embedding and a hidden vector, each normed, side by side through fc.
struct DraftInputWeights {
  Vector embedding_norm, hidden_norm;  // gamma [H]
  Weight fc;                           // [H, 2H]: the embedding's half first
  const Weight* table = nullptr;       // the embedding
  float eps = 1e-6f;
};

mx::array embed(const Step& step, const Weight& table, int hidden);  // → [T, H]
mx::array attention(const mx::array& x, const Step& step, const AttentionWeights& w, const Rope& rope, KvView cache);
mx::array gated_delta(const mx::array& x, const Step& step, const DeltaWeights& w, StateView cache);
mx::array mlp(const mx::array& x, const Step& step, const MlpWeights& w);
mx::array moe(const mx::array& x, const Step& step, const MoeWeights& w);
// Row t: fc of (norm(embedding of tokens[t]), norm(hidden[t])); hidden [T, H] → [T, H].
mx::array draft_input(const mx::array& hidden, const Step& step, const DraftInputWeights& w);
// rms(x) * gamma, every token: [T, H] → [T, H].
mx::array norm(const mx::array& x, const Step& step, const Vector& gamma, float eps);
// Final norm of the tokens in batch.logits_of, then the head: logits [L, V] float32.
mx::array head(const mx::array& x, const Step& step, const HeadWeights& w);

}  // namespace tutti::ops
