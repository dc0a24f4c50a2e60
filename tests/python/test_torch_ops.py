"""torch.ops.faltung: results, gradients of any order, fake tensors, autocast, torch.compile, CUDA's streams and graphs. On the
CPU, and on CUDA where there is a device."""
import os
import subprocess
import sys
import weakref

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import faltung  # noqa: E402
import faltung.torch as ft  # noqa: E402
from reference import SHAPES, TRANSPOSED, shapes_of  # noqa: E402
from faltung._geometry import FAMILIES  # noqa: E402
from faltung.torch import _run  # noqa: E402
from faltung.torch._activations import activation_of  # noqa: E402

ops = torch.ops.faltung
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
FORMATS = [torch.contiguous_format, torch.channels_last]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
cuda_only = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def integers(seed, shape, dtype=torch.float32, device="cpu", format=torch.contiguous_format):
    """Small: every sum below is exact in the dtype of the accumulator, and rounded once. format: of two dimensions; of three the same
    order, of one there is no other."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-2, 3, shape, generator=generator).to(device, dtype)
    return values.contiguous(memory_format=format_of(values, format))


def format_of(tensor, format):
    if format is torch.contiguous_format or tensor.dim() < 4:
        return torch.contiguous_format
    return torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d


def right(x, w, b, geometry, dtype):
    """In float64 on the CPU, rounded once."""
    return F.conv2d(x.cpu().double(), w.cpu().double(), None if b is None else b.cpu().double(), *geometry).to(dtype)


def arguments(shape, dtype, device, format):
    x, w, _, geometry, _ = shapes_of(shape)
    return (integers(1, x, dtype, device, format), integers(2, w, dtype, device, format),
            integers(3, (shape[2],), dtype, device)), [list(g) if isinstance(g, tuple) else g for g in geometry]


def name_of(shape):
    return f"conv{'_transpose' * (len(shape) == 9)}{len(shape[1])}d"


def of_torch(shape, geometry):
    """PyTorch's own function of x, w, b; the operator's geometry, with the output's padding."""
    if len(shape) == 8:
        return lambda *t: getattr(F, name_of(shape))(*t, *geometry), geometry
    stride, padding, dilation, groups = geometry
    return (lambda *t: getattr(F, name_of(shape))(*t, stride, padding, shape[8], groups, dilation)), [*geometry, list(shape[8])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES + TRANSPOSED, ids=str)
def test_forward_and_backward_are_exact(shape, dtype, format, device):
    if device == "cuda" and not os.environ.get("FALTUNG_TEST_FULL") and (dtype, format) != (torch.float16, FORMATS[1]):
        pytest.skip("every shape needs kernels compiled: of one dtype and format, unless FALTUNG_TEST_FULL is set")
    tensors, geometry = arguments(shape, dtype, device, format)
    theirs, geometry = of_torch(shape, geometry)
    op = getattr(ops, name_of(shape))
    exact = [t.detach().cpu().double().requires_grad_() for t in tensors]
    right = theirs(*exact)
    for _ in range(2):  # by Python, and then as it is remembered
        y = op(*tensors, *geometry)
        torch.testing.assert_close(y.cpu(), right.detach().to(dtype), rtol=0, atol=0)
        assert y.is_contiguous(memory_format=format_of(y, format))

    dy = integers(4, tuple(y.shape), dtype, device, format)
    right.backward(dy.cpu().double())
    for _ in range(2):
        leaves = [t.detach().clone(memory_format=torch.preserve_format).requires_grad_() for t in tensors]
        op(*leaves, *geometry).backward(dy)
        for ours, double in zip(leaves, exact):
            torch.testing.assert_close(ours.grad.cpu(), double.grad.to(dtype), rtol=0, atol=0)


def difference_check(function, inputs):
    """gradcheck, exactly: what is linear in each argument equals its central difference with a step of 1, in small integers."""
    assert torch.autograd.gradcheck(function, inputs, eps=1.0, atol=0, rtol=0, nondet_tol=0, check_batched_grad=False,
                                    raise_exception=True)


