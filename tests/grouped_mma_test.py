#!/usr/bin/env python3
"""The kernels for groups of few channels run on the CPU, a thread for each of a block's (tests/lanes/), exactly as plain loops have it.

Usage: grouped_mma_test.py [-v]
"""
import shutil
import sys
import unittest

from run_lanes import expect_exact

# direction, dtype, group, batch, channels, height, width, padding, stride, filter, tile (rows, columns, images), more
CASES = [
    ("fwd", "f16", 4, 1, 96, 7, 14, (1, 1), (1, 1), (3, 3), (7, 16, 1), {"HAS_BIAS": 1, "HAS_RESIDUAL": 1}),
    ("fwd", "bf16", 16, 1, 64, 9, 25, (1, 0), (2, 2), (3, 3), (4, 8, 1), {}),
    ("fwd", "f16", 32, 3, 64, 7, 7, (1, 1), (1, 1), (3, 3), (7, 8, 2), {}),
    ("fwd", "f16", 8, 1, 16, 5, 26, (0, 2), (1, 1), (1, 4), (4, 24, 1), {"HAS_BIAS": 1}),
    ("bwd_d", "f16", 8, 1, 64, 9, 13, (1, 1), (2, 2), (3, 3), (4, 8, 1), {}),
    ("bwd_d", "bf16", 4, 1, 32, 7, 11, (0, 1), (2, 1), (2, 3), (4, 16, 1), {}),
    ("bwd_d", "f16", 16, 1, 80, 7, 10, (2, 1), (1, 2), (2, 1), (4, 8, 1), {}),
    ("bwd_d", "f16", 32, 2, 64, 14, 14, (1, 1), (2, 2), (3, 3), (7, 8, 2), {}),
    ("bwd_w", "f16", 4, 2, 80, 9, 11, (1, 1), (1, 1), (3, 3), (4, 16, 1), {"PARTS": 2}),
    ("bwd_w", "f16", 32, 3, 64, 7, 7, (1, 1), (1, 1), (3, 3), (7, 8, 2), {"PARTS": 2}),
    ("bwd_w", "bf16", 16, 1, 32, 9, 33, (1, 0), (2, 2), (3, 2), (4, 24, 1), {"PARTS": 1}),
]


def constants(case):
    direction, dtype, group, batch, c, h, w, pad, stride, taps, (rows, columns, images), more = case
    sixteens = (columns * images + 15) // 16
    return {f"DIRECTION_{direction}": 1, f"DTYPE_{dtype}": 1, "LAYOUT_nhwc": 1, "WIDE": 0, "GROUP": group, "BATCH": batch, "SIZE_C": c,
            "SIZE_H": h, "SIZE_W": w, "PAD_H": pad[0], "PAD_W": pad[1], "STRIDE_H": stride[0], "STRIDE_W": stride[1],
            "PHASE_H": pad[0] % stride[0], "PHASE_W": pad[1] % stride[1], "R": taps[0], "S": taps[1], "DILATION_H": 1, "DILATION_W": 1,
            "ROWS": rows, "COLUMNS": columns, "IMAGES": images, "THREADS": 128 if direction == "bwd_w" else 128 * sixteens, "BLOCKS": 1,
            "HAS_BIAS": 0, "HAS_RESIDUAL": 0, "RESIDUAL_AFTER": 0, "ACTIVATION": "activate_none", "SLOPE": "0.0f", "POOL_none": 1,
            "SPLIT": 1, **more}


@unittest.skipIf(shutil.which("g++") is None, "there is no g++")
class Grouped(unittest.TestCase):
    def test_every_direction_is_exact(self):
        expect_exact(self, "grouped_mma", CASES, constants)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
