"""Convolutions' weights in another memory format, which their results have from then on, as PyTorch decides it."""
import torch

from .. import _c
from ._observe import CONVOLUTIONS

_DIMENSIONS = {torch.preserve_format: None, torch.channels_last: 4, torch.channels_last_3d: 5}


class Order:
    """Of a model's weights, until ``undo``. State and parameters are the same objects, with the same values."""

    def __init__(self, model, memory_format):
        if memory_format not in _DIMENSIONS:
            raise _c.BadProblem(f"faltung: memory_format is {memory_format}; it is one of {', '.join(map(str, _DIMENSIONS))}")
        self._changed = []
        weights = {m._parameters.get("weight"): None for m in model.modules() if isinstance(m, CONVOLUTIONS)}
        for weight in weights:
            if weight is not None and weight.dim() == _DIMENSIONS[memory_format]:
                self._changed.append((weight, weight.stride()))
                weight.data = weight.data.to(memory_format=memory_format)  # of 1x1, too: gradients have these strides, or are copied

    def undo(self):
        for weight, strides in self._changed:
            weight.data = torch.empty_strided(weight.shape, strides, dtype=weight.dtype, device=weight.device).copy_(weight.data)
        self._changed = []
