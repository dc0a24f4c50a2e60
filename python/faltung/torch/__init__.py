"""faltung for PyTorch (2.7 or later): convolutions as operators with gradients, as modules, and for whole models.

::

    import faltung.torch as ft
    y = torch.ops.faltung.conv2d(x, w, b, [1, 1], [1, 1], [1, 1], 1)     # autograd, torch.compile, autocast
    y = ft.functional.conv2d(x, w, b, padding=1, residual=r, activation="silu")
    p = ft.patch(model, example); print(p.report()); p.undo()
    model = torch.compile(model, backend="faltung")

Importing this registers the operators and the backend; ``import faltung`` alone does not import PyTorch.
"""
import torch as _torch

if tuple(int(part) for part in _torch.__version__.split("+")[0].split(".")[:2]) < (2, 7):
    raise ImportError(f"faltung.torch needs PyTorch 2.7 or later; this is {_torch.__version__}")

from . import _ops, functional, modules  # noqa: E402
from ._backend import compile_graph  # noqa: E402
from ._patch import Patch, patch  # noqa: E402
from .modules import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d  # noqa: E402

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Patch", "compile_graph",
           "functional", "modules", "patch"]
