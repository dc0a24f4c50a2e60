#!/usr/bin/env python3
"""The depthwise kernels for matrix units run on the CPU, a thread for each of a block's (tests/lanes/), exactly as plain loops have it.

Usage: depthwise_mma_test.py [-v]
"""
import shutil
import sys
import unittest

from run_lanes import expect_exact

# direction, dtype, batch, channels, height, width, padding, filter, tile (rows, columns, images), lines of a strip, channels, more
CASES = [
    ("fwd", "f16", 1, 24, 9, 21, (3, 3), (7, 7), (14, 24, 1), 7, 16, {"HAS_BIAS": 1}),
    ("fwd", "bf16", 3, 16, 7, 7, (3, 3), (7, 7), (7, 8, 2), 1, 16, {"HAS_BIAS": 1}),
    ("fwd", "f16", 1, 32, 14, 14, (2, 2), (5, 5), (14, 16, 1), 2, 32, {}),
    ("fwd", "f16", 2, 8, 6, 13, (0, 4), (2, 9), (4, 16, 2), 4, 16, {}),
    ("bwd_d", "f16", 1, 16, 10, 18, (1, 2), (3, 5), (8, 32, 1), 4, 16, {}),
    ("bwd_d", "bf16", 1, 16, 12, 9, (0, 3), (9, 4), (8, 16, 1), 2, 16, {}),
    ("fwd", "f16", 1, 8, 11, 14, (6, 10), (13, 21), (8, 16, 1), 4, 8, {"HAS_BIAS": 1}),
    ("bwd_d", "bf16", 1, 8, 12, 7, (9, 4), (18, 10), (7, 8, 1), 7, 8, {}),
    ("bwd_w", "f16", 1, 24, 9, 21, (3, 3), (7, 7), (8, 24, 1), 8, 16, {"PARTS": 2}),
    ("bwd_w", "bf16", 5, 16, 7, 7, (1, 1), (3, 3), (7, 8, 2), 7, 16, {"PARTS": 2}),
    ("bwd_w", "f16", 1, 16, 14, 19, (0, 2), (8, 5), (14, 16, 1), 14, 16, {"PARTS": 1}),
]

# By diagonal matrices: direction, dtype, batch, channels, height, width, padding, stride, filter, tile, channels, more
DIAGONAL = [
    ("fwd", "f16", 1, 40, 9, 21, (1, 1), (1, 1), (3, 3), (7, 24, 1), 32, {"HAS_BIAS": 1}),
    ("fwd", "bf16", 3, 16, 7, 7, (2, 2), (1, 1), (5, 5), (7, 8, 2), 16, {"HAS_BIAS": 1}),
    ("fwd", "f16", 1, 48, 13, 18, (1, 2), (2, 2), (5, 4), (4, 8, 1), 48, {}),
    ("fwd", "f16", 1, 16, 12, 16, (3, 3), (1, 2), (7, 7), (8, 16, 1), 16, {}),
    ("fwd", "f16", 1, 16, 9, 20, (0, 1), (1, 1), (1, 3), (7, 16, 1), 16, {}),
    ("bwd_d", "f16", 1, 24, 10, 18, (1, 2), (1, 1), (3, 5), (8, 32, 1), 16, {}),
    ("bwd_d", "bf16", 2, 64, 8, 9, (0, 1), (1, 1), (2, 3), (4, 16, 1), 64, {}),
    ("bwd_w", "f16", 1, 40, 9, 21, (1, 1), (1, 1), (3, 3), (8, 24, 1), 32, {"PARTS": 2}),
    ("bwd_w", "bf16", 5, 16, 7, 7, (3, 3), (1, 1), (7, 7), (7, 8, 2), 16, {"PARTS": 2}),
    ("bwd_w", "f16", 1, 48, 14, 19, (0, 2), (2, 2), (5, 4), (7, 16, 1), 48, {"PARTS": 1}),
    ("bwd_w", "f16", 2, 16, 9, 20, (1, 0), (1, 1), (3, 1), (7, 16, 1), 16, {"PARTS": 2}),
    ("bwd_w", "f16", 1, 64, 13, 15, (1, 0), (2, 1), (3, 5), (4, 16, 1), 64, {"PARTS": 3}),
]
# Of all.
COMMON = {"LAYOUT_nhwc": 1, "WIDE": 0, "STRIDE_H": 1, "STRIDE_W": 1, "DILATION_H": 1, "DILATION_W": 1, "THREADS": 128, "BLOCKS": 1,
          "HAS_BIAS": 0, "HAS_RESIDUAL": 0, "SPLIT": 1, "RESIDUAL_AFTER": 0, "ACTIVATION": "activate_none", "SLOPE": "0.0f",
          "POOL_none": 1}


def constants(case):
    direction, dtype, batch, c, h, w, pad, taps, (rows, columns, images), lines, channels, more = case
    steps = (taps[1] + 22) // 16
    pitch = columns * 2 - 16 + 32 * steps
    return {**COMMON, f"DIRECTION_{direction}": 1, f"DTYPE_{dtype}": 1, "BATCH": batch, "SIZE_C": c, "SIZE_H": h, "SIZE_W": w,
            "PAD_TOP": pad[0], "PAD_LEFT": pad[1], "R": taps[0], "S": taps[1], "COLUMNS": columns // 8, "BANDS": rows // lines,
            "IMAGES": images, "BAND": lines, "CHANNELS": channels, "PITCH": pitch, "STEPS": steps, "ROWS": rows,
            "TAP_ROWS": taps[0] if taps[0] <= 9 else 4, "IMAGE_BYTES": (rows + taps[0] - 1) * pitch, **more}


def constants_of_diagonal(case):
    direction, dtype, batch, c, h, w, pad, stride, taps, (rows, columns, images), channels, more = case
    sixteens = (columns * images + 15) // 16
    return {**COMMON, "DIAGONAL": 1, f"DIRECTION_{direction}": 1, f"DTYPE_{dtype}": 1, "BATCH": batch, "SIZE_C": c, "SIZE_H": h,
            "SIZE_W": w, "PAD_TOP": pad[0], "PAD_LEFT": pad[1], "STRIDE_H": stride[0], "STRIDE_W": stride[1], "R": taps[0],
            "S": taps[1], "COLUMNS": columns, "ROWS": rows, "IMAGES": images, "CHANNELS": channels,
            "THREADS": 4 * channels * sixteens, **more}


@unittest.skipIf(shutil.which("g++") is None, "there is no g++")
class DepthwiseMma(unittest.TestCase):
    def test_every_direction_is_exact(self):
        expect_exact(self, "depthwise_mma", CASES, constants)

    def test_by_diagonal_matrices_too(self):
        expect_exact(self, "depthwise_mma", DIAGONAL, constants_of_diagonal)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
