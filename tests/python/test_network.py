"""Whole networks by NumPy arrays: sizes, names, dtypes, threads, devices, errors."""
import ctypes
import os
import struct
import threading

import numpy as np
import pytest

import faltung
from faltung import _arrays
from onnx_bytes import BOOL, FLOAT, INT64, convolution, expected, field, info, model, node, tensor


@pytest.fixture
def network(tmp_path):
    """onnx_bytes.convolution, and its filter."""
    bytes_, w = convolution()
    file = tmp_path / "model.onnx"
    file.write_bytes(bytes_)
    return faltung.Network(file, threads=2), w


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


def test_results_go_where_out_says(network):
    net, w = network
    x, b = np.full((2, 2, 6, 6), 3, np.float32), np.ones(1, np.float32)
    y, z = np.empty((2, 2, 3, 4, 4), np.float32)
    assert net(x, b, out=(y, z))[0] is y
    np.testing.assert_array_equal(y, expected(x, w, b))
    np.testing.assert_array_equal(z, -y)
    read_only = y.copy()
    read_only.flags.writeable = False
    for out, error, said in (((y,), TypeError, "outputs are y, z; out has 1"), ((y, z[:1]), faltung.BadProblem, "'z' is of shape"),
                             ((y, y), faltung.BadProblem, "overlaps"), ((read_only, z), faltung.BadProblem, "'y'.*read-only"),
                             ((y, z.astype(np.float16)), faltung.BadProblem, "'z' is of float32.*given is an array of float16"),
                             ((y.transpose(0, 1, 3, 2), z), faltung.BadProblem, "'y'.*contiguous"), ((x[:, :1], z), faltung.BadProblem, "'y'")):
        with pytest.raises(error, match=said):
            net(x, b, out=out)


def test_inputs_of_other_dtypes(tmp_path):
    file = tmp_path / "where.onnx"
    cast = node("Cast", ["i"], "f") + field(5, field(1, "to") + field(3, FLOAT) + field(20, 2))
    file.write_bytes(model([cast, node("Where", ["c", "f", "t"], "y")], [info("i", [0], INT64), info("c", [0, 1], BOOL)], ["y"],
                           [tensor("t", np.float32([0.5]))]))
    net = faltung.Network(file)
    assert [str(t.dtype) for t in net.inputs] == ["int64", "bool"]
    i, c = np.array([3, 0, -7]), np.array([[True], [False]])
    np.testing.assert_array_equal(net(i, c), np.where(c, i, 0.5))
    with pytest.raises(faltung.BadProblem, match="'i' is of int64 with 1 dimensions; given is an array of int32"):
        net(i.astype(np.int32), c)


def test_a_device_other_than_the_cpu(network, tmp_path):
    """NumPy's arrays are copied there and back; every call waits."""
    devices = [d for d in faltung.devices() if d.id.startswith("cuda:") or d.driver.startswith("Portable Computing Language")]
    if not devices:
        pytest.skip("neither CUDA nor PoCL here")
    _, w = network
    net = faltung.Network(tmp_path / "model.onnx", device=devices[0].id, trust="all")
    assert net.device == devices[0].id
    b = np.array([7], np.float32)
    for shape in ((1, 2, 5, 5), (3, 2, 8, 4), (1, 2, 5, 5)):
        x = np.random.default_rng(1).integers(-3, 4, shape).astype(np.float32)
        y, z = net(x, b)
        np.testing.assert_array_equal(y, expected(x, w, b))
        np.testing.assert_array_equal(z, -y)
    into = np.empty_like(y), np.empty_like(z)
    net(x, b, out=into)
    np.testing.assert_array_equal(into, (y, z))
    assert net.arena_bytes(x.shape, b.shape) > 0
    with pytest.raises(faltung.BadProblem, match="stream goes with arrays on a CUDA device"):
        net(x, b, stream=0)
    half = faltung.Network(tmp_path / "model.onnx", device=devices[0].id, trust="all", dtype="f16")
    np.testing.assert_array_equal(half(x, b)[0], y)  # whole numbers, which f16 has
    large = x * np.float32(20000)  # whose sums f16 does not hold
    assert not np.isfinite(half(large, b)[0]).all()
    kept = faltung.Network(tmp_path / "model.onnx", device=devices[0].id, trust="all", dtype="f16", keep_f32=["x", "y"])
    np.testing.assert_array_equal(kept(large, b)[0], net(large, b)[0])


