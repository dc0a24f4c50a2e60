"""Which of a compiled graph's convolutions are faltung's: those that are faster here than PyTorch's own."""
import operator
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import _disable_current_modes

from .. import _c
from .._geometry import FAMILIES
from . import _attention, _average, _excite, _group, _linear, _run
from ._activations import pool_of
from ._observe import fork_rng
from ._passes import FORWARD, INPUT_GRAD, WEIGHT_GRAD, Passes
from ._time import time_in_turn

MIN_MS = 4.0  # of each that is timed
SURE = 0.75  # of PyTorch's time without a search for algorithms, which takes a good part of a second a shape: none found makes up for that
_known = {}
_PASSES = {"": FORWARD, "_input_grad": INPUT_GRAD, "_weight_grad": WEIGHT_GRAD}


def _operators():
    """{an operator: its family and which pass it is}"""
    return {getattr(torch.ops.faltung, family.name + suffix).default: (family, which)
            for family in FAMILIES for suffix, which in _PASSES.items()}


def is_static(tensor):
    return isinstance(tensor, torch.Tensor) and all(isinstance(size, int) for size in (*tensor.shape, *tensor.stride()))


def _like(tensor):
    """Another of random numbers."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.copy_(torch.rand(tensor.shape, device=tensor.device) - 0.5)


def _remembered(key, measure, like):
    """like: a tensor on the device."""
    if key not in _known:
        with torch.no_grad(), _disable_current_modes(), fork_rng(like), torch.autocast("cuda", enabled=False), \
                torch.autocast("cpu", enabled=False):
            try:
                _known[key] = measure()
            except (_c.Error, RuntimeError):  # that nothing computes, or there is no memory to try it
                _known[key] = False
    return _known[key]


def _without_search(measure, device):
    """What measure returns where cuDNN computes by what its heuristics name; on a thread of its own, since PyTorch remembers by thread
    what it once computed by."""
    def measured():
        with torch.no_grad(), torch.cuda.device(device):
            return measure()
    torch.backends.cudnn.benchmark = False
    try:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(measured).result()
    finally:
        torch.backends.cudnn.benchmark = True


def _is_less(measure, like):
    """Of the two times that measure returns, whether the first is. like: a tensor on the device."""
    if like.is_cuda and torch.backends.cudnn.benchmark:
        ms, torch_ms = _without_search(measure, like.device)
        if ms <= SURE * torch_ms or ms > torch_ms:  # which a search only lessens
            return ms <= torch_ms
    ms, torch_ms = measure()
    return ms <= torch_ms


def _described(*tensors):
    return tuple(None if t is None else (tuple(t.shape), t.stride(), t.dtype, t.device) for t in tensors)


def _asked(wanted):
    """What plan_for takes, of (a tensor of the dtype on the device, the function that says it, its arguments but that tensor)."""
    with _disable_current_modes():
        return [function(*arguments, torch.empty(0, dtype=like.dtype, device=like.device)) for like, function, arguments in wanted]


def _plan_ahead(wanted):
    """wanted: as _asked takes it."""
    wanted = _asked(wanted)
    if wanted:
        _run.plan_ahead(wanted[0][5].device, wanted)


class Ahead:
    """The plans of all passes of a graph's convolutions, made beside PyTorch's tracing and compiling of it: the forward
    passes' first, the gradients' from begin_gradients on. Nothing may be timed until wait returns."""

    def __init__(self, convolutions):
        """Of each: family, geometry, and the examples of input, weight and result, which say of which gradients are needed."""
        forward, self.gradients = [], []
        for family, geometry, x, w, y in convolutions:
            if all(map(is_static, (x, w, y))):
                passes = Passes(family, geometry)
                forward.append((y, passes.wanted, (FORWARD, x, w)))
                self.gradients += [(y, passes.wanted, (which, x, w)) for which, of in ((INPUT_GRAD, x), (WEIGHT_GRAD, w)) if of.requires_grad]
        self.made = None
        self._begin(forward)

    def _begin(self, wanted):
        """By a thread that ends with it; what was begun before has been waited for."""
        wanted = _asked(wanted)
        if wanted:
            thread = ThreadPoolExecutor(1, thread_name_prefix="faltung-ahead")
            self.made = thread.submit(_run.plan_ahead, wanted[0][5].device, wanted)
            thread.shutdown(wait=False)

    def begin_gradients(self):
        wanted, self.gradients = self.gradients, []
        self._begin(wanted)

    def wait(self):
        if self.made is not None:
            self.made.result()


def plan_ahead(convolutions, linears):
    """The plans that is_faster_fused and is_faster_linear will ask for, of their arguments in any number, made at once."""
    def wanted(family, x, w, has_bias, geometry, adds, activation, is_followed, like):
        x, w = _run.likeness(x), _run.likeness(w)
        _, whole = _run.shape_forward(family, x, w, None, None, geometry)
        last, bias = _run.wants_channels_last(x, w), _run.made_bias(has_bias, like)
        return "fwd", family, x.shape, w.shape, whole, like, last, bias, adds, activation
    ahead = [(asked[1], wanted, asked) for asked in convolutions
             if is_static(asked[1]) and is_static(asked[2]) and asked[1].dtype is asked[2].dtype]
    _plan_ahead(ahead + [(x, _linear.wanted, (x.shape, w.shape, has_bias, adds, activation)) for x, w, has_bias, _, adds, activation in linears])


def is_faster_fused(family, x, w, has_bias, geometry, adds, activation, is_followed):
    """Without gradients: a convolution with what follows it beside PyTorch's, to which a compiler adds one pass over the result."""
    passes = Passes(family, geometry)
    if not (is_static(x) and is_static(w)) or x.dtype is not w.dtype or not passes.is_symmetric:
        return True

    def measure():
        real, weight = _like(x), _like(w)
        y = passes.forward((), real, weight)
        bias, residual = _like(y[0].flatten(1)[:, 0]) if has_bias else None, _like(y) if adds else None
        layer, pool = getattr(torch.ops.faltung, family.name + "_layer"), pool_of(activation)

        def theirs():
            y = passes.forward((), real, weight, bias)
            return pool(y.add_(residual) if adds else F.relu_(y) if is_followed else y)
        return time_in_turn(
            [lambda: layer(real, weight, bias, None, None, None, None, residual, *geometry, 0.0, activation), theirs], real.device, MIN_MS)
    key = (family, *_described(x, w), has_bias, str(geometry), adds, activation, is_followed)
    return _remembered(key, lambda: _is_less(measure, x), x)


