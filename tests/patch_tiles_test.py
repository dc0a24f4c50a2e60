#!/usr/bin/env python3
"""The kernels on matrix units whose blocks bring patches run on the CPU, a thread for each of a block's (tests/lanes/), exactly as plain loops
have it.

Usage: patch_tiles_test.py [-v]
"""
import math
import shutil
import sys
import unittest

from run_lanes import expect_exact

# Groups of few channels: direction, dtype, group, batch, channels, height, width, padding, stride, filter, tile (rows, columns, images), more
GROUPED = [
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

# In planes also rows of runs of 2, 4 and 8 pixels, to and from
PLANES = [
    ("fwd", "f16", 4, 1, 64, 8, 24, (1, 1), (1, 1), (3, 3), (4, 24, 1), {"HAS_BIAS": 1, "HAS_RESIDUAL": 1}),
    ("fwd", "bf16", 8, 2, 80, 9, 28, (1, 1), (2, 2), (3, 3), (4, 8, 2), {"HAS_BIAS": 1}),
    ("bwd_d", "f16", 16, 2, 64, 8, 28, (1, 1), (2, 2), (3, 3), (4, 16, 1), {}),
    ("bwd_d", "f16", 4, 3, 96, 7, 8, (1, 1), (1, 1), (3, 3), (7, 8, 2), {}),
    # As many runs to store as no whole turn of the threads has
    ("fwd", "f16", 8, 1, 128, 5, 24, (1, 1), (1, 1), (3, 3), (4, 24, 1), {}),
]

# Whole planes
GROUPED_WHOLE = [
    ("fwd", "f16", 16, 2, 64, 14, 14, (1, 1), (1, 1), (3, 3), (14, 16, 1), {"HAS_BIAS": 1, "HAS_RESIDUAL": 1}),
    ("fwd", "bf16", 32, 3, 96, 7, 7, (1, 1), (1, 1), (3, 3), (7, 8, 2), {"HAS_BIAS": 1}),
    ("fwd", "f16", 4, 1, 96, 6, 21, (1, 1), (1, 1), (3, 3), (7, 24, 1), {"HAS_BIAS": 1}),
    ("fwd", "f16", 8, 2, 80, 14, 13, (1, 0), (2, 2), (3, 3), (7, 8, 2), {}),
    ("fwd", "f16", 8, 1, 16, 5, 26, (0, 2), (1, 1), (1, 4), (7, 32, 1), {"HAS_BIAS": 1}),
    ("bwd_d", "f16", 32, 2, 64, 14, 14, (1, 1), (2, 2), (3, 3), (7, 8, 2), {}),
    ("bwd_d", "bf16", 4, 1, 32, 7, 11, (0, 1), (2, 1), (2, 3), (4, 16, 1), {}),
    ("bwd_d", "f16", 16, 1, 80, 7, 10, (2, 1), (1, 2), (2, 1), (7, 8, 1), {}),
    ("bwd_d", "f16", 32, 3, 64, 7, 7, (1, 1), (1, 1), (3, 3), (7, 8, 4), {}),
]

# Depthwise, by Toeplitz and Hankel matrices: direction, dtype, batch, channels, height, width, padding, filter, tile (rows, columns, images), lines of a strip, channels, more
TOEPLITZ = [
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

# Depthwise, by diagonal matrices: direction, dtype, batch, channels, height, width, padding, stride, filter, tile, channels, more
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
    ("bwd_w", "f16", 1, 16, 15, 19, (2, 2), (2, 2), (5, 5), (4, 16, 1), 16, {"PARTS": 2}),
    ("bwd_w", "f16", 1, 16, 12, 19, (1, 1), (1, 1), (4, 3), (4, 16, 1), 16, {"PARTS": 2}),
    ("bwd_w", "f16", 5, 24, 7, 7, (2, 2), (1, 1), (5, 5), (7, 8, 2), 16, {"PARTS": 1, "CLUSTER": 8, "SPLIT": 0}),
    ("bwd_w", "f16", 1, 40, 14, 14, (1, 1), (1, 1), (3, 3), (7, 16, 1), 32, {"PARTS": 1, "CLUSTER": 2, "SPLIT": 0}),
    ("bwd_w", "f16", 1, 64, 13, 15, (1, 0), (2, 1), (3, 5), (4, 16, 1), 64, {"PARTS": 3}),
]

# Depthwise, whole planes by Toeplitz matrices: direction, dtype, batch, channels, height, width, padding, filter, 16 rows and planes of a block, more
DEPTHWISE_WHOLE = [
    ("fwd", "f16", 2, 6, 20, 24, (1, 1), (3, 3), (2, 2), {"HAS_BIAS": 1}),
    ("fwd", "bf16", 1, 3, 9, 8, (3, 3), (7, 7), (1, 1), {}),
    ("fwd", "f16", 1, 2, 41, 16, (2, 1), (5, 3), (2, 1), {}),
    ("bwd_d", "f16", 1, 4, 16, 40, (1, 2), (3, 5), (1, 4), {}),
    ("bwd_d", "bf16", 3, 2, 14, 14, (3, 4), (7, 9), (1, 2), {}),
    ("fwd", "f16", 1, 3, 35, 28, (2, 2), (5, 5), (1, 1), {"HAS_BIAS": 1}),
]


def constants(kernel, direction, dtype, batch, c, h, w, pad, taps, tile, channels, stride=(1, 1), group=1,
              layout="nhwc"):
    """What all of them are told."""
    rows, columns, images = tile
    kernel += "_weights" if direction == "bwd_w" else ""
    return {"KERNEL": kernel, "KERNEL_FILE": f'"kernels/gpu/{kernel}.cu"', f"DIRECTION_{direction}": 1, f"DTYPE_{dtype}": 1,
            f"LAYOUT_{layout}": 1, "WIDE": 0, "GROUP": group, "BATCH": batch, "SIZE_C": c, "SIZE_H": h, "SIZE_W": w, "PAD_TOP": pad[0],
            "PAD_LEFT": pad[1], "R": taps[0], "S": taps[1], "STRIDE_H": stride[0], "STRIDE_W": stride[1], "DILATION_H": 1, "DILATION_W": 1,
            "CHANNELS": channels, "ROWS": rows, "COLUMNS": columns, "IMAGES": images, "THREADS": 128, "BLOCKS": 1, "HAS_BIAS": 0,
            "HAS_RESIDUAL": 0, "RESIDUAL_AFTER": 0, "ACTIVATION": "activate_none", "NUMBERS(k)": "0.0f, 0.0f", "POOL_none": 1, "SPLIT": 1, "CLUSTER": 1}


def sixteens(tile):
    return (tile[1] * tile[2] + 15) // 16


def grouped(case, layout="nhwc"):
    direction, dtype, group, batch, c, h, w, pad, stride, taps, tile, more = case
    return {**constants("grouped_mma", direction, dtype, batch, c, h, w, pad, taps, tile, 64, stride, group, layout), "PHASE_H": pad[0] % stride[0],
            "PHASE_W": pad[1] % stride[1], "ASKS_AHEAD": 1, "THREADS": 128 if direction == "bwd_w" else 128 * sixteens(tile), **more}


def grouped_planes(case):
    """Of NCHW: the longest runs that rows are made of."""
    direction, w, pad, stride, taps = case[0], case[6], case[7], case[8], case[9]
    q = (w + 2 * pad[1] - taps[1]) // stride[1] + 1
    read, written = (w, q) if direction == "fwd" else (q, w)
    return {**grouped(case, "nchw"), "LOAD_RUN": math.gcd(read, 4), "STORE_RUN": math.gcd(written, 8)}


def grouped_whole(case):
    """Whole planes of NCHW, one tile an image."""
    direction, h, w, pad, stride, taps, tile = *(case[i] for i in (0, 5, 6, 7, 8, 9, 10)),
    p, q = [(size + 2 * pad[i] - taps[i]) // stride[i] + 1 for i, size in enumerate((h, w))]
    read, written = (h * w, p * q) if direction == "fwd" else (p * q, h * w)
    return {**grouped(case, "nchw"), "WHOLE": 1, "IN_PLANE": read, "OUT_PLANE": written}


def toeplitz(case):
    direction, dtype, batch, c, h, w, pad, taps, tile, lines, channels, more = case
    rows, columns, _ = tile
    steps = (taps[1] + 22) // 16
    pitch = columns * 2 - 16 + 32 * steps
    return {**constants("depthwise_mma", direction, dtype, batch, c, h, w, pad, taps, tile, channels), "BANDS": rows // lines, "BAND": lines,
            "STEPS": steps, "TAP_ROWS": taps[0] if taps[0] <= 9 else 4, "PITCH": pitch, "IMAGE_BYTES": (rows + taps[0] - 1) * pitch, **more}


def diagonal(case):
    direction, dtype, batch, c, h, w, pad, stride, taps, tile, channels, more = case
    return {**constants("depthwise_diagonal", direction, dtype, batch, c, h, w, pad, taps, tile, channels, stride),
            "THREADS": 4 * channels * sixteens(tile), "ASKS_AHEAD": 1, **more}


def depthwise_whole(case):
    direction, dtype, batch, c, h, w, pad, taps, (bands, channels), more = case
    rows = min(h, 16 * bands)
    return {**constants("depthwise_planes", direction, dtype, batch, c, h, w, pad, taps, (rows, w, 1), channels, layout="nchw"), "HEIGHT": h,
            "THREADS": 32 * channels * bands, "PIECE": math.gcd(w, 8), "ABOVE": pad[0], "BEFORE": pad[1], **more}


@unittest.skipIf(shutil.which("g++") is None, "there is no g++")
class PatchTiles(unittest.TestCase):
    def test_groups_of_few_channels(self):
        expect_exact(self, "patch_tiles", GROUPED, grouped)

    def test_groups_of_few_channels_in_planes(self):
        results = [case for case in GROUPED if case[0] != "bwd_w"]
        expect_exact(self, "patch_tiles", results + PLANES, grouped_planes)

    def test_groups_of_few_channels_in_whole_planes(self):
        expect_exact(self, "patch_tiles", GROUPED_WHOLE, grouped_whole)

    def test_depthwise_by_toeplitz_matrices(self):
        expect_exact(self, "patch_tiles", TOEPLITZ, toeplitz)

    def test_depthwise_by_diagonal_matrices(self):
        expect_exact(self, "patch_tiles", DIAGONAL, diagonal)

    def test_depthwise_of_whole_planes(self):
        expect_exact(self, "patch_tiles", DEPTHWISE_WHOLE, depthwise_whole)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
