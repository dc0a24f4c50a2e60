"""Both gradients of a convolution at once, as autograd's nodes compute them in C, and what PyTorch is asked before."""
import itertools
import threading

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from faltung import _c  # noqa: E402
from faltung.torch import _autograd  # noqa: E402
from torch_cases import integers  # noqa: E402

ops = torch.ops.faltung
GEOMETRY = [2, 1], [1, 0], [1, 2], 2
FORMATS = [torch.contiguous_format, torch.channels_last]


@pytest.fixture(params=[True, False], ids=["keys", "questions"])
def reads_keys(request):
    """Also as where PyTorch's keys are not to be read."""
    _c.use_torch(*_autograd.ASKED, request.param and _autograd.READS_KEYS)
    yield request.param
    _c.use_torch(*_autograd.ASKED, _autograd.READS_KEYS)


def tensors(format=torch.contiguous_format, needs=(True, True, True)):
    shapes = (2, 4, 9, 8), (6, 2, 3, 2), (6,)
    return [integers(i, shape, format=format if len(shape) == 4 else torch.contiguous_format).requires_grad_(need)
            for i, (shape, need) in enumerate(zip(shapes, needs))]


def gradients(function, given, seed=9, expand=False, **keywords):
    y = function(*given, *GEOMETRY)
    dy = torch.full((1, 1, 1, 1), 3.0).expand(y.shape) if expand else torch.empty_like(y).copy_(integers(seed, y.shape))
    return torch.autograd.grad(y, [t for t in given if t.requires_grad], dy, **keywords)


def equal(a, b):
    return len(a) == len(b) and all(torch.equal(p, q) for p, q in zip(a, b))


@pytest.mark.parametrize("format", FORMATS, ids=["nchw", "nhwc"])
@pytest.mark.parametrize("needs", [n for n in itertools.product((False, True), repeat=3) if any(n)])
def test_what_is_needed(reads_keys, format, needs):
    """The first time, and when the call comes again with other numbers, also of a gradient that is read from one number."""
    given = tensors(format, needs)
    for seed, expand in ((9, False), (10, False), (11, True), (12, False)):
        ours, right = (gradients(f, given, seed, expand) for f in (ops.conv2d, F.conv2d))
        assert equal(ours, right)
        assert expand or all(a.stride() == t.stride() for a, t in zip(ours, [t for t in given if t.requires_grad]) if a.dim() == 4)


def test_lists_that_change_before_the_backward_pass(reads_keys):
    x, w, b = tensors()
    for autocast in (False, True):
        stride = [2, 1]
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y, right = ops.conv2d(x, w, b, stride, *GEOMETRY[1:]), F.conv2d(x, w, b, *GEOMETRY)
        stride[:] = [1, 1]
        dy = torch.ones_like(right)
        assert equal(torch.autograd.grad(y, (x, w, b), dy), torch.autograd.grad(right, (x, w, b), dy))


def test_saved_tensors_are_autograds(reads_keys):
    given = tensors()
    right = gradients(F.conv2d, given)
    packed = []

    def unpack(at):
        kept = packed[at]
        return kept.to(memory_format=torch.channels_last) if at % 2 else kept  # of other strides
    gradients(ops.conv2d, given)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(t.detach().clone()), len(packed) - 1)[1], unpack):
        assert equal(gradients(ops.conv2d, given), right)
    assert len(packed) == 2
    x, w, b = given
    y = ops.conv2d(x, w, b, *GEOMETRY)
    torch.autograd.grad(y, w, torch.ones_like(y))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, w, torch.ones_like(y))
    changed = w.detach().clone().requires_grad_()
    y = ops.conv2d(x, changed, b, *GEOMETRY)
    with torch.no_grad():
        changed.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y, x, torch.ones_like(y))
    y = ops.conv2d(x, w, b, *GEOMETRY)
    assert y.grad_fn.saved_tensors[0] is x


