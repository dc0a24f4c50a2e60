"""Squeeze and excite, group norm with its activation, averages of whole images and attention, in a compiled graph where no gradient is needed."""
import operator

import torch
import torch.nn.functional as F

from . import _attention, _average, _choice, _excite, _norm_kernels
from ._chain import Chain, argument

_MEANS = (torch.mean, "mean")
_GATES = {torch.sigmoid: "sigmoid", "sigmoid": "sigmoid", F.hardsigmoid: "hardsigmoid"}
_PRODUCTS = (operator.mul, torch.mul, "mul")
_DTYPES = (torch.float16, torch.bfloat16)


class _Followed(Chain):
    """One node after the other, each its predecessor's only reader."""

    def take(self, wanted):
        """What wanted makes of the next node, which is taken unless that is None."""
        user = self.reader()
        made = wanted(user) if user is not None else None
        if made is not None:
            self.nodes.append(user)
        return made

    def word(self):
        """The activation's that follows, or none."""
        return self.take(lambda user: word if (word := self.activation_of(user)) in _norm_kernels.ACTIVATIONS else None) or ""


def _mean_of_pixels(node):
    """Whether it keeps the dimensions, of images' means; None for other nodes."""
    if node.op == "call_function" and node.target is F.adaptive_avg_pool2d:
        return True if argument(node, 1, "output_size") in (1, (1, 1), [1, 1]) else None
    if node.op not in ("call_function", "call_method") or node.target not in _MEANS or argument(node, 3, "dtype") is not None:
        return None
    dimensions = argument(node, 1, "dim")
    if not isinstance(dimensions, (tuple, list)) or sorted(d % 4 for d in dimensions) != [2, 3] or "out" in node.kwargs:
        return None
    return bool(argument(node, 2, "keepdim", False))


def _is_layer(user, last, value, is_given):
    """A convolution of 1x1 of the last node with the model's own weights."""
    if user.op != "call_function" or user.target not in (torch.conv2d, F.conv2d) or argument(user, 0, "input") is not last:
        return False
    w, bias = (argument(user, i, name) for i, name in ((1, "weight"), (2, "bias")))
    plain = all(v in (usual, (usual, usual), [usual, usual]) for v, usual in (
        (argument(user, 3, "stride", 1), 1), (argument(user, 4, "padding", 0), 0), (argument(user, 5, "dilation", 1), 1)))
    return (plain and argument(user, 6, "groups", 1) == 1 and is_given(w) and is_given(bias) and value(w) is not None
            and value(w).shape[2:] == (1, 1) and value(w).dtype is value(user).dtype)


def _is_product(user, last, x):
    return user.target in _PRODUCTS and not user.kwargs and user.args in ((x, last), (last, x))


def _is_read(x, device_types):
    return (x is not None and x.device.type in device_types and x.dtype in _DTYPES and x.dim() == 4
            and all(isinstance(n, int) and n > 0 for n in x.shape))


def _average_of(node, value, is_given, device_types):
    """(the nodes, the operator's arguments), or None."""
    x, keepdim = argument(node, 0, "input"), _mean_of_pixels(node)
    if keepdim is None or not _is_read(value(x), device_types) or _average.cut(value(x).shape, 1) is None:
        return None
    if value(node).dtype is not value(x).dtype or not value(x).is_contiguous(memory_format=torch.channels_last):
        return None
    return [node], (x, keepdim)


def _excite_of(node, value, is_given, device_types):
    """The same, of channels that are scaled by what begins with their mean."""
    mean = _average_of(node, value, is_given, device_types)
    if mean is None or not mean[1][1] or _excite.cut(value(mean[1][0]).shape, 1) is None:
        return None
    x = mean[1][0]
    chain, layers = _Followed(node), []
    for _ in range(2):
        if not chain.take(lambda user: _is_layer(user, chain.last, value, is_given) or None):
            return None
        layers.append(chain.last)
        word = chain.word() if len(layers) == 1 else chain.take(lambda user: _GATES.get(user.target))
        if not word:
            return None
        layers.append(word)
    if not chain.take(lambda user: _is_product(user, chain.last, x) or None):
        return None
    first, activation, second, gate = layers
    if value(second).shape[1] != value(x).shape[1] or value(first).shape[1] > _excite.MOST_SQUEEZED:
        return None
    tensors = [argument(layer, i, name) for layer in (first, second) for i, name in ((1, "weight"), (2, "bias"))]
    return chain.nodes, (x, *tensors, activation, gate)


def _group_of(node, value, is_given, device_types):
    if node.op != "call_function" or node.target is not F.group_norm:
        return None
    x, groups, weight, bias = (argument(node, i, name) for i, name in enumerate(("input", "num_groups", "weight", "bias")))
    if not _is_read(value(x), device_types) or value(node).dtype is not value(x).dtype or not (is_given(weight) and is_given(bias)):
        return None
    if not (value(x).is_contiguous() or value(x).is_contiguous(memory_format=torch.channels_last)):
        return None
    chain = _Followed(node)
    return chain.nodes, (x, groups, weight, bias, float(argument(node, 4, "eps", 1e-5)), chain.word())


def replace(graph, value, is_given, is_measured, device_types=("cuda",)):
    """Puts faltung's operators there, if is_measured where they are faster than PyTorch's; returns how many."""
    count = 0
    for find, name in ((_excite_of, "excite"), (_group_of, "group_norm"), (_average_of, "average")):
        for node in list(graph.graph.nodes):
            found = find(node, value, is_given, device_types)
            if found is None:
                continue
            nodes, arguments = found
            examples = [value(a) if isinstance(a, torch.fx.Node) else a for a in arguments]
            if is_measured and not _choice.is_faster(name, examples):
                continue
            with graph.graph.inserting_before(nodes[-1]):
                new = graph.graph.call_function(getattr(torch.ops.faltung, name).default, arguments)
            new.meta = dict(nodes[-1].meta)
            nodes[-1].replace_all_uses_with(new)
            for dead in reversed(nodes):
                graph.graph.erase_node(dead)
            count += 1
    return count + _replace_attention(graph, value, is_measured, device_types)


def _replace_attention(graph, value, is_measured, device_types):
    count = 0
    for node in list(graph.graph.nodes):
        found = _attention.found(node, value, device_types)
        if found is None:
            continue
        *tensors, scale = found
        examples = [value(t) for t in tensors]
        if is_measured and not _choice.is_faster_attention(*examples, scale):
            continue
        with graph.graph.inserting_before(node):
            new = _attention.by_products(*tensors, scale, lambda function, *arguments: graph.graph.call_function(function, arguments), examples)
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        graph.graph.erase_node(node)
        count += 1
    return count
