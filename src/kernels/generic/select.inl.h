// The router's choice and the reductions over one row of logits.

// By logits: exp is monotonic, and equal probabilities of different logits stay in the order of the logits.
void top_k_softmax(const float* logits, int E, int k, int32_t* index, float* weight) noexcept {
  int kept = 0;
  for (int e = 0; e < E; ++e) {
    const float x = logits[e];
    if (kept == k && !(x > weight[k - 1])) continue;
    int at = kept < k ? kept++ : k - 1;
    for (; at > 0 && x > weight[at - 1]; --at) {
      weight[at] = weight[at - 1];
      index[at] = index[at - 1];
    }
    weight[at] = x;
    index[at] = e;
  }
  const Vec top = Vec::broadcast(weight[0]);
  float sum = 0;
  for (int i = 0; i < k; i += Vec::kWidth) {
    const int n = k - i < Vec::kWidth ? k - i : Vec::kWidth;
    exp(sub(Vec::load_partial(weight + i, n), top)).store_partial(weight + i, n);
    for (int j = i; j < i + n; ++j) sum += weight[j];
  }
  for (int i = 0; i < k; ++i) weight[i] /= sum;
}

// The maximum of x[0 … n-1] without NaN; -inf when there is nothing else.
inline float row_max(const float* x, int n) {
  Vec top[4];
  for (Vec& t : top) t = Vec::broadcast(-INFINITY);
  int i = 0;
  for (; i + 4 * Vec::kWidth <= n; i += 4 * Vec::kWidth) {
    TUTTI_UNROLL
    for (int j = 0; j < 4; ++j) top[j] = max(Vec::load(x + i + j * Vec::kWidth), top[j]);
  }
  float m = reduce_max(max(max(top[0], top[1]), max(top[2], top[3])));
  for (; i < n; ++i) m = x[i] > m ? x[i] : m;
  return m;
}

inline constexpr int kSelectChunk = 1024;

int argmax(const float* x, int V) noexcept {
  float best = -INFINITY;
  int chunk = 0;
  for (int i = 0; i < V; i += kSelectChunk) {
    const float m = row_max(x + i, V - i < kSelectChunk ? V - i : kSelectChunk);
    if (m > best) {
      best = m;
      chunk = i;
    }
  }
  for (int i = chunk; i < V; ++i) {
    if (x[i] == best) return i;
  }
  return 0;
}

float log_sum_exp(const float* x, int V) noexcept {
  float m = row_max(x, V);
  if (std::isinf(m)) m = 0;  // exp gives 0 or inf then, and log the right limit
  const Vec shift = Vec::broadcast(m);
  double total = 0;  // chunks in double: a vocabulary is too long for one float chain
  for (int begin = 0; begin < V; begin += kSelectChunk) {
    const int end = V - begin < kSelectChunk ? V : begin + kSelectChunk;
    Vec sum = Vec::zero();
    int i = begin;
    for (; i + Vec::kWidth <= end; i += Vec::kWidth) sum = add(sum, exp(sub(Vec::load(x + i), shift)));
    float part = reduce_add(sum);
    for (; i < end; ++i) part += first_lane(exp(sub(Vec::broadcast(x[i]), shift)));
    total += part;
  }
  return static_cast<float>(m + std::log(total));
}