class OnCuda:
    """What another library has on cuda:1, by DLPack: an address that nothing reads."""

    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                    ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                    ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
                    ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

    def __init__(self, shape, strides, code=2, bits=32):
        numbers = ctypes.c_int64 * len(shape)
        self.streams, self.kept = [], (numbers(*shape), numbers(*strides))
        self.tensor = self.Tensor(0x1000, 2, 1, len(shape), code, bits, 1, *self.kept, 64)

    def __dlpack__(self, **options):
        self.streams.append(options)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


def test_arrays_of_a_library_that_is_not_known(network):
    net, _ = network
    x, b = OnCuda((1, 2, 5, 5), (50, 25, 5, 1)), np.ones(1, np.float32)
    at = _arrays.locate(x, "input 'x'", 0x77)
    assert at[1:] == ("test_network", 0x1040, (1, 2, 5, 5), True, "float32", "cuda:1", True) and x.streams == [{"stream": 0x77}]
    assert not _arrays.locate(OnCuda((2, 3), (1, 2)), "x").contiguous
    named = [_arrays.locate(OnCuda((2,), (1,), code, bits), "x").dtype for code, bits in ((6, 8), (0, 64), (4, 16), (1, 8), (5, 64), (2, 16))]
    assert named == ["bool", "int64", "bfloat16", "uint8", "complex64", "float16"]
    with pytest.raises(faltung.BadProblem, match="'x' is on cuda:1; the network runs on cpu: move it there, or give a NumPy array$"):
        net(x, b)
    with pytest.raises(faltung.BadProblem, match="how test_network makes arrays is not known here; give the arrays of the results as out"):
        _arrays.empty_like(x, (1,), np.dtype(np.float32))


def test_what_is_asked_for_is_refused_in_words(tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(convolution()[0])
    for error, said, options in ((faltung.BadProblem, "dtype is 'half'; it is one of 'f32', 'f16', 'bf16'", {"dtype": "half"}),
                                 (faltung.Unsupported, "on the CPU networks compute in f32", {"dtype": "f16"}),
                                 (faltung.BadProblem, "no tensor 'nothing' to keep in f32", {"keep_f32": ["nothing"]}),
                                 (faltung.BadProblem, "no device 'cuda:77' here", {"device": "cuda:77"}),
                                 (faltung.BadProblem, "trust is 'some'", {"trust": "some"})):
        with pytest.raises(error, match=said):
            faltung.Network(file, **options)
    net = faltung.Network(file, skip="winograd_*", deterministic=True, workspace_limit=1 << 20)
    assert net(np.zeros((1, 2, 5, 5), np.float32), np.ones(1, np.float32))[0].shape == (1, 3, 3, 3)
    with pytest.raises(faltung.BadProblem, match="stream goes with arrays on a CUDA device"):
        net(np.zeros((1, 2, 5, 5), np.float32), np.ones(1, np.float32), stream=0)


def test_errors(network, tmp_path):
    net, _ = network
    x, b = np.zeros((1, 2, 5, 5), np.float32), np.zeros(1, np.float32)
    with pytest.raises(faltung.BadProblem, match="'x' is of float32 with 4 dimensions; given is an array of float64 with 4"):
        net(x.astype(float), b)
    with pytest.raises(faltung.BadProblem, match="'x' is a masked array"):
        net(np.ma.masked_equal(x, 1), b)
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
    file = os.fsencode(tmp_path / "model") + b"\xe9.onnx"     # a name that is not UTF-8
    with open(file, "wb") as to:
        to.write(model([node("Relu", ["self"], "y")], [info("self", [0])], ["y"]))
    for name in (file, os.fsdecode(file)):
        assert faltung.Network(name)(**{"self": np.float32([-1, 2])}).tolist() == [0, 2]
    with pytest.raises(faltung.BadFile, match=r"none.xe9"):
        faltung.Network(os.fsencode(tmp_path) + b"/none\xe9")
