"""Arrays of any library as networks take them: where they lie, what they are of, and new ones like them."""
import contextlib
import math
import sys
from collections import namedtuple
from functools import lru_cache

import numpy as np

from . import _c

_BYTES = {"float32": 4, "bool": 1, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2}  # what networks have


class Located(namedtuple("Located", "array library address shape contiguous dtype device writable")):
    """An array and what it says of itself: the name of its ``library``, its ``address``, the name of its ``dtype`` (float32, bool, ...)
    and its ``device`` (cpu, cuda:0). Good for as long as the array is."""
    __slots__ = ()

    @property
    def bytes(self):
        return math.prod(self.shape) * _BYTES[self.dtype]

    def overlaps(self, other):
        return self.address < other.address + other.bytes and other.address < self.address + self.bytes


@lru_cache(maxsize=64)
def name_of(dtype):
    """Of NumPy's dtype; asking it itself takes microseconds."""
    return str(dtype)


def library_of(array):
    return type(array).__module__.split(".")[0]


def as_array(given):
    """Itself if it is one; of lists and numbers NumPy's."""
    return given if isinstance(given, np.ndarray) or hasattr(given, "__dlpack__") else np.asarray(given)


def locate(array, what, stream=None):
    """what: its name in messages. stream: the address of that on which it will be used; libraries that have __dlpack__ alone let it wait
    for what they have begun."""
    if isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray):
        flags = array.flags
        return Located(array, "numpy", array.ctypes.data, array.shape, flags.c_contiguous and flags.aligned, name_of(array.dtype), "cpu",
                       flags.writeable)
    address, shape, contiguous, dtype, device, writable = _c.locate(array, what, stream)
    return Located(array, library_of(array), address, shape, contiguous, dtype, device, writable)


def contiguous(array):
    """A copy of an array in the host's memory whose elements lie one after the other."""
    return array.contiguous() if library_of(array) == "torch" else np.require(array, requirements="CA")


def empty_like(array, shape, dtype):
    """A new array of the library and on the device of array."""
    library = library_of(array)
    if isinstance(array, np.ndarray):
        library = "numpy"
    if library == "torch":
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, str(dtype)), device=array.device)
    if library in ("numpy", "cupy"):
        if dtype == "bfloat16" and not isinstance(dtype, np.dtype):
            raise _c.Unsupported("an output is of bf16, which NumPy has not: install ml_dtypes, which brings it")
        return sys.modules[library].empty(shape, dtype)
    raise _c.BadProblem(f"how {library} makes arrays is not known here; give the arrays of the results as out")


def empty_bytes(tensor, count):
    """Memory on the device of PyTorch's tensor, as one; some where nothing is asked for."""
    torch = sys.modules["torch"]
    return torch.empty(max(1, count), dtype=torch.uint8, device=tensor.device)


def current_stream(array):
    """The address of the CUDA stream on which the array's library works now; None where it has none, or it is not known."""
    library = library_of(array)
    if library == "torch" and array.is_cuda:
        return sys.modules["torch"].cuda.current_stream(array.device).cuda_stream
    if library == "cupy":
        return sys.modules["cupy"].cuda.get_current_stream().ptr
    return None


def on_stream(array, stream):
    """A context in which the array's library works on that CUDA stream, so that memory which it gives out is free there."""
    library = library_of(array)
    if library == "torch" and array.is_cuda:
        cuda = sys.modules["torch"].cuda
        given = cuda.ExternalStream(stream, device=array.device) if stream else cuda.default_stream(array.device)
        return cuda.stream(given)
    if library == "cupy":
        return sys.modules["cupy"].cuda.ExternalStream(stream)
    return contextlib.nullcontext()
