// One dimension of the transforms of Winograd's F(M, 3), in place, on values `step` apart. The matrices, and
// what their roundings amount to, are in docs/accuracy.md.
//
// The host defines M: 2 or 4.
#pragma once

#define A (M + 2)  // a tile's inputs in one dimension

// A values become A values: the rows of B^T.
F_DEVICE void transform_input(float* d, int step) {
#if M == 2
  const float d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step];
  d[0] = d0 - d2;
  d[step] = d1 + d2;
  d[2 * step] = d2 - d1;
  d[3 * step] = d1 - d3;
#else
  const float d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step], d5 = d[5 * step];
  const float near = d3 - 4.0f * d1, far = d4 - 4.0f * d2, odd = 2.0f * (d3 - d1), even = d4 - d2;
  d[0] = 4.0f * d0 + d4 - 5.0f * d2;
  d[step] = far + near;
  d[2 * step] = far - near;
  d[3 * step] = even + odd;
  d[4 * step] = even - odd;
  d[5 * step] = 4.0f * d1 + d5 - 5.0f * d3;
#endif
}

// A values become M: the rows of A^T.
F_DEVICE void transform_output(float* m, int step) {
#if M == 2
  const float m0 = m[0], m1 = m[step], m2 = m[2 * step], m3 = m[3 * step];
  m[0] = m0 + (m1 + m2);
  m[step] = (m1 - m2) - m3;
#else
  const float m0 = m[0], m5 = m[5 * step];
  const float sum12 = m[step] + m[2 * step], difference12 = m[step] - m[2 * step];
  const float sum34 = m[3 * step] + m[4 * step], difference34 = m[3 * step] - m[4 * step];
  m[0] = m0 + sum12 + sum34;
  m[step] = difference12 + 2.0f * difference34;
  m[2 * step] = sum12 + 4.0f * sum34;
  m[3 * step] = difference12 + 8.0f * difference34 + m5;
#endif
}

// A third of a number, correctly rounded: exact where a third is a number.
F_DEVICE float third(float a) {
  const float inverse = 0.33333334f, quotient = a * inverse;
  return F_FMA(F_FMA(-3.0f, quotient, a), inverse, quotient);
}

// Three weights (the values `from_step` apart) become A: the rows of G, three roundings at most.
F_DEVICE void transform_filter(const float* from, int from_step, float* to, int to_step) {
  const float w0 = from[0], w1 = from[from_step], w2 = from[2 * from_step];
#if M == 2
  to[0] = w0;
  to[to_step] = 0.5f * (w0 + w2 + w1);
  to[2 * to_step] = 0.5f * (w0 + w2 - w1);
  to[3 * to_step] = w2;
#else
  const float outer = w0 + w2, quarters = 0.25f * w0 + w2, middle = 0.5f * w1;
  to[0] = 0.25f * w0;
  to[to_step] = -0.5f * third(outer + w1);
  to[2 * to_step] = -0.5f * third(outer - w1);
  to[3 * to_step] = 0.5f * third(quarters + middle);
  to[4 * to_step] = 0.5f * third(quarters - middle);
  to[5 * to_step] = w2;
#endif
}
