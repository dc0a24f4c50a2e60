// Compiles the file that includes it once for each instruction set of targets.hpp: to be included before what
// is written for one of them, the -inl.hpp files among it. Which file that is the build says, by
// HWY_TARGET_INCLUDE. Without a guard: Highway's headers have theirs.
#include "kernels/cpu/targets.hpp"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>
