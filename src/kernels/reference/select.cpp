#include "kernels/reference/select.h"

#include <cmath>

namespace tutti::kernels::reference {

void top_k_softmax(const float* logits, int E, int k, int32_t* index, float* weight) noexcept {
  double sum = 0;
  for (int i = 0; i < k; ++i) {
    int best = -1;
    for (int e = 0; e < E; ++e) {
      bool taken = false;
      for (int j = 0; j < i; ++j) taken = taken || index[j] == e;
      if (!taken && (best < 0 || logits[e] > logits[best])) best = e;
    }
    index[i] = best;
    sum += std::exp(static_cast<double>(logits[best]) - logits[index[0]]);
  }
  for (int i = 0; i < k; ++i) {
    weight[i] = static_cast<float>(std::exp(static_cast<double>(logits[index[i]]) - logits[index[0]]) / sum);
  }
}

int argmax(const float* x, int V) noexcept {
  int best = 0;
  for (int i = 1; i < V; ++i) {
    if (x[i] > x[best] || std::isnan(x[best])) best = i;
  }
  return std::isnan(x[best]) ? 0 : best;
}

float log_sum_exp(const float* x, int V) noexcept {
  double m = -INFINITY;
  for (int i = 0; i < V; ++i) m = x[i] > m ? x[i] : m;
  if (std::isinf(m)) m = 0;
  double sum = 0;
  for (int i = 0; i < V; ++i) sum += std::exp(x[i] - m);
  return static_cast<float>(m + std::log(sum));
}

}  // namespace tutti::kernels::reference
