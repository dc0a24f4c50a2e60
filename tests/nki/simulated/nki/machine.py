"""One NeuronCore's memories: tensors with what is known of each element, capacities, and the counts that a time model needs."""
import sys
import weakref
from collections import Counter

import numpy as np

PARTITIONS = 128
PSUM_BANK_BYTES = 2048
PSUM_BANKS = 8
SBUF_BYTES = {"trn2": 224 << 10, "trn1": 192 << 10}  # of a partition
SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}
HERE = __file__.rsplit("/", 1)[0]


class RuleBroken(Exception):
    """line: of the kernel's source; rule: in words, with the guide's section."""

    def __init__(self, rule):
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(HERE):
            frame = frame.f_back
        self.line = frame.f_lineno if frame else 0
        self.rule = rule
        super().__init__(f"{frame.f_code.co_filename if frame else '?'}:{self.line}: {rule}")


def require(condition, rule):
    if not condition:
        raise RuleBroken(rule)


class Machine:
    def __init__(self, target):
        self.target = target
        self.live = {"sbuf": 0, "psum": 0}  # bytes of a partition; banks
        self.peak = {"sbuf": 0, "psum": 0}
        self.count = Counter()

    def allocate(self, tensor, buffer, amount):
        limit = {"sbuf": SBUF_BYTES[self.target], "psum": PSUM_BANKS}[buffer]
        self.live[buffer] += amount
        self.peak[buffer] = max(self.peak[buffer], self.live[buffer])
        what = f"{self.live['sbuf']} bytes of a partition of SBUF" if buffer == "sbuf" else f"{self.live['psum']} banks of PSUM"
        require(self.live[buffer] <= limit, f"{what} are in use; there are {limit} (architecture guide, NeuronCore compute engines)")
        weakref.finalize(tensor, self.free, buffer, amount)

    def free(self, buffer, amount):
        self.live[buffer] -= amount


current = Machine("trn2")


def start(target):
    global current
    current = Machine(target)
    return current


