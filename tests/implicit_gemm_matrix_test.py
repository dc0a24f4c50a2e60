#!/usr/bin/env python3
"""implicit_gemm_matrix.cl as NVIDIA's OpenCL gets it, run on the CPU, a thread for each of a block's (tests/lanes/), exactly as plain loops have it.

Usage: implicit_gemm_matrix_test.py [-v]
"""
import shutil
import sys
import unittest

from run_lanes import expect_exact

# dtype, layout, groups, batch, in and out channels, height, width, padding, stride, filter, tile (pixels, channels, waves along each), parts, more
CASES = [
    ("f16", "nhwc", 1, 1, 64, 72, 5, 15, (0, 0), (1, 1), (1, 1), (64, 64, 2, 2), 1, {"HAS_BIAS": 1, "HAS_RESIDUAL": 1}),
    ("f16", "nhwc", 1, 2, 40, 136, 9, 8, (1, 1), (1, 2), (3, 2), (128, 128, 2, 2), 1, {"HAS_BIAS": 1}),
    ("bf16", "nhwc", 2, 1, 96, 64, 7, 9, (1, 0), (1, 1), (3, 1), (64, 32, 2, 1), 1, {"HAS_RESIDUAL": 1, "STAGES": 4}),
    ("f16", "nhwc", 1, 1, 160, 36, 5, 7, (0, 0), (1, 1), (1, 1), (64, 128, 1, 2), 2, {}),
    ("f16", "nhwc", 1, 1, 3, 24, 15, 13, (3, 3), (2, 2), (7, 7), (64, 32, 2, 1), 1, {"HAS_BIAS": 1, "ROWS": 1}),
    ("bf16", "nchw", 1, 1, 20, 30, 8, 8, (1, 1), (1, 1), (3, 3), (64, 32, 2, 1), 1, {"HAS_BIAS": 1}),
    ("f32", "nhwc", 1, 1, 36, 40, 7, 9, (1, 0), (1, 1), (3, 1), (64, 64, 2, 1), 1, {"HAS_BIAS": 1, "HAS_RESIDUAL": 1}),
    ("f32", "nhwc", 1, 1, 2, 12, 7, 8, (1, 2), (1, 1), (3, 3), (64, 32, 2, 1), 1, {"ROWS": 1}),
    ("f16", "nhwc", 1, 1, 24, 40, 9, 7, (1, 0), (2, 1), (3, 2), (64, 32, 2, 1), 1, {"DIRECTION_bwd_d": 1}),
    ("f16", "nhwc", 1, 1, 136, 72, 5, 15, (1, 1), (1, 1), (3, 3), (64, 64, 2, 2), 1, {"HAS_BIAS": 1, "HAS_RESIDUAL": 1, "CHUNKS": 8, "STAGES": 4}),
    ("f32", "nhwc", 1, 1, 64, 40, 7, 9, (0, 1), (2, 1), (1, 3), (128, 64, 2, 2), 2, {"CHUNKS": 8}),
    ("bf16", "nchw", 2, 1, 24, 36, 5, 7, (0, 0), (1, 2), (1, 1), (64, 32, 2, 1), 1, {"DIRECTION_bwd_d": 1}),
]


def constants(case):
    dtype, layout, groups, batch, c, k, h, w, pad, stride, (r, s), (bp, bc, waves_p, waves_c), parts, more = case
    rows, chunk, chunks = more.get("ROWS", 0), 4 if dtype == "f32" else 8, more.get("CHUNKS", 4)
    p, q = (h + 2 * pad[0] - r) // stride[0] + 1, (w + 2 * pad[1] - s) // stride[1] + 1
    gradient = "DIRECTION_bwd_d" in more
    steps, channels = (k // groups, c // groups) if gradient else (c // groups * (s if rows else 1), k // groups)
    gather, in_chunks = layout == "nchw" or steps // (s if rows else 1) % chunk != 0, (steps + chunk - 1) // chunk
    pixels = batch * -(-h // stride[0]) * -(-w // stride[1]) if gradient else batch * p * q
    return {**({} if gradient else {"DIRECTION_fwd": 1}), f"DTYPE_{dtype}": 1, f"LAYOUT_{layout}": 1, "MATRIX_mma_ptx": 1, "WIDE": 0, "COMPACT": 0, "GROUPS": groups,
            "BATCH": batch, "SIZE_C": c, "SIZE_K": k, "SIZE_H": h, "SIZE_W": w, "SIZE_P": p, "SIZE_Q": q, "PAD_H": pad[0], "PAD_W": pad[1],
            "OUT_PIXELS": f"({pixels})", "OUT_PAD": f"({-(-channels // bc) * bc})", "PARTS": parts, "SPLIT": int(parts > 1),
            "STRIDE_H": stride[0], "STRIDE_W": stride[1], "R": r, "S": 1 if rows else s, "FILTER_S": s, "DILATION_H": 1, "DILATION_W": 1,
            "BP": bp, "BC": bc, "WAVES_P": waves_p, "WAVES_C": waves_c, "CHUNKS": chunks, "EXACT": int(in_chunks % chunks == 0),
            "WHOLE": int(steps % chunk == 0), "GATHER": int(gather), "ROWS": 0, "STAGES": 3, "THREADS": 32 * waves_p * waves_c,
            "WHOLE_RUNS": int(layout == "nhwc" and channels % chunk == 0), "HAS_BIAS": 0, "HAS_RESIDUAL": 0, "RESIDUAL_AFTER": 0,
            "ACTIVATION": "activate_none", "NUMBERS(k)": "0.0f, 0.0f", "POOL_none": 1, **more}


@unittest.skipIf(shutil.which("g++") is None or shutil.which("clang-19") is None, "there is no g++, or no clang-19")
class Matrix(unittest.TestCase):
    def test_every_way_is_exact(self):
        expect_exact(self, "implicit_gemm_matrix", CASES, constants, "implicit_gemm_matrix.cl")


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