@pytest.mark.filterwarnings("ignore:Input #")  # that float32 is too coarse for gradcheck
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [
    (4, (4, 3), 2, (2, 2), (2, 1), (1, 0), (1, 1), 1), (4, (4, 3), 2, (2, 2), (2, 1), (1, 0), (1, 1), 2),
    (2, (5,), 2, (2,), (2,), (1,), (1,), 1), (2, (2, 3, 2), 2, (1, 2, 2), (1, 1, 1), (0, 1, 0), (1, 1, 1), 2),
    (2, (3, 2), 4, (2, 2), (2, 1), (0, 1), (1, 1), 2, (1, 0))], ids=str)
def test_gradients_of_gradients(shape, device):
    x_shape, w_shape, y_shape, geometry, output_padding = shapes_of(shape)
    geometry = (*geometry, output_padding) if output_padding else geometry
    conv, input_grad, weight_grad = (getattr(ops, name_of(shape) + suffix) for suffix in ("", "_input_grad", "_weight_grad"))
    x, w, dy, b = (integers(i, s, device=device).requires_grad_() for i, s in enumerate((x_shape, w_shape, y_shape, y_shape[1:2])))
    difference_check(lambda *t: conv(*t, *geometry), (x, w, b))
    difference_check(lambda *t: input_grad(*t, list(x.shape), *geometry), (dy, w))
    difference_check(lambda *t: weight_grad(*t, list(w.shape), *geometry), (dy, x))
    # The gradient of the convolution is linear in each of its arguments, and in the gradient that comes in.
    def gradient(x, w, dy):
        return torch.autograd.grad(conv(x, w, None, *geometry), (x, w), dy, create_graph=True)
    difference_check(gradient, (x, w, dy))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[2], SHAPES[4], SHAPES[7], TRANSPOSED[1]], ids=str)
def test_opcheck(shape, dtype, format, device):
    if (dtype, format) != (DTYPES[0], FORMATS[0]) and shape is not SHAPES[2]:
        pytest.skip("of one shape alone")
    (x, w, b), geometry = arguments(shape, dtype, device, format)
    _, geometry = of_torch(shape, geometry)
    conv, input_grad, weight_grad, fused = (getattr(ops, name_of(shape) + suffix).default
                                            for suffix in ("", "_input_grad", "_weight_grad", "_fused"))
    y = conv(x, w, b, *geometry)
    utilities = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    grad = [t.detach().requires_grad_() for t in (x, w, b)]
    torch.library.opcheck(conv, (*grad, *geometry), test_utils=utilities)
    torch.library.opcheck(input_grad, (y, grad[1], list(x.shape), *geometry), test_utils=utilities)
    torch.library.opcheck(weight_grad, (y, grad[0], list(w.shape), *geometry), test_utils=utilities)
    torch.library.opcheck(fused, (x, w, b, y, *geometry, "relu"), test_utils=utilities)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", ["relu", "relu6", "leaky_relu(0.1)", "sigmoid", "silu", "gelu", "gelu_tanh", "hardswish"])
