"""patch(model, example): faltung's kernels in a model, where they are faster."""
import copy
import statistics
import time

import torch
import torch.nn.functional as F

from .. import _c, _functional
from . import _run
from ._activations import activation_of
from ._backend import fold
from ._observe import Observation, activation_name

ROUNDS = 9


class Layer:
    """A convolution, the batch norm and the activation that alone follow it (or None), computed as one.

    It stands in for the convolution's forward. Where a gradient is needed, or batch norm is in training mode, the parts are
    computed one after the other, the convolution by the operator that has gradients."""

    def __init__(self, conv, norm=None, activation=None):
        self.conv, self.norm, self.activation = conv, norm, activation
        self.word = activation_name(activation) if activation is not None else ""
        self._made_of = None

    def __getstate__(self):
        return {"conv": self.conv, "norm": self.norm, "activation": self.activation, "word": self.word, "_made_of": None}

    def _tensors(self):
        norm = self.norm
        own = [self.conv.weight, self.conv.bias]
        return own if norm is None else own + [norm.weight, norm.bias, norm.running_mean, norm.running_var]

    def _constants(self):
        """Weight and bias with batch norm folded in; computed again when a tensor that they are made of changes."""
        tensors = self._tensors()
        made_of = [None if t is None else (t.data_ptr(), 0 if t.is_inference() else t._version, t.dtype) for t in tensors]
        if made_of != self._made_of:
            with torch.no_grad():
                self._weight, self._bias = folded(self.conv, self.norm)
            self._packed = {}
            self._made_of = made_of
        return self._weight, self._bias

    def parts(self, x):
        """One after the other, with gradients."""
        conv = self.conv
        dtypes = {x.dtype, conv.weight.dtype}
        if x.dim() == 4 and dtypes <= _run.DTYPES.keys() and (len(dtypes) == 1 or torch.is_autocast_enabled(x.device.type)):
            y = torch.ops.faltung.conv2d(x, conv.weight, conv.bias, conv.stride, geometry_padding(conv), conv.dilation, conv.groups)
        else:
            y = type(conv).forward(conv, x)
        if self.norm is not None:
            y = type(self.norm).forward(self.norm, y)
        return y if self.activation is None else type(self.activation).forward(self.activation, y)

    def needs_parts(self, x):
        if self.norm is not None and self.norm.training:
            return True
        if torch.is_autocast_enabled(x.device.type):
            return True
        if x.dtype != self.conv.weight.dtype or x.dtype not in _run.DTYPES or x.dim() != 4:
            return True
        if not torch.is_grad_enabled():
            return False
        return x.requires_grad or any(t is not None and t.requires_grad for t in self._tensors())

    def __call__(self, x):
        if self.needs_parts(x):
            return self.parts(x)
        conv = self.conv
        if torch.compiler.is_compiling():
            weight, bias = folded(conv, self.norm)
            return torch.ops.faltung.conv2d_fused(x, weight, bias, None, conv.stride, geometry_padding(conv), conv.dilation,
                                                  conv.groups, self.word)
        return self.fused(x)

    def plan(self, x, y, in_parts):
        """The plan that makes y of x."""
        conv = self.conv
        x, w = x.to(y.dtype), conv.weight.to(y.dtype)
        bias = conv.bias is not None or (self.norm is not None and not in_parts)
        return _run.plan_for("fwd", x.shape, w.shape, conv.stride, geometry_padding(conv), conv.dilation, conv.groups, x,
                             _run.wants_channels_last(x, w), bias, False, "" if in_parts else self.word)

    def fused(self, x):
        conv = self.conv
        weight, bias = self._constants()
        padding = geometry_padding(conv)
        last = _run.wants_channels_last(x, weight)
        shape = _run.output_shape(x.shape, weight.shape, conv.stride, padding, conv.dilation)
        y = _run.empty(shape, x, last)
        if y.numel() == 0:
            return y
        x = _run.dense(x, last)
        plan = _run.plan_for("fwd", x.shape, weight.shape, conv.stride, padding, conv.dilation, conv.groups, x, last,
                             bias is not None, False, self.word)
        packed = self._packed.get((plan, last))
        if packed is None:
            dense = _run.dense(weight, last)
            stream = torch._C._cuda_getCurrentRawStream(x.device.index) if x.is_cuda else None
            packed = dense, plan.pack(dense.data_ptr(), stream) if plan.packed_weights_bytes else None
            self._packed[plan, last] = packed
        _run.run(plan, x, packed[0], y, bias, None, packed[1])
        return y


class Pass:
    """Stands in for the forward of a module whose work its convolution does."""

    def __call__(self, x):
        return x


def geometry_padding(conv):
    if isinstance(conv.padding, str):
        return _functional.four_sides(conv.padding, conv.kernel_size, conv.stride, conv.dilation)
    return conv.padding