def is_faster_linear(x, w, has_bias, is_scaled, adds, activation):
    """Without gradients: a linear layer with what follows it beside PyTorch's, to which a compiler adds one pass over the result if
    anything does."""
    def measure():
        real, weight = _like(x), _like(w)
        y = F.linear(real, weight)
        bias, residual = _like(y.flatten(0, -2)[0]) if has_bias else None, _like(y) if adds else None
        scale = _like(y.flatten(0, -2)[0]) if is_scaled else None

        def theirs():
            y = F.linear(real, weight, bias)
            return F.gelu(y) if activation else y.add_(residual) if adds else y.mul_(scale) if is_scaled else y
        ms, torch_ms = time_in_turn(
            [lambda: torch.ops.faltung.linear_layer(real, weight, bias, scale, residual, activation), theirs], real.device, MIN_MS)
        return ms <= torch_ms
    return _remembered(("linear", *_described(x, w), has_bias, is_scaled, adds, activation), measure, x)


def is_faster(name, arguments):
    """An operator that PyTorch's compose, beside those."""
    module = {"average": _average, "excite": _excite, "group_norm": _group}[name]

    def measure():
        real = [_like(a) if isinstance(a, torch.Tensor) else a for a in arguments]
        ms, torch_ms = time_in_turn([lambda: module.compute(*real), lambda: module.composed(*real)], real[0].device, MIN_MS)
        return ms <= torch_ms
    key = (name, *(_described(a) if isinstance(a, torch.Tensor) else a for a in arguments))
    return _remembered(key, measure, arguments[0])


def is_faster_attention(query, key, value, scale):
    """By its products beside PyTorch's own, which a compiler leaves as it is; by them the compiler makes less of the softmax than is timed here."""
    def measure():
        real = [_like(t) for t in (query, key, value)]
        ms, torch_ms = time_in_turn([lambda: _attention.by_products(*real, scale), lambda: _attention.by_pytorch(*real, scale)],
                                    query.device, MIN_MS)
        return ms <= torch_ms
    return _remembered(("attention", *_described(query, key, value)), measure, query)


def _passes_of(graph):
    """(node, passes, which of them, x, w, the result) of each of a graph's passes that may be timed."""
    operators = _operators()
    for node in list(graph.graph.nodes):
        if node.op != "call_function" or node.target not in operators:
            continue
        family, which = operators[node.target]
        first, second, third, *geometry = node.args
        passes = Passes(family, tuple(geometry))
        tensors = [argument.meta.get("val") for argument in (first, second)]
        result = node.meta.get("val")
        if all(map(is_static, (*tensors, result))) and passes.is_symmetric:
            x, w = {FORWARD: tensors, INPUT_GRAD: (result, tensors[1]), WEIGHT_GRAD: (tensors[1], result)}[which]
            yield node, passes, which, x, w, result


def choose_passes(graph):
    """Puts PyTorch's operators in place of faltung's, in a graph behind autograd, where they are faster."""
    _plan_ahead((x, passes.wanted, (which, x, w)) for _, passes, which, x, w, _ in _passes_of(graph))
    for node, passes, which, x, w, result in _passes_of(graph):
        def measure():
            return passes.time(which, _like(x), _like(w), MIN_MS)
        key = passes.family, which, *_described(x, w), str(passes.geometry)
        if _remembered(key, lambda: _is_less(measure, x), x):
            continue
        with graph.graph.inserting_before(node):
            new = _by_torch(graph.graph, node, which, passes, result)
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        graph.graph.erase_node(node)
    graph.recompile()


def _by_torch(graph, node, which, passes, result):
    """The same by PyTorch's operators."""
    options = [list(o) if isinstance(o, (list, tuple)) else o for o in passes.torchs]
    first, second, third = node.args[:3]
    if which == FORWARD:
        return graph.call_function(torch.ops.aten.convolution.default, (first, second, third, *options))
    # Of the tensor whose gradient it is PyTorch reads shape and strides alone.
    unread = graph.call_function(torch.ops.aten.empty_strided.default, (list(result.shape), list(result.stride())),
                                 {"dtype": result.dtype, "device": result.device})
    unread.meta["val"] = result
    x, w = (unread, second) if which == INPUT_GRAD else (second, unread)
    of_x = which == INPUT_GRAD
    both = graph.call_function(torch.ops.aten.convolution_backward.default, (first, x, w, None, *options, [of_x, not of_x, False]))
    both.meta["val"] = (result, None, None) if of_x else (None, result, None)
    return graph.call_function(operator.getitem, (both, 0 if of_x else 1))
