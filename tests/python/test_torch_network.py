"""bench/peers/onnx_module.py and torch_network.py: ONNX files as modules of PyTorch, and PyTorch as a peer on them, on the CPU."""
import os
import pathlib
import sys

import numpy
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

PEERS = pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"
if not PEERS.exists():
    pytest.skip("the tests lie outside of the repository", allow_module_level=True)
sys.path.insert(0, str(PEERS))
import onnx_module  # noqa: E402
import torch_network  # noqa: E402

NODE_TESTS = pathlib.Path("/usr/share/libonnx-testdata/data/node")


def save(file, nodes, inputs, outputs, constants=(), opset=17):
    def info(name, shape, element=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, element, shape)
    graph = helper.make_graph([helper.make_node(op, i, o, **a) for op, i, o, a in nodes], "g", [info(*i) for i in inputs],
                              [info(o, None) for o in outputs], [numpy_helper.from_array(a, n) for n, a in constants])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), file)
    return str(file)


# ---- ONNX's own node tests

def tensors(folder, kind, count):
    for i in range(count):
        tensor = TensorProto()
        tensor.ParseFromString((folder / "test_data_set_0" / f"{kind}_{i}.pb").read_bytes())
        yield numpy_helper.to_array(tensor)


def run_node_test(folder, file):
    """Inputs that PyTorch takes as numbers, and whole numbers, become constants."""
    model = onnx.load(folder / "model.onnx")
    numbers = {node.input[i] for node in model.graph.node for i in onnx_module.ALL[node.op_type][1] if i < len(node.input)}
    given = {}
    for value, array in zip(model.graph.input, tensors(folder, "input", len(model.graph.input))):
        if array.dtype != numpy.float32 or value.name in numbers:
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
        else:
            given[value.name] = array
    onnx.save(model, file)
    module = onnx_module.network(file, {name: list(array.shape) for name, array in given.items()})
    results = module(*(torch.from_numpy(array.copy()) for array in given.values()))
    for result, right in zip(results, tensors(folder, "output", len(model.graph.output)), strict=True):
        assert tuple(result.shape) == right.shape
        numpy.testing.assert_allclose(result.double().numpy(), right.astype(numpy.float64), rtol=1e-3, atol=1e-5)


def test_onnx_node_tests(tmp_path):
    if not NODE_TESTS.exists():
        pytest.skip("Debian has them in libonnx-testdata")
    right, lacking = 0, []
    for folder in sorted(NODE_TESTS.iterdir()):
        model = onnx.load(folder / "model.onnx")
        elements = [v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)]
        if not all(e in (TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT32, TensorProto.INT64) for e in elements):
            continue
        if any(n.domain not in ("", "ai.onnx") or n.op_type not in onnx_module.ALL for n in model.graph.node):
            continue
        try:
            run_node_test(folder, str(tmp_path / "n.onnx"))
            right += 1
        except onnx_module.Lacking as error:
            lacking.append(f"{folder.name}: {error}")
    assert right >= 440, "\n".join(lacking)


# ---- whole networks

def test_shapes_are_computed_beforehand_and_silus_are_one(tmp_path):
    file = save(tmp_path / "net.onnx",
                [("Conv", ["x", "w"], ["a"], {"pads": [1, 1, 1, 1]}), ("Sigmoid", ["a"], ["s"], {}), ("Mul", ["a", "s"], ["b"], {}),
                 ("Shape", ["b"], ["shape"], {}), ("Gather", ["shape", "zero"], ["n"], {}), ("Unsqueeze", ["n", "axis"], ["n1"], {}),
                 ("Concat", ["n1", "rest"], ["target"], {"axis": 0}), ("Reshape", ["b", "target"], ["y"], {}),
                 ("Split", ["b"], ["low", "high"], {"axis": 1}), ("Sub", ["low", "high"], ["z"], {})],
                [("x", [None, 3, 5, 4])], ["y", "z"],
                [("w", numpy.random.default_rng(1).standard_normal((4, 3, 3, 3), numpy.float32)), ("zero", numpy.int64(0)),
                 ("axis", numpy.int64([0])), ("rest", numpy.int64([-1]))])
    module = onnx_module.network(file, {"x": [2, 3, 5, 4]})
    calls = [n.target for n in module.graph.nodes if n.op == "call_function"]
    assert torch.nn.functional.silu in calls and torch.sigmoid not in calls and torch.mul not in calls
    assert len(calls) == 7  # convolution, SiLU, reshape, split and its two, difference
    x = torch.randn(2, 3, 5, 4)
    y, z = module(x)
    b = torch.nn.functional.silu(torch.nn.functional.conv2d(x, module.get_buffer("constant0"), padding=1))
    torch.testing.assert_close(y, b.reshape(2, -1))
    torch.testing.assert_close(z, b[:, :2] - b[:, 2:])
    assert module.outputs == ["y", "z"]


