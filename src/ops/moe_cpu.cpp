// The mixture-of-experts sub-layer over our kernels. Tokens are grouped by expert, so that an expert's weights are read
// once; a token sums its experts by descending router weight (the order of its top-k list), whatever else is in the
// step.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/bodies.h"
#include "ops/checks.h"
#include "ops/cpu_linear.h"

namespace tutti::ops::cpu {
namespace {

class Moe {
 public:
  Moe(const StepContext& step, const MoeWeights& w)
      : step_(step),
        table_(*step.table),
        w_(w),
        T_(step.batch.T()),
        H_(in_features(w.router)),
        I_(out_features(w.gate)),
        S_(out_features(w.shared_gate)),
        k_(w.top_k) {}

  void run(const float* x, float* out, Scratch& scratch) {
    float* normed = scratch.floats(int64_t{T_} * H_);
    Inputs in(scratch, step_, normed, T_, H_);
    for (const Weight* w : {&w_.router, &w_.gate, &w_.up, &w_.shared_gate, &w_.shared_up, &w_.shared_expert_gate}) {
      in.want(matrix_of(*w));
    }
    run_norm(step_, {.x = x, .gamma = &w_.norm, .eps = w_.eps, .normed = normed}, in);
    route(in, scratch);
    group(scratch);

    const int64_t pairs = int64_t{T_} * k_;
    float* h = scratch.floats(pairs * I_);
    float* shared_h = scratch.floats(int64_t{T_} * S_);
    Inputs next(scratch, step_, h, static_cast<int>(pairs), I_), shared_next(scratch, step_, shared_h, T_, S_);
    next.want(matrix_of(w_.down));
    shared_next.want(matrix_of(w_.shared_down));
    gate_and_up(in, next, shared_next, {h, shared_h}, scratch);

    float* down = scratch.floats(pairs * H_);
    float* shared = scratch.floats(int64_t{T_} * H_);
    project_down(next, shared_next, down, shared);
    combine(x, down, shared, out);
  }

 private:
  // Router and shared gate, then the top k of every token.
  void route(const Inputs& in, Scratch& scratch) {
    const kernels::Matrix &router = matrix_of(w_.router), &gate = matrix_of(w_.shared_expert_gate);
    const int E = w_.experts;
    float* logits = scratch.floats(int64_t{T_} * E);
    shared_scale_ = scratch.floats(T_);
    expert_ = scratch.take<int32_t>(int64_t{T_} * k_);
    weight_ = scratch.floats(int64_t{T_} * k_);
    const Product products[] = {{.w = &router, .in = in.of(router), .M = T_, .y = logits, .y_stride = E},
                                {.w = &gate, .in = in.of(gate), .M = T_, .y = shared_scale_, .y_stride = 1}};
    run_products(step_, products);
    const int chunk = row_chunk(step_, T_);
    run_tiles(step_, (T_ + chunk - 1) / chunk, [&](int tile, int) {
      for (int64_t t = tile * chunk; t < std::min(T_, (tile + 1) * chunk); ++t) {
        table_.top_k_softmax(logits + t * E, E, k_, expert_ + t * k_, weight_ + t * k_);
        shared_scale_[t] = 1.0f / (1.0f + std::exp(-shared_scale_[t]));
      }
    });
  }

  // Counting sort of the (token, choice) pairs by expert: pair_[t, j] is where the pair went, token_[p] which token it
  // reads.
  void group(Scratch& scratch) {
    const int E = w_.experts, pairs = T_ * k_;
    begin_ = scratch.take<int32_t>(E + 1);
    pair_ = scratch.take<int32_t>(pairs);
    token_ = scratch.take<int32_t>(pairs);
    own_row_ = scratch.take<int32_t>(pairs);
    std::iota(own_row_, own_row_ + pairs, 0);
    std::fill(begin_, begin_ + E + 1, 0);
    for (int i = 0; i < pairs; ++i) ++begin_[expert_[i] + 1];
    for (int e = 0; e < E; ++e) begin_[e + 1] += begin_[e];
    int32_t* at = scratch.take<int32_t>(E);
    std::copy(begin_, begin_ + E, at);
    for (int i = 0; i < pairs; ++i) {
      pair_[i] = at[expert_[i]]++;
      token_[pair_[i]] = i / k_;
    }
  }

