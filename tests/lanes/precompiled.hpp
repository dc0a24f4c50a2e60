// What the programs of this folder include in every case: tests/run_lanes.py compiles it once, which takes
// longer than a kernel.
#include <algorithm>
#include <cstdio>
#include <random>
#include <utility>

#include "tests/lanes/lanes.hpp"
