"""Whole networks by NumPy arrays: sizes, names, dtypes, threads, errors. The ONNX file is written byte by byte."""
import os
import struct
import threading

import numpy as np
import pytest

import faltung


def varint(value):
    value &= (1 << 64) - 1
    digits = []
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def field(number, value):
    """A protobuf field: an integer, or bytes and text with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(name, array):
    return b"".join(field(1, size) for size in array.shape) + field(2, 1) + field(8, name) + field(9, array.astype("<f4").tobytes())


def info(name, sizes):
    dims = b"".join(field(1, field(1, size) if size else field(2, "open")) for size in sizes)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))


def node(op, inputs, output):
    return b"".join(field(1, name) for name in inputs) + field(2, output) + field(4, op)


@pytest.fixture
def network(tmp_path):
    """y = relu(conv(x, w)) + b, z = -y; x is (open, 2, open, open)."""
    w = np.arange(3 * 2 * 3 * 3, dtype=np.float32).reshape(3, 2, 3, 3) % 5 - 2
    graph = (field(1, node("Conv", ["x", "w"], "c")) + field(1, node("Relu", ["c"], "r")) + field(1, node("Add", ["r", "b"], "y"))
             + field(1, node("Neg", ["y"], "z")) + field(5, tensor("w", w)) + field(11, info("x", [0, 2, 0, 0])) + field(11, info("b", [1]))
             + field(12, info("y", [])) + field(12, info("z", [])))
    model = field(1, 8) + field(8, field(2, 17)) + field(7, graph) + field(14, field(1, "author") + field(2, "nobody"))
    file = tmp_path / "model.onnx"
    file.write_bytes(model)
    return faltung.Network(file, threads=2), w


def expected(x, w, b):
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    return np.maximum(np.einsum("nchwrs,kcrs->nkhw", windows, w), 0) + b


def test_runs_for_every_size(network):
    net, w = network
    assert [(t.name, t.dtype, t.shape) for t in net.inputs] == [("x", np.float32, (None, 2, None, None)), ("b", np.float32, (1,))]
    assert [t.shape for t in net.outputs((4, 2, 5, 6), (1,))] == [(4, 3, 3, 4)] * 2
    b = np.array([7], np.float32)
    for shape in ((1, 2, 5, 5), (3, 2, 8, 4), (1, 2, 5, 5)):
        x = np.random.default_rng(1).integers(-3, 4, shape).astype(np.float32)
        y, z = net(x, b=b)
        np.testing.assert_array_equal(y, expected(x, w, b))
        np.testing.assert_array_equal(z, -y)
    turned = x.transpose(0, 1, 3, 2)  # not contiguous
    np.testing.assert_array_equal(net(turned, b)[0], expected(turned, w, b))


def test_says_what_the_file_says(network):
    assert network[0].metadata("author") == "nobody" and network[0].metadata("licence") is None


def test_threads(network):
    net, w = network
    wrong = []

    def work(n):
        x, b = np.full((n, 2, 6, 6), n, np.float32), np.zeros(1, np.float32)
        for _ in range(20):
            if not np.array_equal(net(x, b)[0], expected(x, w, b)):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_errors(network, tmp_path):
    net, _ = network
    x, b = np.zeros((1, 2, 5, 5), np.float32), np.zeros(1, np.float32)
    with pytest.raises(faltung.BadProblem, match="'x' is of float32 with 4 dimensions; given is an array of float64 with 4"):
        net(x.astype(float), b)
    with pytest.raises(faltung.BadProblem, match="does not fit"):
        net(np.zeros((1, 3, 5, 5), np.float32), b)
    for arguments, named in (((x,), {}), ((x, b, b), {}), ((x, b), {"b": b}), ((x,), {"c": b})):
        with pytest.raises(TypeError, match="inputs are x, b"):
            net(*arguments, **named)
    with pytest.raises(faltung.BadFile, match="none.onnx"):
        faltung.Network(tmp_path / "none.onnx")
    (tmp_path / "short.onnx").write_bytes(struct.pack("<I", 7))
    with pytest.raises(faltung.BadFile, match="short.onnx"):
        faltung.Network(str(tmp_path / "short.onnx"))


def test_names_of_any_kind(network, tmp_path):
    graph = field(1, node("Relu", ["self"], "y")) + field(11, info("self", [0])) + field(12, info("y", []))
    file = os.fsencode(tmp_path / "model") + b"\xe9.onnx"     # a name that is not UTF-8
    with open(file, "wb") as model:
        model.write(field(1, 8) + field(8, field(2, 17)) + field(7, graph))
    for name in (file, os.fsdecode(file)):
        assert faltung.Network(name)(**{"self": np.float32([-1, 2])}).tolist() == [0, 2]
    with pytest.raises(faltung.BadFile, match=r"none.xe9"):
        faltung.Network(os.fsencode(tmp_path) + b"/none\xe9")
