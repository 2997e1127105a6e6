// Elementary functions over Vec, included inside the namespace of an ISA (by its vec.h). The same instructions for
// every lane and for tails, so a value never depends on its place.

// exp: ≤ 2 ulp, gradual underflow, exp(-inf) = 0, exp(x > 88.72) = inf, NaN stays NaN.
TUTTI_INLINE Vec exp(Vec x) {
  // min and max return the second operand when one is NaN.
  x = max(Vec::broadcast(-104.0f), min(Vec::broadcast(89.0f), x));
  const Vec n = round_even(mul(x, Vec::broadcast(1.44269504088896341f)));
  Vec r = fma(n, Vec::broadcast(-0.693359375f), x);  // ln 2 in two parts, the first with few bits: n * part is exact
  r = fma(n, Vec::broadcast(2.12194440e-4f), r);
  Vec p = Vec::broadcast(1.9875691500e-4f);
  p = fma(p, r, Vec::broadcast(1.3981999507e-3f));
  p = fma(p, r, Vec::broadcast(8.3334519073e-3f));
  p = fma(p, r, Vec::broadcast(4.1665795894e-2f));
  p = fma(p, r, Vec::broadcast(1.6666665459e-1f));
  p = fma(p, r, Vec::broadcast(5.0000001201e-1f));
  p = add(fma(p, mul(r, r), r), Vec::broadcast(1.0f));
  return scale_by_power(p, n);
}

// 1 / (1 + exp(-x)); 0 and 1 at the ends.
TUTTI_INLINE Vec sigmoid(Vec x) {
  const Vec one = Vec::broadcast(1.0f);
  return div(one, add(one, exp(sub(Vec::zero(), x))));
}

TUTTI_INLINE Vec silu(Vec x) {
  return mul(x, sigmoid(x));
}

// log(1 + exp(x)), x itself for large x. log1p(e) = 2 atanh(e / (2 + e)), e in [0, 1]: a series in s² <= 1/9.
TUTTI_INLINE Vec softplus(Vec x) {
  const Vec e = exp(min(x, sub(Vec::zero(), x)));
  const Vec s = div(e, add(e, Vec::broadcast(2.0f)));
  const Vec z = mul(s, s);
  Vec p = Vec::broadcast(2.0f / 17);
  p = fma(p, z, Vec::broadcast(2.0f / 15));
  p = fma(p, z, Vec::broadcast(2.0f / 13));
  p = fma(p, z, Vec::broadcast(2.0f / 11));
  p = fma(p, z, Vec::broadcast(2.0f / 9));
  p = fma(p, z, Vec::broadcast(2.0f / 7));
  p = fma(p, z, Vec::broadcast(2.0f / 5));
  p = fma(p, z, Vec::broadcast(2.0f / 3));
  p = fma(p, z, Vec::broadcast(2.0f));
  return fma(p, s, max(Vec::zero(), x));
}