def test_what_differentiates_or_looks_at_the_backward_pass(reads_keys):
    """A call that ran before is differentiated, and seen by a mode, a subclass and hooks."""
    given = tensors()
    for _ in range(2):
        gradients(ops.conv2d, given)
    def second(function):
        first = gradients(function, given, create_graph=True)
        return torch.autograd.grad([g.square().sum() for g in first[:2]], given[:2])
    assert equal(second(ops.conv2d), second(F.conv2d))

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            names.append(str(function))
            return function(*arguments, **(keywords or {}))
    names = []
    y = ops.conv2d(*given, *GEOMETRY)
    with Seen():
        torch.autograd.grad(y, given, torch.ones_like(y))
    assert {"faltung.conv2d_input_grad.default", "faltung.conv2d_weight_grad.default"} <= set(names)
    seen = []
    y = ops.conv2d(*given, *GEOMETRY)
    y.grad_fn.register_hook(lambda results, gradient: seen.append([r is not None for r in results]))
    torch.autograd.grad(y, given, torch.ones_like(y))
    assert seen == [[True, True, True, False]] or seen == [[True, True, True]]


def test_the_overload_is_entered_like_the_operator(reads_keys):
    """And where keys are left out, as within a mode's handler, it leaves autograd to those who were there."""
    given, default = tensors(), ops.conv2d.default
    right = gradients(F.conv2d, given)
    for _ in range(2):
        assert equal(gradients(default, given), right)
    x, w, b = given
    with torch._C._AutoDispatchBelowAutograd():
        assert default(x, w, b, *GEOMETRY).grad_fn is None
    with FlopCounterMode(display=False) as flops:
        y = default(x, w, b, *GEOMETRY)
    assert flops.get_total_flops() > 0
    assert equal(torch.autograd.grad(y, given, integers(9, y.shape)), right)
    with torch.autocast("cpu", torch.bfloat16):
        assert default(x, w, b, *GEOMETRY).dtype is torch.bfloat16
    assert default(x, w, bias=b, stride=GEOMETRY[0], padding=GEOMETRY[1], dilation=GEOMETRY[2], groups=2).shape == y.shape
    with pytest.raises(_c.Unsupported, match="vmap"):
        torch.func.vmap(lambda each: default(each, w, b, *GEOMETRY))(x[None])
    with torch._subclasses.FakeTensorMode() as mode:
        assert default(*map(mode.from_tensor, given), *GEOMETRY).shape == y.shape
    with pytest.raises(RuntimeError, match="functorch transforms"):
        torch.func.grad(lambda w: default(x, w, b, *GEOMETRY).sum())(w.detach())


def test_keys_of_this_thread():
    """By which C knows that nothing looks: zero unless something does."""
    if not _autograd.READS_KEYS:
        pytest.skip("this PyTorch's keys are not to be read")
    seen = {}

    class Quiet(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            return function(*arguments, **(keywords or {}))

    def note(name):
        return lambda t: (seen.setdefault(name, _c.dispatch_keys()), t + 1)[1]
    with torch.autocast("cpu", torch.bfloat16):
        note("autocast")(1)
    with Quiet():
        note("mode")(1)
    with torch._subclasses.FakeTensorMode():
        note("fake tensors")(1)
    with torch.inference_mode():
        note("inference")(1)
    torch.func.vmap(note("vmap"))(torch.ones(2))
    torch.func.grad(lambda t: note("grad")(t).sum())(torch.ones(2))
    torch.jit.trace(note("trace"), torch.ones(2), check_trace=False)
    assert len(seen) == 7 and all(any(keys) for keys in seen.values()), seen
    with torch.no_grad():
        assert _c.dispatch_keys() == (0, 0)
    other = []
    thread = threading.Thread(target=lambda: other.append(_c.dispatch_keys()))
    with torch.autocast("cpu", torch.bfloat16):
        thread.start()
        thread.join()
    assert other == [(0, 0)] == [_c.dispatch_keys()]
