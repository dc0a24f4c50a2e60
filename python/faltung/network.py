"""Whole networks from ONNX files, on any device, for NumPy arrays and for whatever has ``__dlpack__``: ``faltung.Network``."""
import contextlib
import ctypes
import os
import threading
from collections import namedtuple
from functools import lru_cache
from typing import Any

import numpy as np

from . import _arrays, _c, _cuda
from ._engine import _question, engine

_ERRORS = {1: _c.BadProblem, 2: _c.Unsupported, 3: _c.BadFile, 4: _c.OutOfMemory, 5: _c.DeviceError, 6: _c.InternalError, 7: _c.Cancelled}
_ELEMENTS = ("float32", "bool", "int32", "int64", "float16", "bfloat16")  # faltung_element
_PRECISIONS = {"f32": 0, "f16": 4, "bf16": 5}
_KEPT = 16  # plans, by the library: NetworkRequest::plans


class NetworkTensor(namedtuple("NetworkTensor", "name dtype shape")):
    """An input or output: its ``name``, NumPy ``dtype`` (of bf16 that of ml_dtypes, or "bfloat16" without it) and ``shape``, with None
    for a size that is open."""
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
_handles = ctypes.POINTER(_handle)
_library = ctypes.CDLL(_c.__file__)  # the library is what the extension is linked with
for _name, _result, _arguments in (
        ("last_error", ctypes.c_char_p, []),
        ("request_default", _Request, []),
        ("network_create_mixed", ctypes.c_int, [_handle, ctypes.c_char_p, ctypes.POINTER(_Request), ctypes.c_int,
                                                ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t, _handles]),
        ("network_destroy", None, [_handle]),
        ("network_input_count", ctypes.c_size_t, [_handle]),
        ("network_input", ctypes.c_int, [_handle, ctypes.c_size_t, ctypes.POINTER(_Tensor)]),
        ("network_metadata", ctypes.c_char_p, [_handle, ctypes.c_char_p]),
        ("network_plan_create", ctypes.c_int, [_handle, ctypes.POINTER(ctypes.c_int64), ctypes.c_size_t, _handles]),
        ("network_plan_destroy", None, [_handle]),
        ("network_plan_output_count", ctypes.c_size_t, [_handle]),
        ("network_plan_output", ctypes.c_int, [_handle, ctypes.c_size_t, ctypes.POINTER(_Tensor)]),
        ("network_plan_arena_bytes", ctypes.c_size_t, [_handle]),
        ("network_run_on", ctypes.c_int, [_handle, _handles, _handles, _handle, _handle]),
        ("memory_pool_create", ctypes.c_int, [ctypes.c_char_p, ctypes.c_size_t, _handles]),
        ("memory_pool_destroy", None, [_handle]),
        ("memory_allocate", ctypes.c_int, [_handle, ctypes.c_size_t, _handles]),
        ("memory_free", ctypes.c_int, [_handle, _handle]),
        ("memory_copy_in", ctypes.c_int, [_handle, _handle, _handle, ctypes.c_size_t]),
        ("memory_copy_out", ctypes.c_int, [_handle, _handle, _handle, ctypes.c_size_t])):
    _function = getattr(_library, "faltung_" + _name)
    _function.restype, _function.argtypes = _result, _arguments


def _check(status):
    if status:
        raise _ERRORS.get(status, _c.InternalError)(_library.faltung_last_error().decode(errors="backslashreplace"))


@lru_cache(maxsize=None)
def _dtype(name):
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            return name
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def _tensors(ask, handle, count):
    """ask(handle, index, tensor): NetworkTensor of each."""
    found = []
    for index in range(count):
        tensor = _Tensor(size=ctypes.sizeof(_Tensor))
        _check(ask(handle, index, ctypes.byref(tensor)))
        shape = tuple(None if size < 0 else size for size in tensor.sizes[:tensor.rank])
        found.append(NetworkTensor(tensor.name.decode(), _dtype(_ELEMENTS[tensor.element]), shape))
    return found


