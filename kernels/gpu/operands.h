// How V neighbours of a chain's operand are read: they lie together, are one number, or lie `step` apart.
#pragma once
#include "kernels/gpu/elements.h"

#define together(type, p, step, v) read_##type(p, v);
#define alone(type, p, step, v) \
  F_UNROLL                      \
  for (int j = 0; j < V; ++j) v[j] = get_##type(p, 0);
#define apart(type, p, step, v) \
  F_UNROLL                      \
  for (int j = 0; j < V; ++j) v[j] = get_##type(p, j * (step));
