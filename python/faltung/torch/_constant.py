"""Layers whose weights seldom change: batch norm is folded into them and they are packed once, for as long as PyTorch counts no change
of what they are made of."""
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from . import _run
from ._activations import activation_and_pool_of, pooled

MOST_MADE = 8  # of one weight, which several layers may share


def fold(weight, bias, scale, shift, mean, variance, eps, groups, dtype):
    """Weight of the dtype and bias in f32, of a convolution or a linear layer with what follows folded in, computed in f32: a batch norm, or
    without mean and variance a scale. groups: of a transposed convolution, whose weight is C K/groups ...; None for any other."""
    factor = torch.rsqrt(variance.float() + eps) if variance is not None else torch.ones_like(weight[:, 0].flatten(), dtype=torch.float32)
    if scale is not None:
        factor = factor * scale.float().flatten()
    moved = None if mean is None else -mean.float() * factor
    for part in (shift, None if bias is None else bias.float() * factor):
        if part is not None:
            moved = part.float() if moved is None else moved + part.float()
    ones = (1,) * (weight.dim() - 2)
    if groups is None:
        folded = weight.float() * factor.reshape(-1, 1, *ones)
    else:
        apart = weight.float().unflatten(0, (groups, -1))
        folded = (apart * factor.reshape(groups, 1, -1, *ones)).flatten(0, 1)
    return folded.to(dtype), moved


def apart(device, function):
    """What the function returns, on a thread of its own: while torch.compile warms a CUDA graph up, the calling thread's memory comes
    from that graph's pool, and must not outlive the call."""
    if device.type != "cuda":
        return function()
    stream = torch.cuda.current_stream(device)

    def on_stream():
        with torch.cuda.stream(stream):
            return function()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(on_stream).result()


class Made:
    """What was made of a weight and the other constants of a layer, and the calls that use it."""

    def __init__(self, operator, stamp, weight, others, eps, groups, dtype):
        self.operator, self.stamp, self.keys, self.packed = operator, stamp, [], {}
        self.others = others  # held, so that no other tensor comes to lie at their addresses
        self.given = weight.data_ptr()
        bias, scale, _, mean, _ = others
        with torch.no_grad():
            if mean is None and scale is None:
                self.weight, self.bias = weight.detach().to(dtype), None if bias is None else bias.detach()
            else:
                self.weight, self.bias = fold(weight, *others, eps, groups, dtype)
            if self.bias is not None:
                self.bias = self.bias.to(_run.bias_dtype(self.weight))
            if weight.dim() == 2:  # a linear layer's is that of a convolution of 1x1
                self.weight = self.weight[:, :, None, None]

    def __del__(self):
        for key in self.keys:
            self.operator.forget(key)

    def pack(self, plan, last, device):
        """The weight in the layout, and packed for the plan, or None where that changes nothing; and whether it rests: was written and
        waited for, and is not the model's own, which may be changed."""
        if (plan, last) not in self.packed:
            dense = apart(device, lambda: _run.dense(self.weight, last))
            packed, rests = None, False
            if plan.packed_weights_bytes:
                packed = plan.pack(dense.data_ptr(), torch._C._cuda_getCurrentRawStream(device.index) if device.type == "cuda" else None)
            if device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
                torch.cuda.current_stream(device).synchronize()
                rests = packed is not None or dense.data_ptr() != self.given
            self.packed[plan, last] = dense, packed, rests
        return self.packed[plan, last]


_made = WeakTensorKeyDictionary()  # {weight: {the other constants: Made}}


def _stamp(tensors):
    return [None if t is None else (t.data_ptr(), 0 if t.is_inference() else t._version, t.dtype, t.is_neg()) for t in tensors]


def made_of(operator, weight, others, eps, groups, dtype):
    of_weight = _made.setdefault(weight, {})
    which = tuple(None if t is None else (t.data_ptr(), t.is_neg()) for t in others), eps, groups, dtype
    stamp = _stamp((weight, *others))
    made = of_weight.get(which)
    if made is None or made.stamp != stamp:
        if weight.is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("faltung: the weights of this layer changed, and what is made of them cannot be made while a CUDA "
                               "graph is captured; run the model once before")
        if len(of_weight) >= MOST_MADE:
            of_weight.clear()
        made = of_weight[which] = apart(weight.device, lambda: Made(operator, stamp, weight, others, eps, groups, dtype))
    return made


def forget(weight):
    """Gives back what was made of a weight."""
    _made.pop(weight, None)


def compute(operator, family, x, weight, bias, scale, shift, mean, variance, residual, *rest):
    """rest: the geometry, eps and the activation. Constants may be of another dtype than x: they are converted once."""
    *geometry, eps, activation = rest
    activation_and_pool_of(activation)  # refused before anything is made
    others = bias, scale, shift, mean, variance
    made = made_of(operator, weight, others, eps, geometry[3] if family.transposed else None, x.dtype)
    bias_like = None if made.bias is None else made.bias.new_empty(made.bias.shape, dtype=x.dtype)
    shape, geometry = _run.shape_forward(family, x, made.weight, bias_like, residual, geometry)
    last = _run.wants_channels_last(x, weight)
    y = _run.empty(pooled(shape, activation), x, last)
    if y.numel() == 0:
        return y
    plan = _run.plan_for("fwd", family, x.shape, weight.shape, geometry, x, last, _run.made_bias(made.bias is not None, x),
                         residual is not None, activation)
    w, packed, rests = made.pack(plan, last, x.device)
    read = _run.dense(x, last), _run.dense(residual, last)
    b = _run.dense(made.bias, last)
    _run.run(plan, read[0], w, y, b, read[1], packed)
    key = _run.remember(operator, (x, weight, *others, residual, *rest), plan, (x, residual), read, y, packed, w, b, rests)
    if key is not None:
        made.keys.append(key)
    return y


def composed(conv):
    """The same of operators that have gradients."""
    def function(x, weight, bias, scale, shift, mean, variance, residual, rest):
        *geometry, eps, activation = rest
        activate, y = activation_and_pool_of(activation), conv(x, weight, bias, *geometry)
        if mean is not None:
            y = F.batch_norm(y, mean, variance, scale, shift, False, 0.0, eps)
        return activate(y if residual is None else y + residual)
    return function
