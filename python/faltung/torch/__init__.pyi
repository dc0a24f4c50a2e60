"""Types of faltung.torch; times are milliseconds, or as it is said."""
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from . import functional as functional
from . import modules as modules
from ._patched import Row
from .modules import Conv1d as Conv1d
from .modules import Conv2d as Conv2d
from .modules import Conv3d as Conv3d
from .modules import ConvTranspose1d as ConvTranspose1d
from .modules import ConvTranspose2d as ConvTranspose2d
from .modules import ConvTranspose3d as ConvTranspose3d

__all__: list[str]

class Patch:
    rows: list[Row]  # one a convolution
    norms: Sequence[Row]  # one a group norm
    difference: float | None  # in units of the result's largest value
    overflows_in: str | None
    whole: Mapping[str, float]  # of the whole model
    took: Mapping[str, float]  # seconds
    def undo(self) -> None: ...
    def report(self) -> str: ...

def patch(model: torch.nn.Module, example: Any, *, at_least: float = 1.0, min_time: float = 40.0,
          memory_format: torch.memory_format = torch.preserve_format) -> Patch:
    """example: the model's input, or a tuple of them; min_time: of each layer."""
def compile_graph(graph: torch.fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None,
                  options: dict[str, Any] | None = None) -> Callable[..., Any]: ...
