"""How calls of torch.ops.faltung behave: what is remembered between them, threads, tracers, torch.compile, modules."""
import os
import subprocess
import sys
import weakref

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import faltung  # noqa: E402
import faltung.torch as ft  # noqa: E402
from reference import SHAPES, TRANSPOSED  # noqa: E402
from torch_cases import arguments, integers, name_of, of_torch  # noqa: E402
from faltung.torch import _run  # noqa: E402
from faltung.torch._activations import activation_of  # noqa: E402

ops = torch.ops.faltung
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
FORMATS = [torch.contiguous_format, torch.channels_last]


@pytest.mark.parametrize("device", DEVICES)
def test_compile_without_breaks(device):
    """A whole graph, with gradients, on changing sizes."""
    def function(x, w, b):
        return F.relu(ops.conv2d(x, w, b, [1, 1], [1, 1], [1, 1], 1)) + 1
    backend = "inductor" if os.environ.get("FALTUNG_TEST_INDUCTOR") else "aot_eager"
    compiled = torch.compile(function, fullgraph=True, backend=backend, dynamic=True)
    for n, format in ((1, FORMATS[0]), (2, FORMATS[0]), (3, FORMATS[1])):
        x = integers(n, (n, 3, 5, 6 + n), device=device, format=format).requires_grad_()
        w, b = integers(7, (4, 3, 3, 3), device=device).requires_grad_(), integers(8, (4,), device=device).requires_grad_()
        y = compiled(x, w, b)
        expected = function(x, w, b)
        assert torch.equal(y, expected) and y.stride() == expected.stride()
        for ours, eager in zip(torch.autograd.grad(y.sum(), (x, w, b)), torch.autograd.grad(expected.sum(), (x, w, b))):
            assert torch.equal(ours, eager)


def test_a_plan_takes_tensors():
    x, w = integers(1, (1, 3, 8, 8)), integers(2, (4, 3, 3, 3))
    y = faltung.conv2d(x, w, padding=1)
    assert isinstance(y, torch.Tensor) and torch.equal(y, F.conv2d(x, w, padding=1))
    b = torch.ones(4, dtype=torch.bfloat16)
    y = faltung.conv2d(x.bfloat16(), w.bfloat16(), b, padding=1)
    assert torch.equal(y.float(), F.conv2d(x, w, b.float(), padding=1).bfloat16().float())


def test_modules_share_their_state():
    def pair(name, *arguments, **options):
        ours, theirs = getattr(ft, name)(*arguments, **options), getattr(torch.nn, name)(*arguments, **options)
        ours.load_state_dict(theirs.state_dict())
        return ours, theirs

    def same(pair, *arguments):
        torch.testing.assert_close(pair[0](*arguments), pair[1](*arguments), rtol=1e-5, atol=1e-5)
    x = torch.randn(2, 4, 7, 9)
    for name, options in (("Conv2d", dict(padding="same", groups=2)), ("Conv2d", dict(padding=1, padding_mode="reflect")),
                          ("ConvTranspose2d", dict(stride=2, output_padding=1, groups=2))):
        both = pair(name, 4, 6, 3, **options)
        same(both, x)
        same(both, x[0])
    same(pair("ConvTranspose2d", 4, 6, 3, stride=2), x, [16, 20])
    same(pair("Conv1d", 4, 6, 3, padding=1, padding_mode="circular"), x[:, :, 0])
    same(pair("ConvTranspose1d", 4, 6, 3, stride=2), x[:, :, 0])
    same(pair("Conv3d", 4, 6, 3, padding=1), x.unsqueeze(2))
    same(pair("ConvTranspose3d", 4, 6, (1, 3, 3)), x.unsqueeze(2))


