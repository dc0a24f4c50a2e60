"""Whole networks from ONNX files, on the CPU, for NumPy arrays: ``faltung.Network``."""
import ctypes
import os
import threading
from collections import namedtuple
from typing import Any

import numpy as np

from . import _c

_ERRORS = {1: _c.BadProblem, 2: _c.Unsupported, 3: _c.BadFile, 4: _c.OutOfMemory, 5: _c.DeviceError, 6: _c.InternalError, 7: _c.Cancelled}
_DTYPES = {0: np.dtype(np.float32), 1: np.dtype(np.bool_), 2: np.dtype(np.int32), 3: np.dtype(np.int64), 4: np.dtype(np.float16)}


class NetworkTensor(namedtuple("NetworkTensor", "name dtype shape")):
    """An input or output: its ``name``, NumPy ``dtype`` and ``shape``, with None for a size that is open."""
    __slots__ = ()


class _Tensor(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("element", ctypes.c_int), ("rank", ctypes.c_size_t),
                ("sizes", ctypes.POINTER(ctypes.c_int64))]


class _Request(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("device", ctypes.c_char_p), ("threads", ctypes.c_int), ("workspace_limit", ctypes.c_size_t),
                ("deterministic", ctypes.c_int), ("only", ctypes.c_char_p), ("skip", ctypes.c_char_p), ("budget_ms", ctypes.c_double),
                ("trust", ctypes.c_int), ("deadline_ms", ctypes.c_double), ("worker", ctypes.c_char_p), ("progress", ctypes.c_void_p),
                ("progress_context", ctypes.c_void_p), ("flush_denormals", ctypes.c_int)]


_handle = ctypes.c_void_p
_library = ctypes.CDLL(_c.__file__)  # the library is what the extension is linked with
for _name, _result, _arguments in (
        ("last_error", ctypes.c_char_p, []),
        ("request_default", _Request, []),
        ("engine_create", ctypes.c_int, [ctypes.c_char_p, ctypes.POINTER(_handle)]),
        ("network_create", ctypes.c_int, [_handle, ctypes.c_char_p, ctypes.POINTER(_Request), ctypes.POINTER(_handle)]),
        ("network_destroy", None, [_handle]),
        ("network_input_count", ctypes.c_size_t, [_handle]),
        ("network_input", ctypes.c_int, [_handle, ctypes.c_size_t, ctypes.POINTER(_Tensor)]),
        ("network_metadata", ctypes.c_char_p, [_handle, ctypes.c_char_p]),
        ("network_plan_create", ctypes.c_int, [_handle, ctypes.POINTER(ctypes.c_int64), ctypes.c_size_t, ctypes.POINTER(_handle)]),
        ("network_plan_destroy", None, [_handle]),
        ("network_plan_output_count", ctypes.c_size_t, [_handle]),
        ("network_plan_output", ctypes.c_int, [_handle, ctypes.c_size_t, ctypes.POINTER(_Tensor)]),
        ("network_run", ctypes.c_int, [_handle, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_void_p)])):
    _function = getattr(_library, "faltung_" + _name)
    _function.restype, _function.argtypes = _result, _arguments

_engine = _handle()
_engine_lock = threading.Lock()


def _check(status):
    if status:
        raise _ERRORS.get(status, _c.InternalError)(_library.faltung_last_error().decode(errors="backslashreplace"))


def _the_engine():
    """One a process, made when it is first needed; it lives as long."""
    with _engine_lock:
        if not _engine:
            _check(_library.faltung_engine_create(None, ctypes.byref(_engine)))
        return _engine


def _tensors(ask, handle, count):
    """ask(handle, index, tensor): NetworkTensor of each."""
    found = []
    for index in range(count):
        tensor = _Tensor(size=ctypes.sizeof(_Tensor))
        _check(ask(handle, index, ctypes.byref(tensor)))
        if tensor.element not in _DTYPES:
            raise _c.Unsupported(f"{tensor.name.decode()!r} is of bf16, which NumPy has not")
        shape = tuple(None if size < 0 else size for size in tensor.sizes[:tensor.rank])
        found.append(NetworkTensor(tensor.name.decode(), _DTYPES[tensor.element], shape))
    return found


def _addresses(arrays):
    return (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))


class Network:
    """A network from an ONNX file, on the CPU::

        network = faltung.Network("model.onnx", threads=2)
        y = network(x)          # an array an input, in the file's order or by names; an array, or a tuple of several

    Open sizes are those of the arrays: the first run of new ones plans, and the last 16 plans are kept. Any number of threads may
    call it. Arrays that do not lie contiguously are copied; those of another dtype are an error. ``threads``: 0, every processor."""

    def __init__(self, file: Any, *, threads: int = 0) -> None:
        self._network = _handle()
        request = _library.faltung_request_default()
        request.threads = threads
        _check(_library.faltung_network_create(_the_engine(), os.fsencode(file), ctypes.byref(request), ctypes.byref(self._network)))
        self._inputs = _tensors(_library.faltung_network_input, self._network, _library.faltung_network_input_count(self._network))

    def __del__(self) -> None:
        if getattr(self, "_network", None):
            _library.faltung_network_destroy(self._network)

    @property
    def inputs(self) -> "list[NetworkTensor]":
        """In the file's order."""
        return list(self._inputs)

    def metadata(self, key: str) -> "str | None":
        """What the file says of itself under that key (ONNX's metadata_props)."""
        text = _library.faltung_network_metadata(self._network, key.encode())
        return None if text is None else text.decode()

    def outputs(self, *shapes: "tuple[int, ...]") -> "list[NetworkTensor]":
        """What comes out for inputs of these shapes."""
        plan = self._plan(shapes)
        try:
            return self._outputs(plan)
        finally:
            _library.faltung_network_plan_destroy(plan)

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        arrays = [self._input(tensor, array) for tensor, array in zip(self._inputs, self._in_order(arrays, named))]
        plan = self._plan([a.shape for a in arrays])
        try:
            results = [np.empty(t.shape, t.dtype) for t in self._outputs(plan)]
            _check(_library.faltung_network_run(plan, _addresses(arrays), _addresses(results)))
        finally:
            _library.faltung_network_plan_destroy(plan)
        return results[0] if len(results) == 1 else tuple(results)

    def _in_order(self, arrays, named):
        names = [t.name for t in self._inputs]
        missing = [n for n in names[len(arrays):] if n not in named]
        unknown = [n for n in named if n not in names[len(arrays):]]
        if len(arrays) > len(names) or missing or unknown:
            raise TypeError(f"the network's inputs are {', '.join(names)}; given are {len(arrays)} in their order"
                            + "".join(f", {n}" for n in named))
        return [*arrays, *(named[n] for n in names[len(arrays):])]

    @staticmethod
    def _input(tensor, array):
        array = np.asarray(array)
        if array.dtype != tensor.dtype or array.ndim != len(tensor.shape):
            raise _c.BadProblem(f"input {tensor.name!r} is of {tensor.dtype} with {len(tensor.shape)} dimensions; "
                                f"given is an array of {array.dtype} with {array.ndim}")
        return np.require(array, requirements="CA")

    def _plan(self, shapes):
        sizes = [size for shape in shapes for size in shape]
        plan = _handle()
        _check(_library.faltung_network_plan_create(self._network, (ctypes.c_int64 * max(1, len(sizes)))(*sizes), len(sizes),
                                                    ctypes.byref(plan)))
        return plan

    @staticmethod
    def _outputs(plan):
        return _tensors(_library.faltung_network_plan_output, plan, _library.faltung_network_plan_output_count(plan))
