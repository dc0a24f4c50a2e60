"""faltung.Network on PyTorch's tensors: on the CPU where they lie; on CUDA streams, captured graphs, and what is refused. What it does with
streams and arenas is tested without a GPU, too, with the CPU's tensors taken for such of one."""
import contextlib

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import faltung  # noqa: E402
from faltung import _arrays, _cuda  # noqa: E402
from onnx_bytes import BOOL, FLOAT, INT64, convolution, field, info, model, node, tensor  # noqa: E402

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture
def file(tmp_path):
    at = tmp_path / "model.onnx"
    at.write_bytes(convolution()[0])
    return at


def inputs(*shape, seed=1, device="cpu"):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 4, shape, generator=generator).float().to(device), torch.tensor([7.0], device=device)


def right(x, b):
    w = torch.from_numpy(convolution()[1]).to(x.device)
    y = F.conv2d(x.double(), w.double()).relu().float() + b
    return y, -y


def test_tensors_of_the_cpu(file):
    net = faltung.Network(file, threads=2)
    for shape in ((1, 2, 5, 5), (3, 2, 8, 4)):
        x, b = inputs(*shape)
        y, z = net(x, b=b)
        assert isinstance(y, torch.Tensor) and torch.equal(y, right(x, b)[0]) and torch.equal(z, right(x, b)[1])
    out = torch.empty_like(y), torch.empty_like(z)
    assert net(x, b, out=out)[0] is out[0] and torch.equal(out[0], y) and torch.equal(out[1], z)
    last = x.contiguous(memory_format=torch.channels_last)
    assert torch.equal(net(last, b)[0], y) and torch.equal(net(torch.nn.Parameter(x, requires_grad=False), b)[0], y)
    assert torch.equal(net(x, b.numpy())[0], y)  # all are in the host's memory


def test_tensors_of_other_dtypes(tmp_path):
    file = tmp_path / "where.onnx"
    cast = node("Cast", ["i"], "f") + field(5, field(1, "to") + field(3, FLOAT) + field(20, 2))
    file.write_bytes(model([cast, node("Where", ["c", "f", "t"], "y")], [info("i", [0], INT64), info("c", [0, 1], BOOL)], ["y"],
                           [tensor("t", convolution()[1][0, 0, 0, :1])]))
    i, c = torch.tensor([3, 0, -7]), torch.tensor([[True], [False]])
    assert torch.equal(faltung.Network(file)(i, c), torch.where(c, i.float(), torch.tensor(-2.0)))


def test_errors(file):
    net = faltung.Network(file)
    x, b = inputs(1, 2, 5, 5)
    y, z = net(x, b)
    for arguments, out, said in (
            ((x.double(), b), None, "'x' is of float32 with 4 dimensions; given is an array of float64 with 4"),
            ((x.bfloat16(), b), None, "given is an array of bfloat16"), ((x[0], b), None, "given is an array of float32 with 3"),
            ((x[:, :1], b), None, "does not fit"), ((x, b), (y, y), "overlaps"), ((x, b), (y.half(), z), "'y' is of float32"),
            ((x, b), (y, z[:, :1]), "'z' is of shape"), ((x, b), (y.transpose(2, 3), z), "'y'.*contiguous"),
            ((x.to("meta"), b), None, "(?i)meta")):
        with pytest.raises((faltung.BadProblem, RuntimeError, NotImplementedError), match=said):
            net(*arguments, out=out)


class Pretended:
    """A network on the CPU that takes itself, and tensors, to be on cuda:0; runs has the stream and arena of each run."""

    def __init__(self, file, monkeypatch):
        self.net, self.runs, self.asked, self.captures, self.current = faltung.Network(file), [], [], False, 0x10
        self.net._device = "cuda:0"
        run, locate = self.net._run, _arrays.locate

        def pretended_run(plan, inputs, outputs, stream=None, arena=None):
            self.runs.append((stream, arena))
            run(plan, inputs, outputs)

        def pretended_locate(array, what, stream=None):
            self.asked.append(stream)
            at = locate(array, what)
            return at if at.library == "numpy" else at._replace(device="cuda:0")

        @contextlib.contextmanager
        def on_stream(array, stream):
            self.asked.append(("allocates on", stream))
            yield

        monkeypatch.setattr(self.net, "_run", pretended_run, raising=False)
        monkeypatch.setattr(_arrays, "locate", pretended_locate)
        monkeypatch.setattr(_arrays, "on_stream", on_stream)
        monkeypatch.setattr(_arrays, "current_stream", lambda array: self.current)
        monkeypatch.setattr(_cuda, "is_capturing", lambda stream: self.captures)
        monkeypatch.setattr(_cuda, "driver", lambda: self)
        self.context, self.contexts = 0x5, []

    def cuCtxGetCurrent(self, to):
        to._obj.value = self.context

    def cuCtxSetCurrent(self, context):
        self.contexts.append(context.value)