def test_what_is_not_plain_is_seen_by_those_who_look():
    """Tensor subclasses, modes, tangents: a call that ran before is not repeated past them."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Names(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            self.names.append(str(function))
            return function(*arguments, **(keywords or {}))
    x, w, plain = torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3), ([1, 1], [0, 0], [1, 1], 1)
    for _ in range(2):
        with Names() as mode:
            ops.conv2d(x, w, None, *plain)
        assert mode.names == ["faltung.conv2d.default"]
        assert ops.conv2d(x.to("meta"), w.to("meta"), None, *plain).is_meta
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(Exception, match="jvp|forward"):
            ops.conv2d(dual, w, None, *plain)


def test_repeated_calls_follow_every_argument():
    """Each differs from one that is remembered in one thing alone."""
    x, w, b = torch.randn(2, 4, 8, 8), torch.randn(4, 4, 3, 3), torch.randn(4)
    calls = [(x, w, None, [1, 1], [1, 1], [1, 1], 1), (x, w, b, [1, 1], [1, 1], [1, 1], 1), (x, w, None, [2, 1], [1, 1], [1, 1], 1),
             (x, w, None, [1, 1], [0, 1], [1, 1], 1), (x, w, None, [1, 1], [1, 1], [2, 1], 1), (x[:1], w, None, [1, 1], [1, 1], [1, 1], 1),
             (x, w[:, :2], None, [1, 1], [1, 1], [1, 1], 2), (x.transpose(2, 3), w, None, [1, 1], [1, 1], [1, 1], 1),
             (x.bfloat16(), w.bfloat16(), None, [1, 1], [1, 1], [1, 1], 1)]
    for _ in range(3):
        for x, w, b, *geometry in calls:
            tolerance = 1e-4 if x.dtype == torch.float32 else 0.1
            torch.testing.assert_close(ops.conv2d(x, w, b, *geometry), F.conv2d(x, w, b, *geometry), rtol=tolerance, atol=tolerance)
    x, w = calls[0][:2]
    for _ in range(3):
        for activation in ("", "relu", "relu6", "leaky_relu(0.5)", "leaky_relu(0.25)"):
            torch.testing.assert_close(ops.conv2d_fused(x, w, None, None, [1, 1], [1, 1], [1, 1], 1, activation),
                                       activation_of(activation)(F.conv2d(x, w, padding=1)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [SHAPES[2], SHAPES[4], SHAPES[7], TRANSPOSED[1]], ids=str)
def test_layers_follow_their_constants(shape, device):
    """What is folded and packed once is made again when PyTorch counts a change, and given back with the weight."""
    from faltung.torch import _constant
    (x, w, b), geometry = arguments(shape, torch.float32, device, torch.contiguous_format)
    theirs, geometry = of_torch(shape, geometry)
    op, k = getattr(ops, name_of(shape) + "_layer"), shape[2]
    generator = torch.Generator().manual_seed(1)
    scale, shift, mean, variance = (torch.rand(k, generator=generator).to(device) + 0.5 for _ in range(4))

    def same(w, *norm):
        y = theirs(x, w, b)
        y = torch.relu(F.batch_norm(y, norm[2], norm[3], norm[0], norm[1], False, 0.0, 1e-3) if norm[2] is not None else y)
        for _ in range(3):
            torch.testing.assert_close(op(x, w, b, *norm, None, *geometry, 1e-3, "relu"), y, rtol=1e-3, atol=1e-3)
    norm = scale, shift, mean, variance
    same(w, *norm)
    same(w, None, None, None, None)
    same(w, None, None, mean, variance)
    w.mul_(2)
    same(w, *norm)
    mean.add_(1)
    same(w, *norm)
    same(w, scale, shift, mean.clone(), variance)
    same(w.clone(), *norm)
    with torch.autocast(device, torch.bfloat16):
        y = op(x, w, b, *norm, None, *geometry, 1e-3, "relu")
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), op(x, w, b, *norm, None, *geometry, 1e-3, "relu"), rtol=0.05, atol=0.3)
    leaf = w.clone().requires_grad_()
    op(x, leaf, b, *norm, None, *geometry, 1e-3, "relu").sum().backward()
    again = w.clone().requires_grad_()
    torch.relu(F.batch_norm(theirs(x, again, b), mean, variance, scale, shift, False, 0.0, 1e-3)).sum().backward()
    torch.testing.assert_close(leaf.grad, again.grad, rtol=1e-3, atol=1e-3)
    torch.library.opcheck(op.default, (x, w, b, *norm, None, *geometry, 1e-3, "relu"),
                          test_utils=("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"))
    made = [weakref.ref(made) for made in _constant._made[w].values()]
    assert made and all(m() is not None for m in made)
    del w, leaf, again
    assert all(m() is None for m in made)


@pytest.mark.filterwarnings("ignore")
def test_tracers_and_the_profiler_see_calls_that_ran_before():
    from torch.fx.experimental.proxy_tensor import make_fx
    x, w, plain = torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3), ([1, 1], [0, 0], [1, 1], 1)

    def function(x, w):
        return ops.conv2d(x, w, None, *plain)
    right = function(x, w), function(2 * x, w)
    for how in ({}, {"tracing_mode": "symbolic"}, {"pre_dispatch": True}):
        traced = make_fx(function, **how)(x, w)
        assert "faltung.conv2d" in traced.code and torch.equal(traced(2 * x, w), right[1])
    assert torch.equal(torch.jit.trace(function, (x, w))(2 * x, w), right[1])
    exported = torch.export.export(ft.Conv2d(3, 4, 3).eval(), (x,))
    assert [str(n.target) for n in exported.graph.nodes if n.op == "call_function"] == ["faltung.conv2d.default"]
    with torch.profiler.profile() as profile:
        function(x, w)
    assert [event.key for event in profile.key_averages() if "faltung" in event.key] == ["faltung::conv2d"]
    with torch.inference_mode():
        assert torch.equal(function(x, w), right[0])
    for wrong, words in (((x, w), "missing value for argument 'bias'"), ((x, "a", None, *plain), "'weight'"),
                         ((x, w, None, [1.5, 1], *plain[1:]), "'stride'")):
        with pytest.raises(RuntimeError, match=words):
            ops.conv2d(*wrong)


def test_work_is_done_by_torchs_threads():
    """On the CPU by those of its OpenMP, which spin behind each region on the processors that others would need; in the child of a
    fork, where they are not, by the library's own."""
    from faltung import _c
    assert _c.use_openmp_of(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")) == (
        "backend: OpenMP" in torch.__config__.parallel_info())
    assert not _c.use_openmp_of("no/such/library.so") or "backend: OpenMP" in torch.__config__.parallel_info()
    code = """
import os, signal, torch
def busy(threads):
    return sum(int(open(f"/proc/self/task/{thread}/schedstat").read().split()[0]) for thread in threads)
torch.set_num_threads(2)
x, w = torch.randn(1, 64, 40, 40), torch.randn(64, 64, 3, 3)
torch.nn.functional.conv2d(x, w)
theirs = os.listdir("/proc/self/task")
import faltung.torch
torch.ops.faltung.conv2d(x, w, None, [1, 1], [0, 0], [1, 1], 1)  # makes the plan
others = set(os.listdir("/proc/self/task")) - set(theirs)
before = busy(others), busy(theirs)
for _ in range(20):
    right = torch.ops.faltung.conv2d(x, w, None, [1, 1], [0, 0], [1, 1], 1)
print(int(busy(others) - before[0] > (busy(theirs) - before[1]) / 20))
if os.fork() == 0:
    signal.alarm(60)
    y = torch.ops.faltung.conv2d(x, w, None, [1, 1], [0, 0], [1, 1], 1)
    os._exit(y.numpy().tobytes() != right.numpy().tobytes())
print(os.wait()[1])
"""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "0\n0\n", done


