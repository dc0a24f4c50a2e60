"""The problem's words for activations, as PyTorch's functions."""
import math
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


# As std::from_chars has it: no plus sign, blanks or underscores.
_NUMBER = r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"


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


def numbers_of(word, activation, count):
    """Its finite numbers in parentheses, as the library reads them; None where it is another word, or reads otherwise."""
    found = re.fullmatch(rf"{activation}\(({','.join([_NUMBER] * count)})\)", word)
    numbers = [float(number) for number in found[1].split(",")] if found else []
    return numbers if numbers and all(map(math.isfinite, numbers)) else None


def activation_of(name):
    """The activation as a function of PyTorch's."""
    if name in ACTIVATIONS:
        return ACTIVATIONS[name]
    if (slope := numbers_of(name, "leaky_relu", 1)) is not None:
        return lambda y: F.leaky_relu(y, *slope)
    if (slope := numbers_of(name, "hardsigmoid", 1)) is not None:
        return lambda y: F.hardtanh(y * slope[0] + 0.5, 0, 1)
    if (bounds := numbers_of(name, "clip", 2)) is not None and bounds[0] <= bounds[1]:
        return lambda y: F.hardtanh(y, *bounds)  # whose gradient at a bound is relu's
    raise _c.BadProblem(f"faltung: activation is '{name}'; it is one of leaky_relu(0.01), hardsigmoid(0.2), clip(-1,6), {', '.join(filter(None, ACTIVATIONS))}")


def activation_and_pool_of(word):
    """The same of a layer's word."""
    before, pool = activation_of(_POOL.sub("", word)), pool_of(word)
    return lambda y: pool(before(y))
