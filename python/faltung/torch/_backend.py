"""torch.compile(model, backend="faltung"): convolutions by faltung's operators, where no gradient is needed fused with batch
norm, residual and activation; the rest by inductor."""
import operator

import torch
import torch.nn.functional as F

from .. import _functional
from . import _run

_CONVOLUTIONS = (torch.conv2d, F.conv2d)
_ACTIVATIONS = {F.relu: "relu", torch.relu: "relu", "relu": "relu", F.relu6: "relu6", F.silu: "silu", F.hardswish: "hardswish",
                torch.sigmoid: "sigmoid", "sigmoid": "sigmoid"}
_ADDITIONS = (operator.add, operator.iadd, torch.add)


def compile_graph(graph, example_inputs, **options):
    """The backend: puts faltung's operators into a torch.fx graph and has it compiled by inductor."""
    from torch._inductor.compile_fx import compile_fx
    replace(graph, torch.is_grad_enabled())
    return compile_fx(graph, example_inputs, **options)


def replace(graph, with_gradients):
    """Puts torch.ops.faltung in place of a graph's convolutions; without gradients, with what follows them. Returns how many
    were replaced, and how many of them fused."""
    replaced = fused = 0
    for node in list(graph.graph.nodes):
        geometry = _geometry(node)
        if geometry is None:
            continue
        chain = _Chain(node, with_gradients)
        x, w, bias = (_argument(node, i, name) for i, name in enumerate(("input", "weight", "bias")))
        with graph.graph.inserting_before(chain.last):
            if chain.norm is not None:
                parameters = [_argument(chain.norm, i, name) for i, name in enumerate(
                    ("input", "running_mean", "running_var", "weight", "bias"))][1:]
                pair = graph.graph.call_function(fold, (w, bias, *parameters, _argument(chain.norm, 7, "eps", 1e-5)))
                w, bias = (graph.graph.call_function(operator.getitem, (pair, i)) for i in range(2))
            if chain.last is node:
                new = graph.graph.call_function(torch.ops.faltung.conv2d.default, (x, w, bias, *geometry))
            else:
                new = graph.graph.call_function(torch.ops.faltung.conv2d_fused.default,
                                                (x, w, bias, chain.residual, *geometry, chain.activation))
                fused += 1
        new.meta = dict(chain.last.meta)
        chain.last.replace_all_uses_with(new)
        for dead in reversed(chain.nodes):
            graph.graph.erase_node(dead)
        replaced += 1
    graph.recompile()
    return replaced, fused


def fold(weight, bias, mean, variance, scale, shift, eps):
    """Weight and bias of a convolution with the batch norm that follows folded in, computed in f32."""
    factor = torch.rsqrt(variance.float() + eps)
    if scale is not None:
        factor = factor * scale.float()
    moved = -mean.float() * factor
    if shift is not None:
        moved = moved + shift.float()
    if bias is not None:
        moved = moved + bias.float() * factor
    return (weight.float() * factor.reshape(-1, 1, 1, 1)).to(weight.dtype), moved.to(weight.dtype)


def _argument(node, index, name, default=None):
    return node.args[index] if index < len(node.args) else node.kwargs.get(name, default)


def _value(node):
    """The example of a node's tensor, or None."""
    value = node.meta.get("example_value", node.meta.get("val")) if isinstance(node, torch.fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _geometry(node):
    """stride, padding, dilation, groups of a convolution that faltung computes; None for any other node."""
    if node.op != "call_function" or node.target not in _CONVOLUTIONS:
        return None
    x, w = (_value(_argument(node, i, name)) for i, name in enumerate(("input", "weight")))
    if x is None or w is None or x.dim() != 4 or x.dtype not in _run.DTYPES or x.dtype != w.dtype:
        return None
    stride, padding, dilation, groups = (_argument(node, i + 3, name, default) for i, (name, default) in enumerate(
        (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1))))
    stride, dilation = _functional.pair(stride, "stride"), _functional.pair(dilation, "dilation")
    padding = _functional.four_sides(padding, tuple(w.shape[2:]), stride, dilation)
    return list(stride), list(padding), list(dilation), groups


def _changes_memory(node):
    """Whether it may write to what another node made."""
    if node.op == "call_method":
        return node.target.endswith("_") and not node.target.endswith("__")
    if node.op != "call_function":
        return node.op == "call_module"
    name = getattr(node.target, "__name__", "")
    return (node.kwargs.get("inplace", False) or name.endswith("_") or name == "setitem" or "out" in node.kwargs
            or (len(name) > 3 and name[0] == "i" and node.target is getattr(operator, name, None) and name not in ("is_", "invert")))


class _Chain:
    """A convolution and what one operator after the other follows it, each the only one that reads what is before it. nodes: the
    convolution and those; last: the one whose value all of them make."""

    def __init__(self, node, with_gradients):
        self.nodes, self.norm, self.residual, self.activation = [node], None, None, ""
        if with_gradients:
            return
        user = self._user()
        if user is not None and user.target in (F.batch_norm, torch.batch_norm) and self._is_fixed_norm(user):
            self.norm = user
            self.nodes.append(user)
            user = self._user()
        if user is not None and user.target in _ADDITIONS and self._is_residual(user):
            self.residual = next(a for a in user.args if a is not self.last)
            self.nodes.append(user)
            user = self._user()
        if user is not None and user.args[0] is self.last and user.target in _ACTIVATIONS:
            self.activation = _ACTIVATIONS[user.target]
            self.nodes.append(user)

    @property
    def last(self):
        return self.nodes[-1]

    def _user(self):
        """The only reader of the last node, if nothing that lies between the convolution and it may change the convolution's
        inputs, which are then read later."""
        if len(self.last.users) != 1:
            return None
        user = next(iter(self.last.users))
        if user.op not in ("call_function", "call_method"):
            return None
        between = self.nodes[0].next
        while between is not user:
            if between not in self.nodes and _changes_memory(between):
                return None
            between = between.next
        return user

    def _is_fixed_norm(self, user):
        statistics = [_argument(user, i, name) for i, name in ((1, "running_mean"), (2, "running_var"))]
        return (user.target is F.batch_norm and _argument(user, 0, "input") is self.last and None not in statistics
                and not _argument(user, 5, "training", False))

    def _is_residual(self, user):
        others = [a for a in user.args if a is not self.last]
        if len(user.args) != 2 or user.kwargs or len(others) != 1 or (user.target is operator.iadd and user.args[0] is not self.last):
            return False
        other, own = _value(others[0]), _value(self.nodes[0])
        return other is not None and own is not None and other.shape == own.shape and other.dtype == own.dtype