def folded(conv, norm):
    """Weight and bias of the convolution, with batch norm's running statistics folded in."""
    if norm is None:
        return conv.weight, conv.bias
    return fold(conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.eps)


def refusal(conv, calls, observation):
    """Why a convolution is left to PyTorch, or None."""
    if type(conv) is not torch.nn.Conv2d:
        return f"it is a {type(conv).__name__}, not torch.nn.Conv2d itself"
    if "forward" in conv.__dict__:
        return "its forward was replaced already"
    if torch.nn.utils.parametrize.is_parametrized(conv) or "weight" not in conv._parameters:
        return "its weight is computed by a parametrization"
    if not calls:
        return "it did not run"
    if len(calls) > 1:
        return f"it ran {len(calls)} times: it is reused"
    if conv in observation.foreign_hooks:
        return "it has hooks"
    if conv.padding_mode != "zeros":
        return f"its padding mode is {conv.padding_mode}"
    call = calls[0]
    if call is None or len(call.shape) != 4:
        return "its input is not one tensor N C H W"
    mixed = call.dtype != conv.weight.dtype and not torch.is_autocast_enabled(call.device.type)
    if mixed or not {call.dtype, conv.weight.dtype} <= _run.DTYPES.keys():
        return f"its input is {call.dtype}, its weight {conv.weight.dtype}"
    return None


def layer_of(conv, observation):
    """The convolution with what may be fused to it."""
    norm = observation.sole_reader(conv)
    if not isinstance(norm, torch.nn.BatchNorm2d) or type(norm) is not torch.nn.BatchNorm2d:
        activation, norm = norm, None
    elif norm.training or norm.running_mean is None or norm in observation.foreign_hooks:
        return Layer(conv)
    else:
        activation = observation.sole_reader(norm)
    if activation is None or activation_name(activation) is None or activation in observation.foreign_hooks:
        return Layer(conv, norm)
    return Layer(conv, norm, activation)


# ----------------------------------------------------------------------------------------------- measuring

def time_in_turn(functions, device, min_ms):
    """The median milliseconds of each, in blocks, in turn; on CUDA between events."""
    cuda = device.type == "cuda"

    def block(function, runs):
        if cuda:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(runs):
                function()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) / runs
        begin = time.perf_counter()
        for _ in range(runs):
            function()
        return (time.perf_counter() - begin) * 1e3 / runs

    runs = []
    for function in functions:
        function()
        runs.append(max(1, int(min_ms / ROUNDS / max(block(function, 2), 1e-3))))
    times = [[] for _ in functions]
    for _ in range(ROUNDS):
        for i, function in enumerate(functions):
            times[i].append(block(function, runs[i]))
    return [statistics.median(t) for t in times]


def reference_error(layer, x, result):
    """The largest difference from float64, relative to the largest result, on the first image."""
    conv = layer.conv
    y = F.conv2d(x[:1].double().cpu(), conv.weight.double().cpu(), None if conv.bias is None else conv.bias.double().cpu(),
                 conv.stride, conv.padding, conv.dilation, conv.groups)
    if layer.norm is not None:
        norm = copy.deepcopy(layer.norm).double().cpu()
        y = type(norm).forward(norm, y)
    y = activation_of(layer.word)(y)
    return ((result[:1].double().cpu() - y).abs().max() / y.abs().max().clamp_min(1e-30)).item()


class Row:
    """One layer of the report. speedup: PyTorch's time over ours."""

    def __init__(self, name, fused="", problem="", kernel="", ms=0.0, torch_ms=0.0, error=0.0, torch_error=0.0, why=""):
        self.name, self.fused, self.problem, self.kernel, self.ms, self.torch_ms = name, fused, problem, kernel, ms, torch_ms
        self.error, self.torch_error, self.why = error, torch_error, why

    @property
    def kept(self):
        return not self.why

    @property
    def speedup(self):
        return self.torch_ms / self.ms if self.ms else 0.0


