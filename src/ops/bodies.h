// The two bodies of every op (layers.h): own kernels for packed weights, plain MLX operations for the other kind.
#pragma once

#include "ops/layers.h"

namespace tutti::ops::cpu {

mx::array embed(const Step& step, const PackedWeight& table);
mx::array attention(const mx::array& x, const Step& step, const AttentionWeights& w, const Rope& rope,
                    const kernels::KvLayer& cache);
mx::array gated_delta(const mx::array& x, const Step& step, const DeltaWeights& w, const CpuState& cache);
mx::array mlp(const mx::array& x, const Step& step, const MlpWeights& w);
mx::array moe(const mx::array& x, const Step& step, const MoeWeights& w);
mx::array draft_input(const mx::array& hidden, const Step& step, const DraftInputWeights& w);
mx::array norm(const mx::array& x, const Step& step, const Vector& gamma, float eps);
mx::array head(const mx::array& x, const Step& step, const HeadWeights& w);

}  // namespace tutti::ops::cpu

namespace tutti::ops::graph {

mx::array embed(const Step& step, const GraphWeight& table);
mx::array attention(const mx::array& x, const Step& step, const AttentionWeights& w, const Rope& rope,
                    const GraphKv& cache);
mx::array gated_delta(const mx::array& x, const Step& step, const DeltaWeights& w, const GraphState& cache);
mx::array mlp(const mx::array& x, const Step& step, const MlpWeights& w);
mx::array moe(const mx::array& x, const Step& step, const MoeWeights& w);
mx::array draft_input(const mx::array& hidden, const Step& step, const DraftInputWeights& w);
mx::array norm(const mx::array& x, const Step& step, const Vector& gamma, float eps);
mx::array head(const mx::array& x, const Step& step, const HeadWeights& w);

}  // namespace tutti::ops::graph
