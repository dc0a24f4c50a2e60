"""The problem's words for activations, as PyTorch's functions."""
import re

import torch
import torch.nn.functional as F

from .. import _c

ACTIVATIONS = {
    "": lambda y: y, "relu": F.relu, "relu6": F.relu6, "sigmoid": torch.sigmoid, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"), "hardswish": F.hardswish,
}


# In two dimensions a layer's activation may end with a pool, as in relu:maxpool3s2p1: its window, stride and padding.
_POOL = re.compile(r"(?:^|:)maxpool(\d+)s(\d+)p(\d+)$")


def with_pool(word, window, stride, padding):
    return f"{word}:maxpool{window}s{stride}p{padding}".lstrip(":")


def pooled(shape, word):
    """The shape that is left of N C H W behind such an activation."""
    found = _POOL.search(word)
    if found is None:
        return shape
    window, stride, padding = map(int, found.groups())
    return [*shape[:2], *((n + 2 * padding - window) // stride + 1 for n in shape[2:])]


def pool_of(word):
    """The pool as a function of PyTorch's."""
    found = _POOL.search(word)
    return (lambda y: y) if found is None else lambda y: F.max_pool2d(y, *map(int, found.groups()))


def activation_of(name):
    """The activation as a function of PyTorch's."""
    if _POOL.search(name):
        before, pool = activation_of(_POOL.sub("", name)), pool_of(name)
        return lambda y: pool(before(y))
    if name.startswith("leaky_relu(") and name.endswith(")"):
        return lambda y: F.leaky_relu(y, float(name[len("leaky_relu("):-1]))
    if name.startswith("clip(") and name.endswith(")"):
        least, most = map(float, name[len("clip("):-1].split(","))
        return lambda y: F.hardtanh(y, least, most)  # whose gradient at a bound is relu's
    if name not in ACTIVATIONS:
        raise _c.BadProblem(f"faltung: activation is '{name}'; it is one of leaky_relu(0.01), clip(-1,6), {', '.join(filter(None, ACTIVATIONS))}")
    return ACTIVATIONS[name]
