#!/usr/bin/env python3
"""The kernel of rows that registers hold runs on the CPU, a thread for each of a block's (tests/lanes/), which meet as CUDA's do.

Usage: whole_rows_test.py [-v]
"""
import sys
import unittest

from run_lanes import expect_exact

# dtype, operation, rows, length, V, threads that share a row, its places of each
CASES = [
    ("f32", "sum", 9, 7, 1, 8, 1), ("f16", "sum", 3, 12544, 8, 512, 4), ("f32", "sum", 11, 768, 4, 32, 6),
    ("f16", "sum", 5, 1283, 8, 64, 3), ("f32", "sum", 2, 4099, 4, 256, 5),
    ("f16", "softmax", 17, 384, 8, 16, 3), ("f32", "softmax", 9, 768, 4, 32, 6), ("f16", "softmax", 3, 18710, 8, 512, 5),
    ("f32", "softmax", 3, 18710, 4, 512, 10), ("f16", "softmax", 5, 70, 8, 8, 3), ("f32", "softmax", 5, 1283, 4, 128, 3),
]


def constants(case):
    dtype, op, rows, length, v, parts, k = case
    edges = length % v != 0
    least = (length - (v - 1 if edges else 0)) // v
    along = "apart" if edges else "together"
    # A result of about 1: the host's scale is not a softmax's.
    chain = f"const float t = v0 * {length}.0f * v2 + v1 + v3;"
    return {f"OP_{op}": 1, "ROWS": rows, "LENGTH": length, "V": v, "PARTS": parts, "K": k, "SURE": least // parts, "EDGES": int(edges), "CLUSTER": 1,
            "THREADS": max(256, parts), "BLOCKS": 1, "FROM_TYPE": dtype, "TO_TYPE": dtype, "WIDE": 0, "NORMALIZED": "v0", "INPUTS": 3,
            "OPERANDS(X)": f"X(0, 1, f32, {along}) X(1, 2, f32, by_row) X(2, 3, {dtype}, together)" if op == "softmax" else "",
            "OUTER_RANK": 1, "ROW_RANK": 1, "CHAIN": chain, "RESULT": "t"}


class WholeRows(unittest.TestCase):
    def test_every_division_of_a_row(self):
        expect_exact(self, "whole_rows", CASES, constants)

    def test_longer_rows(self):
        # dtype, rows, length, V, rows of a block
        cases = [("f32", 2, 8200, 4, 1), ("f16", 3, 12008, 8, 1), ("f32", 7, 1000, 2, 4), ("f32", 19, 60, 4, 16)]
        expect_exact(self, "whole_rows", cases, lambda case: {
            "OP_sum": 1, "FROM_TYPE": case[0], "TO_TYPE": case[0], "ROWS": case[1], "LENGTH": case[2], "V": case[3], "COLS": case[4],
            "CLUSTER": 1, "INNER_IS_ONE": 1, "THREADS": 256, "WIDE": 0})


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