class _Known:
    """Of a plan: its outputs, and whether it ran."""

    def __init__(self, plan):
        self.ran = False
        self.outputs = _tensors(_library.faltung_network_plan_output, plan, _library.faltung_network_plan_output_count(plan))


def _addresses(addresses):
    return (_handle * max(1, len(addresses)))(*addresses)


def _request_of(device, threads, rest):
    if "progress" in rest:
        raise TypeError("progress goes with find, not with a network")
    (_, device, threads, workspace, deterministic, only, skip, budget, trust, deadline, worker, _) = _question(
        None, device, threads, **rest)
    request = _library.faltung_request_default()
    for name, text in (("device", device), ("only", only), ("skip", skip), ("worker", worker)):
        setattr(request, name, None if text is None else os.fsencode(text))
    request.threads, request.deterministic, request.trust = threads, deterministic, trust
    request.budget_ms, request.deadline_ms = budget, deadline
    if workspace >= 0:
        request.workspace_limit = workspace
    return request


class Network:
    """A network from an ONNX file::

        network = faltung.Network("model.onnx", threads=2)
        y = network(x)          # an array an input, in the file's order or by names; an array, or a tuple of several

        network = faltung.Network("model.onnx", device="cuda:0", dtype="f16")
        y = network(x)          # a tensor on cuda:0 of PyTorch, CuPy, ...: the result is one, too
        y = network(numpy_x)    # copied there, and the result back

    ``device``: cpu, cuda:0, opencl:0, ...; ``dtype``, on a GPU: f32, f16 or bf16, of what lies between inputs and outputs, which keep
    their own; ``keep_f32``: names of tensors that are of f32 none the less: ``faltung network verify`` tells those that 16 bits do
    not hold. ``threads``: 0, every processor. The rest of the request is that of :func:`faltung.plan`.

    Open sizes are those of the arrays: the first run of new ones plans, and the last 16 plans are kept. Any number of threads may
    call it. Arrays of another dtype are an error, and so are those on another device but for NumPy's, which are copied to a GPU
    and back. On the CPU, arrays that do not lie contiguously are copied; of a GPU's memory they are an error."""

    def __init__(self, file: Any, *, device: Any = "cpu", dtype: str = "f32", keep_f32: "tuple[str, ...]" = (), threads: int = 0,
                 **request: Any) -> None:
        self._network, self._pool, self._lock = _handle(), _handle(), threading.Lock()
        self._known = {}  # of the plans that the library has, the oldest first: shapes, and what is known of each
        self._recorded = []  # plans of whose kernels and weights there are CUDA graphs
        self._device = str(device)
        if dtype not in _PRECISIONS:
            raise _c.BadProblem(f"dtype is {dtype!r}; it is one of 'f32', 'f16', 'bf16'")
        asked = _request_of(self._device, threads, request)
        with _cuda.same_context(self._device):
            self._engine = engine()  # which the library's network refers to
            kept = (ctypes.c_char_p * len(keep_f32))(*[name.encode() for name in keep_f32])
            _check(_library.faltung_network_create_mixed(self._engine.address, os.fsencode(file), ctypes.byref(asked), _PRECISIONS[dtype],
                                                         kept, len(keep_f32), ctypes.byref(self._network)))
        self._inputs = _tensors(_library.faltung_network_input, self._network, _library.faltung_network_input_count(self._network))

    def __del__(self) -> None:
        for plan in getattr(self, "_recorded", ()):
            _library.faltung_network_plan_destroy(plan)
        if getattr(self, "_network", None):
            _library.faltung_network_destroy(self._network)
        if getattr(self, "_pool", None):
            _library.faltung_memory_pool_destroy(self._pool)

    @property
    def device(self) -> str:
        """Where it runs."""
        return self._device

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
        with self._plan(shapes) as (_, known):
            return list(known.outputs)

    def arena_bytes(self, *shapes: "tuple[int, ...]") -> int:
        """What a run on inputs of these shapes takes beside inputs, outputs and weights."""
        with self._plan(shapes) as (plan, _):
            return _library.faltung_network_plan_arena_bytes(plan)

    def __call__(self, /, *arrays: Any, out: Any = None, stream: "int | None" = None, **named: Any) -> Any:
        """The network's outputs: an array, or a tuple of several.

        ``out`` takes them: an array, or a sequence of one an output, contiguous, none of which overlaps another array. ``stream``, on
        CUDA: the address of that on which it is submitted (it is not waited for), and on which PyTorch's inputs are ready; without it
        that on which PyTorch or CuPy works, or else the default one. A call with PyTorch's tensors may be captured into a CUDA graph
        once its sizes have run before; the network has to live as long as the graph. An input that is called out or stream is given
        in its place."""
        arrays = [_arrays.as_array(array) for array in self._in_order(arrays, named)]
        allocates = contextlib.nullcontext()
        if arrays:
            current = _arrays.current_stream(arrays[0])
            if stream is None:
                stream = current
            elif stream != current and self._device.startswith("cuda:"):
                allocates = _arrays.on_stream(arrays[0], stream)
        inputs = [self._input(tensor, array, stream) for tensor, array in zip(self._inputs, arrays)]
        like = arrays[0] if arrays else np.empty(0)
        copied = self._device != "cpu" and isinstance(like, np.ndarray)
        if stream is not None and (copied or not self._device.startswith("cuda:")):
            raise _c.BadProblem("stream goes with arrays on a CUDA device, to the network on that device")
        shapes = [i.shape for i in inputs]
        captures = not copied and self._device.startswith("cuda:") and _cuda.is_capturing(stream)
        if captures:
            self._may_capture(shapes, inputs)
        with self._plan(shapes, records=captures) as (plan, known), allocates:
            results = self._results(known.outputs, out, like)
            written = [self._output(tensor, result, stream) for tensor, result in zip(known.outputs, results)]
            self._are_alike([*inputs, *written])
            self._are_apart(inputs, written)
            if copied:
                self._run_copied(plan, inputs, written)
            else:
                # What is recorded has an arena of its own, in the graph's memory, for as long as the graph lives.
                arena = _arrays.empty_bytes(like, _library.faltung_network_plan_arena_bytes(plan)) if captures else None
                self._run(plan, [i.address for i in inputs], [w.address for w in written], stream,
                          None if arena is None else arena.data_ptr())
            known.ran = True
        return results[0] if len(results) == 1 else tuple(results)

    def _in_order(self, arrays, named):
        names = [t.name for t in self._inputs]
        missing = [n for n in names[len(arrays):] if n not in named]
        unknown = [n for n in named if n not in names[len(arrays):]]
        if len(arrays) > len(names) or missing or unknown:
            raise TypeError(f"the network's inputs are {', '.join(names)}; given are {len(arrays)} in their order"
                            + "".join(f", {n}" for n in named))
        return [*arrays, *(named[n] for n in names[len(arrays):])]

    def _located(self, kind, tensor, array, stream):
        """That it is on the device, or NumPy's, and of the dtype."""
        what = f"{kind} {tensor.name!r}"
        at = _arrays.locate(array, what, stream)
        if at.dtype != _arrays.name_of(tensor.dtype) or len(at.shape) != len(tensor.shape):
            raise _c.BadProblem(f"{what} is of {tensor.dtype} with {len(tensor.shape)} dimensions; "
                                f"given is an array of {at.dtype} with {len(at.shape)}")
        if at.device != self._device and at.library != "numpy":
            how = "move it there, or give" if self._device.startswith("cuda:") or self._device == "cpu" else "give"
            raise _c.BadProblem(f"{what} is on {at.device}; the network runs on {self._device}: {how} a NumPy array"
                                + ("" if self._device == "cpu" else ", which is copied"))
        return what, at

    def _input(self, tensor, array, stream):
        what, at = self._located("input", tensor, array, stream)
        if at.contiguous:
            return at
        if at.device != "cpu":
            raise _c.BadProblem(f"{what} does not lie contiguously; give a copy that does, as .contiguous() makes of PyTorch's tensors")
        return _arrays.locate(_arrays.contiguous(array), what)

    def _output(self, tensor, array, stream):
        what, at = self._located("output", tensor, array, stream)
        if at.shape != tensor.shape:
            raise _c.BadProblem(f"{what} is of shape {tensor.shape}; the array that is given for it is of {at.shape}")
        if not at.contiguous:
            raise _c.BadProblem(f"{what}: the array that is given for it does not lie contiguously")
        if not at.writable:
            raise _c.BadProblem(f"{what}: the array that is given for it is read-only")
        return at

    @staticmethod
    def _results(tensors, out, like):
        if out is None:
            return [_arrays.empty_like(like, t.shape, t.dtype) for t in tensors]
        results = list(out) if isinstance(out, (list, tuple)) else [out]
        if len(results) != len(tensors):
            raise TypeError(f"the network's outputs are {', '.join(t.name for t in tensors)}; out has {len(results)} arrays")
        return results

    def _are_alike(self, located):
        places = sorted({at.device for at in located})
        if len(places) > 1:
            raise _c.BadProblem(f"of a call's arrays some are on {places[0]} and some on {places[1]}; all must be alike")

    @staticmethod
    def _are_apart(inputs, outputs):
        for i, output in enumerate(outputs):
            if any(output.overlaps(other) for other in (*inputs, *outputs[:i])):
                raise _c.BadProblem("an array that is given for an output overlaps another one in memory; results need memory of their own")

    def _may_capture(self, shapes, inputs):
        known = self._known.get(tuple(shapes))
        if known is None or not known.ran:
            raise RuntimeError("faltung: this network has not run on inputs of these sizes before, and its first run plans, which cannot be "
                               "captured into a CUDA graph; warm up first: run it once on the same sizes")
        if inputs[0].library != "torch":
            raise RuntimeError("faltung: PyTorch's tensors alone are captured into a CUDA graph, whose memory PyTorch keeps")

    @contextlib.contextmanager
    def _plan(self, shapes, records=False):
        """The plan's handle, and what is known of it. records: it is kept for as long as the network."""
        shapes = tuple(map(tuple, shapes))
        sizes = [size for shape in shapes for size in shape]
        plan = _handle()
        with _cuda.same_context(self._device):
            _check(_library.faltung_network_plan_create(self._network, (ctypes.c_int64 * max(1, len(sizes)))(*sizes), len(sizes),
                                                        ctypes.byref(plan)))
            try:
                with self._lock:  # the order in which the library forgets
                    known = self._known[shapes] = self._known.pop(shapes, None) or _Known(plan)
                    if len(self._known) > _KEPT:
                        del self._known[next(iter(self._known))]
                yield plan, known
            finally:
                if records:
                    self._recorded.append(plan)
                else:
                    _library.faltung_network_plan_destroy(plan)

    @staticmethod
    def _run(plan, inputs, outputs, stream=None, arena=None):
        _check(_library.faltung_network_run_on(plan, _addresses(inputs), _addresses(outputs), stream, arena))

    def _run_copied(self, plan, inputs, outputs):
        """Through memory of the device; waits for the result."""
        with self._lock:
            if not self._pool:
                _check(_library.faltung_memory_pool_create(os.fsencode(self._device), ctypes.c_size_t(-1).value, ctypes.byref(self._pool)))
        blocks = []
        try:
            for array in (*inputs, *outputs):
                block = _handle()
                _check(_library.faltung_memory_allocate(self._pool, max(1, array.bytes), ctypes.byref(block)))
                blocks.append(block)
            for block, array in zip(blocks, inputs):
                _check(_library.faltung_memory_copy_in(self._pool, block, array.address, array.bytes))
            self._run(plan, blocks[:len(inputs)], blocks[len(inputs):])
            for block, array in zip(blocks[len(inputs):], outputs):
                _check(_library.faltung_memory_copy_out(self._pool, array.address, block, array.bytes))
        finally:
            for block in blocks:
                _library.faltung_memory_free(self._pool, block)
