#!/usr/bin/env python3
"""onnx_node_cases.py FOLDER: writes the node tests that this python3's package onnx has into FOLDER/node, as libonnx-testdata has
those of an older one, and links the other kinds that it brings along. `./dev test-full` runs it."""
import os
import pathlib
import sys
import warnings

import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test import loader
from onnx.backend.test.case.node import collect_testcases


def write(case, folder):
    """Tensors alone; false of one with sequences, maps or optional values."""
    graph = case.model.graph
    if any(not value.type.HasField("tensor_type") for value in (*graph.input, *graph.output)):
        return False
    for number, data in enumerate(case.data_sets):
        at = folder / f"test_data_set_{number}"
        at.mkdir(parents=True)
        for prefix, values, arrays in (("input", graph.input, data[0]), ("output", graph.output, data[1])):
            for i, (value, array) in enumerate(zip(values, arrays)):
                tensor = array if isinstance(array, TensorProto) else numpy_helper.from_array(array, value.name)
                (at / f"{prefix}_{i}.pb").write_bytes(tensor.SerializeToString())
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    return True


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True)
    warnings.simplefilter("ignore")  # overflows that the cases are about
    cases = collect_testcases(None)
    written = sum(write(case, folder / "node" / case.name) for case in cases)
    for kind in "simple", "pytorch-converted", "pytorch-operator", "light":
        if os.path.isdir(os.path.join(loader.DATA_DIR, kind)):
            (folder / kind).symlink_to(os.path.join(loader.DATA_DIR, kind))
    print(f"onnx {onnx.__version__}: {written} node tests of {len(cases)}; the others are of sequences, maps and optional values")


if __name__ == "__main__":
    main()