  struct Hidden {
    float* routed;  // [T * k, I]
    float* shared;  // [T, S]
  };
  void gate_and_up(const Inputs& in, const Inputs& next, const Inputs& shared_next, Hidden h, Scratch& scratch) {
    float* up = scratch.floats(int64_t{T_} * k_ * I_);
    float* shared_up = scratch.floats(int64_t{T_} * S_);
    const auto &gates = std::get<PackedWeight>(w_.gate).experts, &ups = std::get<PackedWeight>(w_.up).experts;
    std::vector<GatedPair> pairs;
    const kernels::Matrix &sg = matrix_of(w_.shared_gate), &su = matrix_of(w_.shared_up);
    pairs.push_back({.gate = {.w = &sg, .in = in.of(sg), .M = T_, .y = h.shared, .y_stride = S_},
                     .up = {.w = &su, .in = in.of(su), .M = T_, .y = shared_up, .y_stride = S_},
                     .next = &shared_next});
    for (int e = 0; e < w_.experts; ++e) {
      const int begin = begin_[e], n = begin_[e + 1] - begin;
      if (n == 0) continue;
      const int64_t at = int64_t{begin} * I_;
      pairs.push_back(
          {.gate = {.w = &gates[e],
                    .in = in.of(gates[e]),
                    .M = n,
                    .y = h.routed + at,
                    .y_stride = I_,
                    .in_row = token_ + begin},
           .up = {.w = &ups[e], .in = in.of(ups[e]), .M = n, .y = up + at, .y_stride = I_, .in_row = token_ + begin},
           .next = &next,
           .next_row = begin});
    }
    run_gated(step_, pairs);
  }

  void project_down(const Inputs& next, const Inputs& shared_next, float* down, float* shared) {
    const auto& downs = std::get<PackedWeight>(w_.down).experts;
    const kernels::Matrix& sd = matrix_of(w_.shared_down);
    std::vector<Product> products;
    products.push_back({.w = &sd, .in = shared_next.of(sd), .M = T_, .y = shared, .y_stride = H_});
    for (int e = 0; e < w_.experts; ++e) {
      const int begin = begin_[e], n = begin_[e + 1] - begin;
      if (n == 0) continue;
      products.push_back({.w = &downs[e],
                          .in = next.of(downs[e]),
                          .M = n,
                          .y = down + int64_t{begin} * H_,
                          .y_stride = H_,
                          .in_row = own_row_ + begin});
    }
    run_products(step_, products);
  }

  // out = x + Σ weight * expert (in the order of the top-k list) + sigmoid(gate) * shared.
  void combine(const float* x, const float* down, const float* shared, float* out) {
    const int chunk = row_chunk(step_, T_);
    run_tiles(step_, (T_ + chunk - 1) / chunk, [&](int tile, int) {
      for (int64_t t = tile * chunk; t < std::min(T_, (tile + 1) * chunk); ++t) {
        float* y = out + t * H_;
        std::fill(y, y + H_, 0.0f);
        for (int j = 0; j < k_; ++j) {
          table_.add_scaled(down + int64_t{pair_[t * k_ + j]} * H_, weight_[t * k_ + j], H_, y);
        }
        table_.add_scaled(shared + t * H_, shared_scale_[t], H_, y);
        table_.add_scaled(x + t * H_, 1.0f, H_, y);
      }
    });
  }

  const StepContext& step_;
  const kernels::KernelTable& table_;
  const MoeWeights& w_;
  int T_, H_, I_, S_, k_;
  int32_t* expert_ = nullptr;      // [T, k]
  float* weight_ = nullptr;        // [T, k]
  float* shared_scale_ = nullptr;  // [T]
  int32_t* begin_ = nullptr;       // [E + 1] first pair of an expert
  int32_t* pair_ = nullptr;        // [T, k]
  int32_t* token_ = nullptr;       // [T * k]
  int32_t* own_row_ = nullptr;     // [T * k] 0, 1, 2 …
};

}  // namespace

mx::array moe(const mx::array& x, const Step& step, const MoeWeights& w) {
  auto body = [&step = *step, &w](const float* in, float* out, Scratch& scratch) {
    Moe(step, w).run(in, out, scratch);
  };
  return cpu_node({.op = "moe", .step = step, .inputs = {x}, .shape = x.shape(), .body = std::move(body)});
}

}  // namespace tutti::ops::cpu
