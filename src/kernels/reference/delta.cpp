#include "kernels/reference/delta.h"

#include <cmath>

#include "kernels/reference/elementwise.h"

namespace tutti::kernels::reference {

void conv_silu(const float* u, int64_t u_stride, int n, int C, const float* w, float* window, float* y, int begin,
               int end) noexcept {
  for (int t = 0; t < n; ++t, u += u_stride, y += C) {
    for (int i = begin; i < end; ++i) {
      double sum = static_cast<double>(w[3 * C + i]) * u[i];
      for (int j = 0; j < 3; ++j) sum += static_cast<double>(w[j * C + i]) * window[j * C + i];
      y[i] = static_cast<float>(sum * sigmoid(sum));
      window[i] = window[C + i];
      window[C + i] = window[2 * C + i];
      window[2 * C + i] = u[i];
    }
  }
}

void delta_gates(const float* a, const float* b, const float* A_log, const float* dt_bias, int Hv, float* decay,
                 float* beta) noexcept {
  for (int h = 0; h < Hv; ++h) {
    const double x = static_cast<double>(a[h]) + dt_bias[h];
    const double softplus = x > 20 ? x : std::log1p(std::exp(x));
    decay[h] = static_cast<float>(std::exp(-std::exp(static_cast<double>(A_log[h])) * softplus));
    beta[h] = static_cast<float>(sigmoid(b[h]));
  }
}

void delta_rule(const DeltaArgs& args) noexcept {
  for (int t = 0; t < args.n; ++t) {
    const float* q = args.q + t * args.qk_stride;
    const float* k = args.k + t * args.qk_stride;
    const double decay = args.decay[t * args.gate_stride], beta = args.beta[t * args.gate_stride];
    for (int j = 16 * args.tile_begin; j < 16 * args.tile_end && j < args.Dv; ++j) {
      float* s = args.state + static_cast<int64_t>(j / 16) * args.Dk * 16 + j % 16;  // column j: s[16 * i]
      double predicted = 0, out = 0;
      for (int i = 0; i < args.Dk; ++i) predicted += k[i] * (decay * s[16 * i]);
      const double u = beta * (args.v[t * args.v_stride + j] - predicted);
      for (int i = 0; i < args.Dk; ++i) {
        s[16 * i] = static_cast<float>(decay * s[16 * i] + k[i] * u);
        out += static_cast<double>(q[i]) * s[16 * i];
      }
      args.o[t * args.o_stride + j] = static_cast<float>(out);
    }
  }
}

}  // namespace tutti::kernels::reference