def test_everything_is_of_the_type_asked_for(tmp_path):
    file = save(tmp_path / "net.onnx", [("Cast", ["x"], ["a"], {"to": TensorProto.FLOAT}), ("Add", ["a", "c"], ["y"], {})],
                [("x", [2, 3])], ["y"], [("c", numpy.float32([1, 2, 3]))])
    y, = onnx_module.network(file, {"x": [2, 3]}, torch.bfloat16)(torch.ones(2, 3, dtype=torch.bfloat16))
    assert y.dtype == torch.bfloat16 and y[0].tolist() == [2, 3, 4]


def test_all_operators_that_lack_are_named(tmp_path):
    file = save(tmp_path / "net.onnx", [("NonZero", ["x"], ["a"], {}), ("Relu", ["x"], ["b"], {}), ("Det", ["b"], ["y"], {})],
                [("x", [2, 2])], ["a", "y"])
    with pytest.raises(onnx_module.Lacking, match="lacks Det, NonZero$"):
        onnx_module.network(file, {"x": [2, 2]})


def test_a_shape_that_depends_on_elements_is_declined(tmp_path):
    file = save(tmp_path / "net.onnx", [("Cast", ["x"], ["s"], {"to": TensorProto.INT64}), ("Reshape", ["x", "s"], ["y"], {})],
                [("x", [1])], ["y"])
    with pytest.raises(onnx_module.Lacking, match="Reshape 'y': its s depends on what the inputs hold"):
        onnx_module.network(file, {"x": [1]})


# ---- the peer

MODES = ["eager"] + (["compiled"] if os.environ.get("FALTUNG_TEST_INDUCTOR") else [])


def small(tmp_path, element=TensorProto.FLOAT):
    return save(tmp_path / "small.onnx", [("Conv", ["x", "w"], ["a"], {}), ("Relu", ["a"], ["y"], {})], [("x", [1, 3, 6, 6], element)], ["y"],
                [("w", numpy.full((4, 3, 3, 3), 0.125, numpy.float32))])


def ask(capsys, mode, file, *more, device="cpu"):
    torch_network.TorchNetwork(mode).answer([f"network threads=1 device={device} dtype=f32 math=f32 model={file} x=1x3x6x6\n", *more])
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("mode", MODES)
def test_it_times_and_computes(tmp_path, capsys, mode):
    numpy.save(tmp_path / "input0.npy", numpy.ones((1, 3, 6, 6), numpy.float32))
    ready, ms, done = ask(capsys, mode, small(tmp_path), "run 0.01\n", f"outputs {tmp_path}\n")
    assert ready.startswith("ready ") and "channels_last, f32, 1 threads" in ready and ms.startswith("ms ") and done == "done"
    y = numpy.load(tmp_path / "output0.npy")
    assert y.dtype == numpy.float32 and y.shape == (1, 4, 4, 4) and (y == 27 * 0.125).all()


def test_what_it_does_not_run_is_said(tmp_path, capsys):
    said, = ask(capsys, "graph", small(tmp_path))
    assert said == "declined graphs are of CUDA devices; take --vs torch"
    said, = ask(capsys, "cudnn_relu", small(tmp_path))
    assert said.startswith("declined cudnn_relu is for single convolutions")
    said, = ask(capsys, "eager", small(tmp_path), device="opencl:0")
    assert said == "declined it runs networks on devices cpu and cuda alone, and beside opencl:0 it would be no peer"
    said, = ask(capsys, "eager", small(tmp_path, TensorProto.INT64))
    assert said.startswith("declined its input x is of torch.int64")