def measure(layer, call, name, min_ms, at_least):
    """The row of a layer, from random data of the observed shape, dtype and strides."""
    conv = layer.conv
    x = torch.empty_strided(call.shape, call.strides, dtype=call.dtype, device=call.device)
    x.copy_(torch.rand(call.shape, device=call.device) * 2 - 1)
    fused = "+".join(["conv"] + ["bn"] * (layer.norm is not None) + [layer.word] * bool(layer.word))
    training = torch.is_grad_enabled() and conv.weight.requires_grad
    in_parts = training or torch.is_autocast_enabled(call.device.type)
    ours = (lambda: layer.parts(x)) if in_parts else (lambda: layer.fused(x))

    def theirs():
        y = type(conv).forward(conv, x)
        if layer.norm is not None:
            y = type(layer.norm).forward(layer.norm, y)
        return y if layer.activation is None else activation_of(layer.word)(y)

    try:
        with torch.no_grad():
            result = ours()
            error, torch_error = reference_error(layer, x, result), reference_error(layer, x, theirs())
            plan = layer.plan(x, result, in_parts)
        row = Row(name, fused, plan.problem, plan.kernel, error=error, torch_error=torch_error)
        if not training:
            row.ms, row.torch_ms = time_in_turn([ours, theirs], call.device, min_ms)
        else:
            x.requires_grad_(call.requires_grad)
            gradient = torch.ones_like(result)
            leaves = [t for t in (x, conv.weight, conv.bias) if t is not None and t.requires_grad]

            def both(function):
                return lambda: torch.autograd.grad(function(), leaves, gradient)
            row.ms, row.torch_ms = time_in_turn([both(ours), both(theirs)], call.device, min_ms)
    except (_c.Error, RuntimeError) as refused:
        return Row(name, fused, why=str(refused).split("\n")[0])
    if row.speedup < at_least:
        row.why = "PyTorch is faster" if row.speedup < 1 else f"less than {at_least} times PyTorch's speed"
    return row


class Patch:
    """What patch did. ``rows``: one a convolution; ``report()``: they as text; ``undo()``: the model as it was."""

    def __init__(self, rows, replaced):
        self.rows, self._replaced = rows, replaced

    def undo(self):
        """Takes faltung out of the model again, which then computes the same bits as before."""
        for module in self._replaced:
            module.__dict__.pop("forward", None)
        self._replaced = []

    def report(self):
        lines = [f"{'layer':32}  {'what':16}  {'ms':>9}  {'torch ms':>9}  {'ratio':>6}  {'error':>8}  {'torch':>8}  kernel, or why not"]
        for r in self.rows:
            times = f"{r.ms:9.4f}  {r.torch_ms:9.4f}  {r.speedup:6.2f}  {r.error:8.1e}  {r.torch_error:8.1e}" if r.ms else " " * 48
            lines.append(f"{r.name:32}  {r.fused:16}  {times}  {r.why or r.kernel}")
        kept = [r for r in self.rows if r.kept]
        before = sum(r.torch_ms for r in self.rows)
        after = sum(r.ms if r.kept else r.torch_ms for r in self.rows)
        if after:
            lines.append(f"{len(kept)} of {len(self.rows)} convolutions by faltung; those measured take {after:.3f} ms, in PyTorch "
                         f"alone {before:.3f} ms: {before / after:.2f} times as fast")
        return "\n".join(lines)

    __str__ = report


def patch(model, example, *, at_least=1.0, min_time=40.0):
    """Replaces the model's convolutions by faltung's where they are faster, with the batch norm (in eval mode) and the
    activation that follow where the forward pass of ``example`` (the input, or a tuple of them) shows that nothing else reads
    what is between. Each layer is timed beside PyTorch's own, in turn, for min_time milliseconds each; it is kept where ours is at
    least ``at_least`` times as fast. Returns a :class:`Patch`.

    Parameters, state_dict and hooks stay as they are; the modules' ``forward`` is replaced, and ``undo`` takes that back. Weights
    are read again when they change, which PyTorch counts, but not for changes through ``.data``: patch again after those."""
    training = torch.is_grad_enabled() and model.training
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]  # that a forward pass in training mode moves
    with torch.set_grad_enabled(training), torch.random.fork_rng():
        observation = Observation(model, example)
        rows, layers, known = [], [], {}
        for conv, calls in observation.calls.items():
            if not isinstance(conv, torch.nn.Conv2d):
                continue
            name = observation.names[conv]
            why = refusal(conv, calls, observation)
            if why is not None:
                rows.append(Row(name, why=why))
                continue
            layer = layer_of(conv, observation)
            same = (calls[0].shape, calls[0].strides, calls[0].dtype, tuple(conv.weight.shape), conv.weight.stride(), conv.stride,
                    conv.padding, conv.dilation, conv.groups, conv.bias is None, layer.norm is None, layer.word)
            if same in known:
                row = copy.copy(known[same])
                row.name = name
            else:
                row = known[same] = measure(layer, calls[0], name, min_time, at_least)
            rows.append(row)
            if row.kept:
                layers.append(layer)
        observation.forget()
    with torch.no_grad():
        for buffer, before in kept:
            buffer.copy_(before)
    replaced = []
    for layer in layers:
        layer._made_of = None
        layer.conv.forward = layer
        replaced.append(layer.conv)
        for module in (layer.norm, layer.activation):
            if module is not None:
                module.forward = Pass()
                replaced.append(module)
    return Patch(rows, replaced)