def test_streams_and_arenas(file, monkeypatch):
    on = Pretended(file, monkeypatch)
    x, b = inputs(2, 2, 6, 6)
    y, z = on.net(x, b)
    assert torch.equal(y, right(x, b)[0]) and torch.equal(z, -y)
    assert on.runs == [(0x10, None)] and on.asked == [0x10] * 4 and on.contexts == [0x5]
    on.net(x, b, stream=0x20)
    assert on.runs[1] == (0x20, None) and on.asked[4:] == [0x20] * 2 + [("allocates on", 0x20)] + [0x20] * 2
    on.net(x, b, stream=0x10)
    assert on.runs[2] == (0x10, None) and on.asked[9:] == [0x10] * 4
    with pytest.raises(faltung.BadProblem, match="'x' does not lie contiguously"):
        on.net(x.contiguous(memory_format=torch.channels_last), b)
    with pytest.raises(faltung.BadProblem, match="some are on cpu and some on cuda:0"):
        on.net(x, b.numpy())


def test_capturing(file, monkeypatch):
    on = Pretended(file, monkeypatch)
    on.captures = True
    x, b = inputs(2, 2, 6, 6)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="has not run on inputs of these sizes before.*warm up"):
            on.net(x, b)
        on.captures = False
        on.net.outputs(x.shape, b.shape)  # which plans, but runs nothing
        on.captures = True
    on.captures = False
    on.net(x, b)
    on.captures = True
    assert torch.equal(on.net(x, b)[0], right(x, b)[0])
    assert on.runs[0][1] is None and on.runs[1][1] is not None and len(on.net._recorded) == 1
    for size in range(7, 7 + 16):  # by which the first plan is forgotten
        on.net.outputs((1, 2, size, size), (1,))
    with pytest.raises(RuntimeError, match="warm up"):
        on.net(x, b)


@cuda
def test_arrays_on_the_device(file):
    net = faltung.Network(file, device="cuda:0")
    for shape in ((1, 2, 5, 5), (3, 2, 8, 4), (1, 2, 5, 5)):
        x, b = inputs(*shape, device="cuda")
        y, z = net(x, b=b)
        assert y.is_cuda and torch.equal(y, right(x, b)[0]) and torch.equal(z, -y)
        copied, _ = net(x.cpu().numpy(), b.cpu().numpy())
        assert torch.equal(torch.from_numpy(copied), y.cpu())
    out = torch.zeros_like(y), torch.zeros_like(z)
    assert net(x, b, out=out)[0] is out[0] and torch.equal(out[0], y) and torch.equal(out[1], z)
    half = faltung.Network(file, device="cuda:0", dtype="f16")
    assert torch.equal(half(x, b)[0], y)  # whole numbers, which f16 has


@cuda
def test_what_is_refused_on_the_device(file):
    net, host = faltung.Network(file, device="cuda:0"), faltung.Network(file)
    x, b = inputs(2, 2, 6, 6, device="cuda")
    y, z = net(x, b)
    shifted = torch.empty(x.numel() + 1, device="cuda")[1:].view(x.shape)
    for run, said in ((lambda: net(x.cpu(), b), "'x' is on cpu; the network runs on cuda:0: move it there"),
                      (lambda: host(x, b), "'x' is on cuda:0; the network runs on cpu"),
                      (lambda: net(x, b, out=(y, z.cpu())), "'z' is on cpu"), (lambda: net(x, b.cpu().numpy()), "all must be alike"),
                      (lambda: net(x.half(), b), "given is an array of float16"), (lambda: net(shifted, b), "multiple of 16 bytes"),
                      (lambda: net(x.contiguous(memory_format=torch.channels_last), b), "contiguously"),
                      (lambda: net(x, b, out=(y, y)), "overlaps"), (lambda: net(x, b, out=(x[:, :1], z)), "'y'")):
        with pytest.raises(faltung.BadProblem, match=said):
            run()
    assert torch.equal(net(x, b, out=(y, z))[0], right(x, b)[0])


@cuda
def test_the_current_stream_is_used(file):
    net = faltung.Network(file, device="cuda:0")
    x, b = inputs(8, 2, 64, 64, device="cuda")
    net(x, b)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    results = []
    for i in range(20):  # what is written on the stream before is what is read
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            x.fill_(i % 3)
            results.append(net(x, b)[0].sum(dtype=torch.float64))
    with torch.cuda.stream(stream):
        torch.cuda._sleep(2_000_000)
        x.fill_(5)
    given = net(x, b, stream=stream.cuda_stream)[0]
    stream.synchronize()
    torch.cuda.synchronize()
    for i, total in enumerate(results):
        assert total == right(torch.full_like(x, i % 3), b)[0].sum(dtype=torch.float64)
    assert torch.equal(given, right(torch.full_like(x, 5), b)[0])


@cuda
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_graph_is_captured_and_replayed(file, dtype):
    net = faltung.Network(file, device="cuda:0", dtype=dtype)
    x, b = inputs(2, 2, 6, 6, device="cuda")
    with pytest.raises(RuntimeError, match="warm up"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            net(x, b)
    torch.cuda.synchronize()
    net(x, b)
    torch.cuda.synchronize()
    graphs = []
    for scale in (1, 2):  # two of one size, each with memory of its own
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y, z = net(x * scale, b)
        graphs.append((graph, scale, y, z))
    for other in range(7, 7 + 17) if dtype == "f32" else ():  # the plan that was recorded is forgotten
        net.outputs((1, 2, other, other), (1,))
    for step in range(3):
        x.copy_(torch.roll(x, 1, 0) * (1 if step else -1))
        for graph, scale, y, z in graphs:
            graph.replay()
            assert torch.equal(y, right(x * scale, b)[0]) and torch.equal(z, -y)
    torch.cuda.synchronize()
    assert torch.equal(net(x, b)[0], right(x, b)[0])