def test_an_old_torch_is_refused():
    code = "import torch; torch.__version__ = '2.6.1+cpu'\ntry:\n import faltung.torch\nexcept ImportError as e:\n print(e)"
    done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path))),
                          capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "faltung.torch needs PyTorch 2.7 or later; this is 2.6.1+cpu\n"


def test_a_thousand_shapes_do_not_grow(monkeypatch):
    """What is remembered of shapes is bounded; here the bound is low."""
    monkeypatch.setattr(_run, "MOST_PLANS", 50)
    monkeypatch.setattr(_run, "_plans", {})
    w = torch.ones(2, 2, 1, 1)

    def resident():
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def some(first):
        for n in range(first, first + 1000):
            y = ops.conv2d(torch.ones(1, 2, 3, 1 + n % 1000), w, None, [1, 1], [0, 0], [1, 1], 1)
            assert y.shape[3] == 1 + n % 1000 and y[0, 0, 0, 0] == 2
        assert len(_run._plans) <= 50
    some(0)
    before = resident()
    some(1000)
    assert resident() - before < 16e6


def test_threads_repeat_calls():
    import threading
    x, w, plain = torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3), ([1, 1], [0, 0], [1, 1], 1)
    right, same = ops.conv2d(x, w, None, *plain), []

    def work():
        same.extend(torch.equal(ops.conv2d(x, w, None, *plain), right) for _ in range(100))
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 400
