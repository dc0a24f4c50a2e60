"""torch.ops.faltung: results, gradients of any order, fake tensors, autocast, refusals. On the CPU, and on CUDA where there is a
device."""
import os
import random

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import faltung  # noqa: E402
import faltung.torch as ft  # noqa: E402
from reference import SHAPES, TRANSPOSED, shapes_of  # noqa: E402
from torch_cases import arguments, format_of, integers, name_of, of_torch  # noqa: E402
from faltung._geometry import FAMILIES  # noqa: E402
from faltung.torch import _run  # noqa: E402
from faltung.torch._activations import activation_of  # noqa: E402

ops = torch.ops.faltung
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
FORMATS = [torch.contiguous_format, torch.channels_last]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def right(x, w, b, geometry, dtype):
    """In float64 on the CPU, rounded once."""
    return F.conv2d(x.cpu().double(), w.cpu().double(), None if b is None else b.cpu().double(), *geometry).to(dtype)


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


def opcheck_cases():
    """Of the product of families, groups, dtypes and formats (of which one dimension has one) all where FALTUNG_TEST_FULL is set, or else so
    many that each family, dtype, format and number of groups is likely among them; FALTUNG_TEST_SEED draws others."""
    def shape(dimensions, groups, *more):
        return (4, (5, 4, 3)[:dimensions], 8, (3, 2, 1)[:dimensions], (2, 1, 1)[:dimensions], (1, 0, 0)[:dimensions], (1, 2, 1)[:dimensions], groups, *more)
    product = [(shape(dimensions, groups, *more), dtype, format) for dimensions in (1, 2, 3) for more in ((), ((1, 0, 0)[:dimensions],))
               for groups in (1, 2, 4) for dtype in DTYPES for format in FORMATS[:1 + (dimensions > 1)]]
    return product if os.environ.get("FALTUNG_TEST_FULL") else random.Random(os.environ.get("FALTUNG_TEST_SEED", "1")).sample(product, 12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape, dtype, format", opcheck_cases(), ids=str)
def test_opcheck(shape, dtype, format, device):
    (x, w, b), geometry = arguments(shape, dtype, device, format)
    _, geometry = of_torch(shape, geometry)
    conv, input_grad, weight_grad, fused, layer = (getattr(ops, name_of(shape) + suffix).default
                                                   for suffix in ("", "_input_grad", "_weight_grad", "_fused", "_layer"))
    y = conv(x, w, b, *geometry)
    utilities = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    grad = [t.detach().requires_grad_() for t in (x, w, b)]
    norm = [torch.linspace(0.5, 1.5, shape[2], device=device) for _ in range(4)]  # scale, shift, mean, variance
    torch.library.opcheck(conv, (*grad, *geometry), test_utils=utilities)
    torch.library.opcheck(input_grad, (y, grad[1], list(x.shape), *geometry), test_utils=utilities)
    torch.library.opcheck(weight_grad, (y, grad[0], list(w.shape), *geometry), test_utils=utilities)
    torch.library.opcheck(fused, (x, w, b, y, *geometry, "relu"), test_utils=utilities)
    torch.library.opcheck(layer, (x, w, b, *norm, y, *geometry, 1e-5, "silu"), test_utils=utilities)
    if len(x.shape) == 4:
        torch.library.opcheck(layer, (x, w, None, *[None] * 4, None, *geometry, 0.0, "relu:maxpool2s1p0"), test_utils=utilities)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", ["relu", "relu6", "leaky_relu(0.1)", "sigmoid", "silu", "gelu", "gelu_tanh", "hardswish",
                                        "hardsigmoid(0.2)", "clip(-0.5,1.25)"])
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


@pytest.mark.parametrize("slope", [0.2, 1 / 6])
def test_hard_sigmoids_gradient_at_a_bound_is_torchs(slope):
    """Values far below, at, between, at and far above the bounds: nothing passes at a bound, as of F.hardsigmoid."""
    y = torch.tensor([-9.0, -0.5 / slope, -1.0, 0.0, 1.0, 0.5 / slope, 9.0]).view(1, 1, 1, 7).requires_grad_()
    one = torch.ones(1, 1, 1, 1)
    ft.functional.conv2d(y, one, activation=f"hardsigmoid({slope})").sum().backward()
    torch.testing.assert_close(y.grad.flatten(), slope * torch.tensor([0.0, 0, 1, 1, 1, 0, 0]))
    if slope != 0.2:
        inner = y.detach()[..., 2:5].clone().requires_grad_()
        F.hardsigmoid(inner).sum().backward()
        torch.testing.assert_close(y.grad[..., 2:5], inner.grad)


@pytest.mark.parametrize("activation", ["clip(1)", "clip(a,b)", "clip(6,-1)", "clip(2,1)", "clip(nan,1)", "clip(1,2,3)", "clip( -1,6)", "clip(+1,6)",
                                        "clip(-inf,1)", "clip(0,1e999)", "leaky_relu()", "leaky_relu(x)", "leaky_relu(1_0)", "hardsigmoid", "relu7",
                                        "prelu", "relu:relu", "relu:f16", "relu:maxpool2s2p0"])
def test_a_malformed_activation_is_refused_with_gradients_and_without(activation, monkeypatch):
    """By functions and operators in the same words, and before anything is computed."""
    x, w, plain = integers(1, (2, 3, 11, 13)), integers(2, (4, 3, 3, 3)), ([1, 1], [1, 1], [1, 1], 1)
    made, said = {}, set()
    monkeypatch.setattr(_run, "_plans", made)
    def fused(t):
        return ops.conv2d_fused(t, w, None, None, *plain, activation)
    calls = [fused, lambda t: ft.functional.conv2d(t, w, padding=1, activation=activation),
             lambda t: ops.conv2d_fused.default(t, w, None, None, *plain, activation)]
    if "maxpool" not in activation:  # which a layer's may end with
        calls.append(lambda t: ops.conv2d_layer(t, w, *[None] * 6, *plain, 0.0, activation))
    for call in calls:
        for leaf in (x, x.detach().clone().requires_grad_()):
            with pytest.raises(faltung.BadProblem, match="activation is") as refusal:
                call(leaf)
            said.add(str(refusal.value))
    with pytest.raises(RuntimeError, match="activation is"):  # Dynamo's own, around ours
        torch.compile(fused, backend="eager", fullgraph=True)(x)
    assert not made and len(said) == 1


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
