"""torch.ops.faltung: results, gradients of any order, fake tensors, autocast, torch.compile, CUDA's streams and graphs. On the
CPU, and on CUDA where there is a device."""
import os

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import faltung  # noqa: E402
import faltung.torch as ft  # noqa: E402
from faltung.torch._activations import activation_of  # noqa: E402

ops = torch.ops.faltung
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
FORMATS = [torch.contiguous_format, torch.channels_last]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# C, H, W, K, R, S, stride, padding, dilation, groups
SHAPES = [
    (3, 6, 7, 4, 3, 3, [1, 1], [1, 1], [1, 1], 1),
    (8, 5, 5, 16, 1, 1, [1, 1], [0, 0], [1, 1], 1),
    (4, 9, 8, 6, 3, 2, [2, 1], [1, 0], [1, 2], 2),
    (6, 9, 9, 6, 5, 5, [2, 2], [2, 2], [1, 1], 6),
]
cuda_only = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def integers(seed, shape, dtype=torch.float32, device="cpu", format=torch.contiguous_format):
    """Small: every sum below is exact in the dtype of the accumulator, and rounded once."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-2, 3, shape, generator=generator)
    return values.to(device=device, dtype=dtype).contiguous(memory_format=format) if len(shape) == 4 else values.to(device, dtype)


def right(x, w, b, geometry, dtype):
    """In float64 on the CPU, rounded once."""
    return F.conv2d(x.cpu().double(), w.cpu().double(), None if b is None else b.cpu().double(), *geometry).to(dtype)


def arguments(shape, dtype, device, format, bias=True):
    c, h, w, k, r, s, *geometry = shape
    return (integers(1, (2, c, h, w), dtype, device, format), integers(2, (k, c // geometry[3], r, s), dtype, device, format),
            integers(3, (k,), dtype, device) if bias else None), geometry


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward_and_backward_are_exact(shape, dtype, format, device):
    (x, w, b), geometry = arguments(shape, dtype, device, format)
    y = ops.conv2d(x, w, b, *geometry)
    torch.testing.assert_close(y.cpu(), right(x, w, b, geometry, dtype), rtol=0, atol=0)
    assert y.is_contiguous(memory_format=format)

    leaves = [t.detach().clone(memory_format=torch.preserve_format).requires_grad_() for t in (x, w, b)]
    dy = integers(4, tuple(y.shape), dtype, device, format)
    ops.conv2d(*leaves, *geometry).backward(dy)
    exact = [t.detach().cpu().double().requires_grad_() for t in (x, w, b)]
    F.conv2d(*exact, *geometry).backward(dy.cpu().double())
    for ours, theirs in zip(leaves, exact):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad.to(dtype), rtol=0, atol=0)


def difference_check(function, inputs):
    """gradcheck, exactly: what is linear in each argument equals its central difference with a step of 1, in small integers."""
    assert torch.autograd.gradcheck(function, inputs, eps=1.0, atol=0, rtol=0, nondet_tol=0, check_batched_grad=False,
                                    raise_exception=True)


@pytest.mark.filterwarnings("ignore:Input #")  # that float32 is too coarse for gradcheck
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_of_gradients(groups, device):
    geometry = ([2, 1], [1, 0], [1, 1], groups)
    x, w = integers(1, (1, 4, 4, 3), device=device), integers(2, (2, 4 // groups, 2, 2), device=device)
    y = ops.conv2d(x, w, None, *geometry)
    dy = integers(3, tuple(y.shape), device=device)
    x, w, dy = (t.requires_grad_() for t in (x, w, dy))
    b = integers(4, (2,), device=device).requires_grad_()
    difference_check(lambda *t: ops.conv2d(*t, *geometry), (x, w, b))
    difference_check(lambda *t: ops.conv2d_input_grad(*t, list(x.shape), *geometry), (dy, w))
    difference_check(lambda *t: ops.conv2d_weight_grad(*t, list(w.shape), *geometry), (dy, x))
    # The gradient of conv2d is linear in each of its arguments, and in the gradient that comes in.
    def gradient(x, w, dy):
        return torch.autograd.grad(ops.conv2d(x, w, None, *geometry), (x, w), dy, create_graph=True)
    difference_check(gradient, (x, w, dy))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES[::2], ids=str)
def test_opcheck(shape, dtype, format, device):
    (x, w, b), geometry = arguments(shape, dtype, device, format)
    y = ops.conv2d(x, w, b, *geometry)
    utilities = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    grad = [t.detach().requires_grad_() for t in (x, w, b)]
    torch.library.opcheck(ops.conv2d.default, (*grad, *geometry), test_utils=utilities)
    torch.library.opcheck(ops.conv2d_input_grad.default, (y, grad[1], list(x.shape), *geometry), test_utils=utilities)
    torch.library.opcheck(ops.conv2d_weight_grad.default, (y, grad[0], list(w.shape), *geometry), test_utils=utilities)
    torch.library.opcheck(ops.conv2d_fused.default, (x, w, b, y, *geometry, "relu"), test_utils=utilities)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", ["relu", "relu6", "leaky_relu(0.1)", "sigmoid", "silu", "gelu", "gelu_tanh", "hardswish"])
def test_what_follows(activation, device):
    (x, w, b), geometry = arguments(SHAPES[0], torch.float32, device, torch.channels_last)
    r = torch.randn(2, 4, 6, 7, device=device)
    y = ft.functional.conv2d(x, w, b, *geometry, residual=r, activation=activation)
    expected = activation_of(activation)(F.conv2d(x.cpu().double(), w.cpu().double(), b.cpu().double(), *geometry) + r.cpu().double())
    torch.testing.assert_close(y.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    # With gradients the same, and they are right.
    leaf = x.detach().clone().requires_grad_()
    z = ft.functional.conv2d(leaf, w, b, *geometry, residual=r, activation=activation)
    torch.testing.assert_close(z, y, rtol=1e-5, atol=1e-5)
    z.sum().backward()
    double = x.detach().cpu().double().requires_grad_()
    activation_of(activation)(F.conv2d(double, w.cpu().double(), b.cpu().double(), *geometry) + r.cpu().double()).sum().backward()
    torch.testing.assert_close(leaf.grad.cpu().double(), double.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_memory_formats_are_torchs(device):
    """channels_last comes out if it goes in anywhere; views with gaps and odd addresses are read right."""
    (x, w, b), geometry = arguments(SHAPES[0], torch.float32, device, torch.contiguous_format)
    last = torch.channels_last
    expected = right(x, w, b, geometry, torch.float32)
    for a, f, is_last in ((x.to(memory_format=last), w, True), (x, w.to(memory_format=last), True), (x, w, False)):
        y = ops.conv2d(a, f, b, *geometry)
        assert y.is_contiguous(memory_format=last) == is_last and y.is_contiguous() != is_last
        torch.testing.assert_close(y.cpu(), expected, rtol=0, atol=0)
    memory = torch.empty(x.numel() + 1, device=device)
    odd = memory[1:].view(x.shape).copy_(x)
    wide = torch.empty(2, 3, 6, 14, device=device)[..., ::2].copy_(x)
    for view in (odd, wide):
        torch.testing.assert_close(ops.conv2d(view, w, b, *geometry).cpu(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_autocast(device):
    (x, w, b), geometry = arguments(SHAPES[0], torch.float32, device, torch.contiguous_format)
    with torch.autocast(device, torch.bfloat16):
        y = ops.conv2d(x, w.requires_grad_(), b, *geometry)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert w.grad.dtype == torch.float32
    torch.testing.assert_close(y.detach().cpu(), right(x, w.detach(), b, geometry, torch.bfloat16), rtol=0, atol=0)


def test_flops_are_counted_as_torchs():
    from torch.utils.flop_counter import FlopCounterMode
    counts = []
    for conv in (F.conv2d, ops.conv2d):
        (x, w, b), geometry = arguments(SHAPES[0], torch.float32, "cpu", torch.contiguous_format)
        with FlopCounterMode(display=False) as counter:
            conv(x.requires_grad_(), w.requires_grad_(), b, *geometry).sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_empty_batches_and_refusals():
    w = torch.ones(4, 3, 3, 3)
    x = torch.ones(0, 3, 8, 8, requires_grad=True)
    y = ops.conv2d(x, w.requires_grad_(), None, [1, 1], [0, 0], [1, 1], 1)
    assert y.shape == (0, 4, 6, 6)
    y.sum().backward()
    assert x.grad.shape == x.shape and w.grad.abs().sum() == 0
    w, x = torch.ones(4, 3, 3, 3), torch.ones(1, 3, 8, 8)
    plain = ([1, 1], [0, 0], [1, 1], 1)
    for kind, word, call in (
            (faltung.Unsupported, "float64", lambda: ops.conv2d(x.double(), w.double(), None, *plain)),
            (faltung.Unsupported, "complex64", lambda: ops.conv2d(x.cfloat(), w.cfloat(), None, *plain)),
            (faltung.BadProblem, "one dtype", lambda: ops.conv2d(x, w.half(), None, *plain)),
            (faltung.BadProblem, "3 channels", lambda: ops.conv2d(x, w[:, :2], None, *plain)),
            (faltung.BadProblem, "dimensions", lambda: ops.conv2d(x[0], w, None, *plain)),
            (faltung.BadProblem, "does not fit", lambda: ops.conv2d(x[..., :2], w, None, *plain)),
            (faltung.BadProblem, "output channels", lambda: ops.conv2d(x, w, torch.ones(3), *plain)),
            (faltung.BadProblem, "grad_output", lambda: ops.conv2d_input_grad(torch.ones(1, 4, 5, 6), w, [1, 3, 8, 8], *plain)),
            (faltung.BadProblem, "activation", lambda: ft.functional.conv2d(x, w, activation="swish")),
            (faltung.BadProblem, "residual", lambda: ft.functional.conv2d(x, w, residual=torch.ones(1, 4, 6, 5))),
            (faltung.Unsupported, "vmap", lambda: torch.vmap(lambda t: ops.conv2d(t, w, None, *plain))(x[None]))):
        with pytest.raises(kind, match=word):
            call()


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
    ours, theirs = ft.Conv2d(4, 6, 3, padding="same", groups=2), torch.nn.Conv2d(4, 6, 3, padding="same", groups=2)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 4, 7, 9)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours(x[0]), theirs(x[0]), rtol=1e-5, atol=1e-5)
    reflect = [kind(4, 6, 3, padding=1, padding_mode="reflect") for kind in (ft.Conv2d, torch.nn.Conv2d)]
    reflect[0].load_state_dict(reflect[1].state_dict())
    torch.testing.assert_close(reflect[0](x), reflect[1](x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ft.functional.conv1d(x[:, :, 0], theirs.weight[:, :, 0], padding=1, groups=2),
                               F.conv1d(x[:, :, 0], theirs.weight[:, :, 0], padding=1, groups=2), rtol=1e-5, atol=1e-5)