def rounded(values, dtype):
    """Of float32 or wider, as the dtype stores them; bfloat16 is kept as float32 with seven bits of mantissa."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return np.asarray(values, np.float32).astype(np.float16)
    values = np.asarray(values, np.float32)
    if dtype == "bfloat16":
        bits = values.view(np.uint32)
        even = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
        return np.where(np.isnan(values), values, even)
    return values


class Storage:
    """Elements with marks: written, and in PSUM of what a product wrote (summed) and nobody read (unread)."""

    def __init__(self, shape, dtype, buffer):
        self.values = np.full(shape, np.nan, np.float16 if dtype == "float16" else np.float32)
        self.written = np.zeros(shape, bool)
        self.summed = np.zeros(shape, bool) if buffer == "psum" else None
        self.unread = np.zeros(shape, bool) if buffer == "psum" else None


class Tensor:
    """A view of a storage. Marks are viewed alike."""

    def __init__(self, storage, dtype, buffer, marks, name=""):
        self.storage, self.dtype, self.buffer, self.name = storage, dtype, buffer, name
        self.values, self.written, self.summed, self.unread = marks

    @staticmethod
    def make(shape, dtype, buffer, name=""):
        shape = tuple(int(s) for s in shape)
        require(dtype in SIZES, f"dtype {dtype} is none of {', '.join(SIZES)}")
        require(all(s > 0 for s in shape), f"a tensor has the shape {shape}; every size must be positive")
        if buffer != "hbm":
            require(len(shape) >= 2, f"a tile on the chip has the shape {shape}; it has a partition and a free dimension at least (language guide, Tensor Values)")
            require(len(shape) <= 5, f"a tile has {len(shape)} dimensions; a view has up to 5 (language guide, Tensor Values)")
            require(shape[0] <= PARTITIONS, f"a tile has {shape[0]} partitions; there are {PARTITIONS} (architecture guide, NeuronCore compute engines)")
        s = Storage(shape, dtype, buffer)
        tensor = Tensor(s, dtype, buffer, (s.values, s.written, s.summed, s.unread), name)
        if buffer != "hbm":
            size = int(np.prod(shape[1:])) * SIZES[dtype]
            current.allocate(s, buffer, size if buffer == "sbuf" else -(-size // PSUM_BANK_BYTES))
        return tensor

    @staticmethod
    def of_array(array, dtype=None):
        dtype = dtype or str(array.dtype)
        tensor = Tensor.make(array.shape, dtype, "hbm")
        tensor.values[...] = rounded(array, dtype)
        tensor.written[...] = True
        return tensor

    def array(self):
        missing = np.argwhere(~self.written)
        require(len(missing) == 0, f"{len(missing)} elements of the result were never written, the first at {tuple(missing[0]) if len(missing) else ()}")
        return self.values.copy()

    @property
    def shape(self):
        return self.values.shape

    def _view(self, change):
        marks = tuple(None if m is None else change(m) for m in (self.values, self.written, self.summed, self.unread))
        for before, after in zip((self.values, self.written), marks):
            assert after.size == 0 or np.shares_memory(before, after)
        return Tensor(self.storage, self.dtype, self.buffer, marks, self.name)

    def __getitem__(self, key):
        key = key if isinstance(key, tuple) else (key,)
        key += (slice(None),) * (len(self.shape) - len(key))
        require(len(key) == len(self.shape), f"{len(key)} indices are given to a tensor of {len(self.shape)} dimensions")
        for axis, (k, size) in enumerate(zip(key, self.shape)):
            first, last = (k, k + 1) if isinstance(k, int) else (0 if k.start is None else k.start, size if k.stop is None else k.stop)
            if not isinstance(k, int) and k.step and k.step > 1 and last > first:
                last = first + (last - first - 1) // k.step * k.step + 1
            require(0 <= first <= last <= size, f"{first}:{last} is taken of dimension {axis}, which has {size} elements (NkiTensor.slice)")
        if self.buffer != "hbm" and isinstance(key[0], int):
            key = (slice(key[0], key[0] + 1),) + key[1:]
        view = self._view(lambda m: m[key])
        if self.buffer != "hbm" and len(view.shape) < 2:
            view = view._view(lambda m: m[:, None])
        return view

    def reshape(self, shape):
        require(int(np.prod(shape)) == self.values.size, f"a tensor of the shape {self.shape} is reshaped to {tuple(shape)} (NkiTensor.reshape)")
        require(self.buffer == "hbm" or shape[0] == self.shape[0], "reshape keeps the partitions (NkiTensor.reshape)")
        def change(m):
            view = m.view()
            try:
                view.shape = shape
            except AttributeError:
                raise RuleBroken("reshape of a view that is not contiguous (NkiTensor.reshape)") from None
            return view
        return self._view(change)

    def reshape_dim(self, dim, shape):
        require(dim > 0 or self.buffer == "hbm", "the partition dimension is not split (NkiTensor.reshape_dim)")
        require(int(np.prod(shape)) == self.shape[dim], f"dimension {dim} has {self.shape[dim]} elements and is split into {tuple(shape)} (NkiTensor.reshape_dim)")
        def change(m):
            step = m.strides[dim]
            inner = [step * int(np.prod(shape[i + 1:])) for i in range(len(shape))]
            return np.lib.stride_tricks.as_strided(m, m.shape[:dim] + tuple(shape) + m.shape[dim + 1:], m.strides[:dim] + tuple(inner) + m.strides[dim + 1:])
        return self._view(change)

    def permute(self, dims):
        require(sorted(dims) == list(range(len(self.shape))), f"permute takes an order of {len(self.shape)} dimensions, not {dims}")
        require(self.buffer == "hbm" or dims[0] == 0, "the partition dimension stays first (NkiTensor.permute)")
        return self._view(lambda m: m.transpose(dims))

    # ------------------------------------------------------------------ what operations do with it

    def offset(self):
        """Of its first element in the storage, in elements of a partition, and its partition."""
        distance = (self.values.__array_interface__["data"][0] - self.storage.values.__array_interface__["data"][0]) // self.storage.values.itemsize
        width = int(np.prod(self.storage.values.shape[1:]))
        return distance // width, distance % width

    def patterns(self):
        """How many free dimensions are left when those that lie together are merged."""
        dims = [(n, s) for n, s in zip(self.shape[1:], self.values.strides[1:]) if n > 1]
        merged = []
        for n, s in dims:
            if merged and merged[-1][1] == n * s:
                merged[-1] = (merged[-1][0] * n, s)
            else:
                merged.append((n, s))
        return len(merged)

    def read(self):
        missing = int(self.values.size - np.count_nonzero(self.written))
        require(missing == 0, f"{missing} elements that are read were never written (language guide, Creating Tensors: ndarray does not initialize memory)")
        if self.unread is not None:
            self.unread[...] = False
        return np.asarray(self.values, np.float32)

    def write(self, values):
        self.values[...] = rounded(values, self.dtype)
        self.written[...] = True
        if self.summed is not None:
            self.summed[...] = False
