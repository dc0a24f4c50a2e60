"""Types of what the package has. Letters in shapes are those of ``help(faltung)``; times are milliseconds, memory bytes."""
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, Literal, NamedTuple, Protocol, TypedDict, TypeVar

from typing_extensions import Unpack

from . import report as report
from ._c import BadFile as BadFile
from ._c import BadProblem as BadProblem
from ._c import Cancelled as Cancelled
from ._c import DeviceError as DeviceError
from ._c import Error as Error
from ._c import InternalError as InternalError
from ._c import OutOfMemory as OutOfMemory
from ._c import Plan as Plan
from ._c import Unsupported as Unsupported
from ._c import Weights as Weights
from .network import Network as Network

__version__: str
__all__: list[str]

_Array = TypeVar("_Array")  # NumPy's, or of whatever has __dlpack__; f32, f16 or bf16, contiguous or channels_last
_Sizes = int | Sequence[int]  # one for all dimensions of the image, or one each
_Patterns = str | Iterable[str]  # of kernels' names

class FaltungWarning(UserWarning): ...

class Device(NamedTuple):
    id: str
    kind: str
    name: str
    driver: str
    features: tuple[str, ...]
    units: int
    memory_bytes: int

class Report(NamedTuple):
    kernel: str
    outcome: str
    why: str
    predicted_ms: float
    ms: float
    ms_min: float
    ms_max: float
    error_over_bound: float
    compile_ms: float
    workspace_bytes: int
    error_growth: float
    bound_by: str
    ceiling_pct: float
    rms_of_chain: float

class Choice(NamedTuple):
    kernel: str
    source: str
    reports: list[Report]
    text: str
    problem: str
    device: str

class _Request(TypedDict, total=False):
    """threads: 0 for all; workspace_limit: bytes; deadline: milliseconds, or "3s"; worker: a path."""
    threads: int
    workspace_limit: int | None
    deterministic: bool
    only: _Patterns | None
    skip: _Patterns | None
    trust: Literal["tested", "all", "none"] | None
    deadline: float | str
    worker: str | None

class _FindRequest(_Request, total=False):
    progress: Callable[[int, int, str], object] | None

def devices() -> list[Device]: ...
def plan(problem: str, device: str = "cpu", **request: Unpack[_Request]) -> Plan: ...
def find(problem: str, device: str = "cpu", budget: float | str = "2s", **request: Unpack[_FindRequest]) -> Choice:
    """budget: milliseconds, or "2s"."""
def explain(problem: str, device: str = "cpu", **request: Unpack[_Request]) -> Choice: ...
def command() -> str: ...
def bench(problem: str | Iterable[str], device: str = "cpu", *, vs: str | None = None, find: bool = False, threads: int = 0,
          only: _Patterns | None = None, skip: _Patterns | None = None, min_time: float | str | None = None,
          repeat: int | None = None) -> list[dict[str, Any]]:
    """min_time: milliseconds, or "200ms"."""
def verify(problem: str | Iterable[str], device: str = "cpu", *, threads: int = 0, only: _Patterns | None = None,
           skip: _Patterns | None = None, seed: int | None = None) -> list[dict[str, Any]]: ...
def doctor(device: str | None = None, budget: float | str | None = None) -> dict[str, Any]:
    """budget: milliseconds, or "50s"."""
def emit(problem: str, target: Literal["trn2", "trn1"] = "trn2", *, output: str | PathLike[str] | None = None) -> str: ...
def channels_last(array: _Array) -> _Array:
    """array: N C L, N C H W or N C D H W."""

class _Forward(Protocol):
    """x: N C L, N C H W or N C D H W; w: K C/groups S, K C/groups R S or K C/groups T R S, of a transposed convolution C K/groups ...;
    b: K; residual: as the output, N K Q, N K P Q or N K Z P Q; slopes: K, input_scale, input_shift: C, of f32. Returns the output."""
    def __call__(self, x: _Array, w: _Array, b: _Array | None = None, *, stride: _Sizes = 1, padding: _Sizes | Literal["same", "valid"] = 0,
                 dilation: _Sizes = 1, groups: int = 1, output_padding: _Sizes = 0, residual: _Array | None = None,
                 activation: str | None = None, pool: str | None = None, math: str | None = None, out: _Array | None = None, threads: int = 0,
                 slopes: Any = None, input_scale: Any = None, input_shift: Any = None, input_activation: Literal["relu"] | None = None) -> _Array: ...

class _InputGrad(Protocol):
    """dy: as the output; w: as forward; input_size: the shape of x. Returns the gradient of x."""
    def __call__(self, dy: _Array, w: _Array, input_size: Sequence[int], *, stride: _Sizes = 1, padding: _Sizes | Literal["same", "valid"] = 0,
                 dilation: _Sizes = 1, groups: int = 1, output_padding: _Sizes = 0, math: str | None = None, out: _Array | None = None,
                 threads: int = 0) -> _Array: ...

class _WeightGrad(Protocol):
    """x: as forward; dy: as the output; weight_size: the shape of w. Returns the gradient of w."""
    def __call__(self, x: _Array, dy: _Array, weight_size: Sequence[int], *, stride: _Sizes = 1, padding: _Sizes | Literal["same", "valid"] = 0,
                 dilation: _Sizes = 1, groups: int = 1, output_padding: _Sizes = 0, math: str | None = None, out: _Array | None = None,
                 threads: int = 0, input_scale: Any = None, input_shift: Any = None,
                 input_activation: Literal["relu"] | None = None) -> _Array: ...

conv1d: _Forward
conv2d: _Forward
conv3d: _Forward
conv_transpose1d: _Forward
conv_transpose2d: _Forward
conv_transpose3d: _Forward
conv1d_input_grad: _InputGrad
conv2d_input_grad: _InputGrad
conv3d_input_grad: _InputGrad
conv_transpose1d_input_grad: _InputGrad
conv_transpose2d_input_grad: _InputGrad
conv_transpose3d_input_grad: _InputGrad
conv1d_weight_grad: _WeightGrad
conv2d_weight_grad: _WeightGrad
conv3d_weight_grad: _WeightGrad
conv_transpose1d_weight_grad: _WeightGrad
conv_transpose2d_weight_grad: _WeightGrad
conv_transpose3d_weight_grad: _WeightGrad
