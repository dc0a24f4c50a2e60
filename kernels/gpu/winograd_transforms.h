// One dimension of the transforms of Winograd's F(M, 3), in place, on values `step` apart. The matrices, and
// what their roundings amount to, are in docs/accuracy.md.
//
// The host defines M: 2 or 4.
#pragma once

#define A (M + 2)  // a tile's inputs in one dimension

// The points of F(4, 3) beside 0 and infinity, and their powers: fp32 numbers, all of them.
#define P 0.6875f
#define Q 1.4375f
#define P2 (P * P)
#define Q2 (Q * Q)

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
  const float even_p = F_FMA(-Q2, d2, d4), odd_p = F_FMA(-Q2, d1, d3);
  const float even_q = F_FMA(-P2, d2, d4), odd_q = F_FMA(-P2, d1, d3);
  d[0] = F_FMA(P2 * Q2, d0, F_FMA(-(P2 + Q2), d2, d4));
  d[step] = F_FMA(P, odd_p, even_p);
  d[2 * step] = F_FMA(-P, odd_p, even_p);
  d[3 * step] = F_FMA(Q, odd_q, even_q);
  d[4 * step] = F_FMA(-Q, odd_q, even_q);
  d[5 * step] = F_FMA(P2 * Q2, d1, F_FMA(-(P2 + Q2), d3, d5));
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
  const float sum_p = m[step] + m[2 * step], difference_p = m[step] - m[2 * step];
  const float sum_q = m[3 * step] + m[4 * step], difference_q = m[3 * step] - m[4 * step];
  m[0] = m0 + sum_p + sum_q;
  m[step] = F_FMA(Q, difference_q, P * difference_p);
  m[2 * step] = F_FMA(Q2, sum_q, P2 * sum_p);
  m[3 * step] = F_FMA(Q2 * Q, difference_q, F_FMA(P2 * P, difference_p, m5));
#endif
}

// Three weights (the values `from_step` apart) become A: the rows of G, four roundings at most, that of a
// constant among them.
F_DEVICE void transform_filter(const float* from, int from_step, float* to, int to_step) {
  const float w0 = from[0], w1 = from[from_step], w2 = from[2 * from_step];
#if M == 2
  to[0] = w0;
  to[to_step] = 0.5f * (w0 + w2 + w1);
  to[2 * to_step] = 0.5f * (w0 + w2 - w1);
  to[3 * to_step] = w2;
#else
  const float even_p = F_FMA(P2, w2, w0), even_q = F_FMA(Q2, w2, w0);
  const float at_p = 1.0f / (2.0f * P2 * (P2 - Q2)), at_q = 1.0f / (2.0f * Q2 * (Q2 - P2));
  to[0] = 1.0f / (P2 * Q2) * w0;
  to[to_step] = at_p * F_FMA(P, w1, even_p);
  to[2 * to_step] = at_p * F_FMA(-P, w1, even_p);
  to[3 * to_step] = at_q * F_FMA(Q, w1, even_q);
  to[4 * to_step] = at_q * F_FMA(-Q, w1, even_q);
  to[5 * to_step] = w2;
#endif
}
