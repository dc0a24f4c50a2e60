"""The problem's words for activations, as PyTorch's functions."""
import torch
import torch.nn.functional as F

from .. import _c

ACTIVATIONS = {
    "": lambda y: y, "relu": F.relu, "relu6": F.relu6, "sigmoid": torch.sigmoid, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"), "hardswish": F.hardswish,
}


def activation_of(name):
    """The activation as a function of PyTorch's."""
    if name.startswith("leaky_relu(") and name.endswith(")"):
        return lambda y: F.leaky_relu(y, float(name[len("leaky_relu("):-1]))
    if name not in ACTIVATIONS:
        raise _c.BadProblem(f"faltung: activation is '{name}'; it is one of leaky_relu(0.01), {', '.join(filter(None, ACTIVATIONS))}")
    return ACTIVATIONS[name]