def test_what_follows(activation, device):
    (x, w, b), geometry = arguments(SHAPES[0], torch.float32, device, torch.channels_last)
    r = torch.randn(2, 4, 7, 9, device=device)
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
    wide = torch.empty(2, 3, 7, 18, device=device)[..., ::2].copy_(x)
    for view in (odd, wide):
        torch.testing.assert_close(ops.conv2d(view, w, b, *geometry).cpu(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_images_of_one_pixel(transposed, dimensions, groups, device, monkeypatch):
    """Both layouts are one then: kernels read rows of channels, in all passes, and strides are PyTorch's."""
    name, made = f"conv{'_transpose' * transposed}{dimensions}d", {}
    monkeypatch.setattr(_run, "_plans", made)
    ones = (1,) * dimensions
    x, w, b = (integers(seed, shape, device=device).requires_grad_() for seed, shape in (
        (1, (4, 12, *ones)), (2, (12, 10, *ones) if transposed else (20, 12 // groups, *ones)), (3, (10 * groups if transposed else 20,))))
    geometry = [[1] * dimensions, [0] * dimensions, [1] * dimensions, groups] + [[0] * dimensions] * transposed
    by_torch = getattr(F, name)(x, w, b, 1, 0, 0, groups) if transposed else getattr(F, name)(x, w, b, groups=groups)
    y = getattr(ops, name)(x, w, b, *geometry)
    assert torch.equal(y, by_torch) and y.stride() == by_torch.stride()
    for own, theirs in zip(*(torch.autograd.grad(z, (x, w, b), torch.ones_like(z)) for z in (y, by_torch))):
        assert torch.equal(own, theirs)
    assert len(made) == 3 and all(":nhwc" in plan.problem for plan in made.values())
    padded = _run.geometry_of(FAMILIES[1], (1, 1), padding=1)
    assert not _run.is_flat(torch.Size((1, 4, 1, 1)), torch.Size((8, 4, 1, 1)), padded)


@pytest.mark.parametrize("device", DEVICES)
def test_autocast(device):
    (x, w, b), geometry = arguments(SHAPES[0], torch.float32, device, torch.contiguous_format)
    with torch.autocast(device, torch.bfloat16):
        y = ops.conv2d(x, w.requires_grad_(), b, *geometry)
        compiled = torch.compile(lambda x: ops.conv2d(x, w.detach(), b, *geometry), fullgraph=True, backend="aot_eager")
        assert y.dtype == torch.bfloat16 and torch.equal(compiled(x), y)
        assert torch.equal(ops.conv2d.default(x, w.detach(), b, *geometry), y)
    y.sum().backward()
    assert w.grad.dtype == torch.float32
    torch.testing.assert_close(y.detach().cpu(), right(x, w.detach(), b, geometry, torch.bfloat16), rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("starts_as_constant", (False, True))
def test_autocast_keeps_what_a_weight_was(starts_as_constant, device):
    """A weight that is changed in place between the passes: gradients of gradients are those of the values, and of the computation,
    that the convolution read."""
    (x, w, b), geometry = arguments(SHAPES[0], torch.float32, device, torch.contiguous_format)

    def gradients(convolution):
        leaf, scale = w.clone().requires_grad_(), torch.tensor(2.0, device=device, requires_grad=True)
        image = x.clone().requires_grad_()
        weight = w.clone() if starts_as_constant else leaf * scale
        with torch.autocast(device, torch.bfloat16):
            y = convolution(image, weight, b, *geometry)
        weight.mul_(scale * 3)
        first, = torch.autograd.grad(y.float().sum(), image, create_graph=True)
        total = first.sum() + 0 * leaf.sum() + 0 * scale
        return [first, *torch.autograd.grad(total, (leaf, scale))]
    for ours, right in zip(gradients(ops.conv2d), gradients(F.conv2d)):
        torch.testing.assert_close(ours, right, rtol=0, atol=0)


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[5], TRANSPOSED[0]], ids=str)
def test_flops_are_counted_as_torchs(shape):
    from torch.utils.flop_counter import FlopCounterMode
    counts = []
    (x, w, b), geometry = arguments(shape, torch.float32, "cpu", torch.contiguous_format)
    theirs, geometry = of_torch(shape, geometry)
    for conv in (theirs, lambda *t: getattr(ops, name_of(shape))(*t, *geometry)):
        with FlopCounterMode(display=False) as counter:
            conv(x.requires_grad_(), w.requires_grad_(), b).sum().backward()
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
            (faltung.Unsupported, "int8", lambda: ops.conv2d(x.to(torch.int8), w.to(torch.int8), None, *plain)),
            (faltung.BadProblem, "stride is", lambda: ops.conv2d(x, w, None, [0, 1], *plain[1:])),
            (faltung.BadProblem, "padding is", lambda: ops.conv2d(x, w, None, [1, 1], [-1, 0], *plain[2:])),
            (faltung.BadProblem, "dilation is", lambda: ops.conv2d(x, w, None, [1, 1], [0, 0], [-1, 1], 1)),
            (faltung.BadProblem, "0 groups", lambda: ops.conv2d(x, w, None, *plain[:3], 0)),
            (faltung.BadProblem, "0 or|at least|must be", lambda: ops.conv2d(x[:, :0], w[:, :0], None, *plain)),
            (faltung.BadProblem, "does not fit", lambda: ops.conv2d(x[:, :, :0], w, None, *plain)),
            (faltung.BadProblem, "one device", lambda: ops.conv2d(x, w.to("meta"), None, *plain)),
            (NotImplementedError, "Sparse", lambda: ops.conv2d(x.to_sparse(), w, None, *plain)),
            (NotImplementedError, "Sparse", lambda: ops.conv2d(x, w.to_sparse(), None, *plain)),
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
