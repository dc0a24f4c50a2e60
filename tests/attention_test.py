#!/usr/bin/env python3
"""Attention's kernel for NVIDIA's matrix units runs on the CPU, a thread for each of a block's (tests/lanes/), as plain loops have it.

Usage: attention_test.py [-v]
"""
import sys
import unittest

from run_lanes import expect_exact

# dtype, depth, tile (warps, tiles of queries, sides, keys), heads, queries, keys, scale
CASES = [
    ("f16", 512, (4, 1, 2, 32), 1, 70, 40, 0.0442),
    ("bf16", 512, (2, 1, 2, 32), 1, 40, 33, 0.2),
    ("f16", 160, (2, 1, 2, 64), 2, 17, 130, 0.079),
    ("bf16", 96, (2, 1, 2, 64), 1, 31, 64, 1.0),
    ("f16", 40, (4, 2, 1, 64), 1, 130, 70, 0.158),
    ("bf16", 256, (4, 1, 1, 32), 1, 3, 70, 0.0625),
]


def constants(case):
    dtype, depth, (warps, tiles, sides, keys), heads, queries, count, scale = case
    return {f"DTYPE_{dtype}": 1, "DEPTH": depth, "WARPS": warps, "TILES_Q": tiles, "SIDES": sides, "KEYS": keys, "THREADS": 32 * warps * sides,
            "BLOCKS": 1, "WIDE": 0, "QUERY_BLOCKS": -(-queries // (16 * warps * tiles)), "HEADS": heads, "NUMBER_OF_QUERIES": queries,
            "NUMBER_OF_KEYS": count, "SCALE": f"{scale}f", "ACTIVATION(sum, slope)": "sum"}


class Attention(unittest.TestCase):
    def test_tiles_of_one_and_of_two_warps(self):
        expect_exact(self, "attention", CASES, constants)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
