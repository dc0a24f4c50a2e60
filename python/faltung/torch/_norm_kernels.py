"""The CUDA kernels of batch norm in training with the activation that follows it, on channels-last tensors of 16 bits; _vectors.cu and
_norm.cu have them. NVRTC compiles a set for each dtype and activation, in half a second; what they compute is compared with PyTorch
before use."""
import ctypes
import functools
import os
import pathlib

import torch

from .. import _c
from . import _run
from ._activations import activation_of
from ._constant import apart

ACTIVATIONS = {"": 0, "relu": 1, "silu": 2}
THREADS, VECTOR, MOST_ACROSS = 512, 8, 16  # as _vectors.cu has the first two
LEAST_ROWS = 64  # that a block has
MOST_CHANNELS = 1 << 15
COUNTERS = 1 << 16
_HERE = pathlib.Path(__file__).parent
_NAMES = {"_norm.cu": ("statistics", "normalize", "reduce", "apply"),
          "_group.cu": ("row_statistics", "row_normalize", "plane_statistics", "plane_normalize"), "_excite.cu": ("squeeze", "excite"),
          "_average.cu": ("average",)}


def _nvrtc():
    major = torch.version.cuda.split(".")[0]
    beside = pathlib.Path(torch.__file__).parents[1].glob(f"nvidia/*/lib/libnvrtc.so.{major}")
    for path in (f"libnvrtc.so.{major}", *beside, os.environ.get("FALTUNG_NVRTC", "")):
        try:
            if path:
                return ctypes.CDLL(str(path))
        except OSError:
            pass
    raise OSError("there is no NVRTC")


def compiled(file, word, is_bf16, capability):
    """Code of the file's kernels for devices of such a capability (a word like 90)."""
    nvrtc, program, size = _nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    source = b"".join((_HERE / name).read_bytes() for name in ("_vectors.cu", file))
    options = [f"--gpu-architecture=sm_{capability}", f"-DIS_BF16={int(is_bf16)}", f"-DACTIVATION={ACTIVATIONS[word]}", "--std=c++17"]
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, file.encode(), 0, None, None):
        raise RuntimeError("NVRTC made no program")
    try:
        if nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*map(str.encode, options))):
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise RuntimeError(f"NVRTC: {log.value.decode()}")
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetCUBIN(program, code)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw


class Kernels:
    """Addresses of the file's functions, which stay loaded."""

    def __init__(self, device, dtype, word, file="_norm.cu"):
        major, minor = torch.cuda.get_device_capability(device)
        driver, module, function = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
        with torch.cuda.device(device):
            torch.cuda.current_stream(device).synchronize()  # and the device's context is the current one
            if driver.cuModuleLoadData(ctypes.byref(module), compiled(file, word, dtype is torch.bfloat16, f"{major}{minor}")):
                raise RuntimeError("the driver did not load the kernels")
            for name in _NAMES[file]:
                if driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()):
                    raise RuntimeError(f"the driver did not find {name}")
                setattr(self, name, function.value)
        self.processors = torch.cuda.get_device_properties(device).multi_processor_count
        self.overlaps = int(major >= 9)  # they say themselves from where on


@functools.cache
def kernels(device, dtype, word, file="_norm.cu"):
    """None where they cannot be had."""
    if (dtype not in (torch.bfloat16, torch.float16) or word not in ACTIVATIONS or torch.version.cuda is None
            or torch.cuda.get_device_capability(device) < (8, 0)):
        return None
    try:
        return Kernels(device, dtype, word, file)
    except (AttributeError, OSError, RuntimeError):
        return None


def across(channels):
    """How many vectors of channels a block has beside each other; None where that would leave most of a line of memory unread."""
    if channels % VECTOR or not 0 < channels <= MOST_CHANNELS:
        return None
    vectors = channels // VECTOR
    most = max(n for n in range(1, MOST_ACROSS + 1) if vectors % n == 0)
    return most if most > 3 or most == vectors else None


def chunks_of(rows, others, processors):
    """How many chunks, and the rows of one: two blocks a processor, of which there are so many others for each."""
    chunk = max(LEAST_ROWS, -(-rows // max(1, 2 * processors // others)))
    return -(-rows // chunk), chunk


def grid_of(rows, channels, processors):
    """(groups of channels, chunks of rows), (rows, channels, rows of a chunk, vectors beside each other): two blocks a processor."""
    beside = across(channels)
    groups = channels // VECTOR // beside
    chunk = max(LEAST_ROWS, -(-rows * groups // (2 * processors)))
    return (groups, -(-rows // chunk)), (rows, channels, chunk, beside)


class Launches:
    """Of a tensor of rows x channels, which has that layout."""

    def __init__(self, made, device, dtype, word, rows, channels):
        self.kernels, self.index, self.dtype, self.word = made, device.index, dtype, word
        self.grid, self.sizes = grid_of(rows, channels, made.processors)
        partial = 2 * self.grid[1] * channels
        self.allocate, self.typed, self.keywords = _run.allocator(device, torch.float32)
        _, self.alike, self.alike_keywords = _run.allocator(device, dtype)
        self.saved, self.spare = ((4 * channels + partial,), (1,)), ((2 * channels + partial,), (1,))  # sizes and strides
        self.after_saved, self.after_spare, self.of_channels = 16 * channels, 8 * channels, ((channels,), (1,))

    def _empty(self, sizes, strides):
        return self.allocate(sizes, strides, *self.typed, **self.keywords)

    def _empty_like(self, x):
        return self.allocate(tuple(x.shape), x.stride(), *self.alike, **self.alike_keywords)

    def forward(self, x, weight, bias, mean, variance, batches, momentum, eps):
        """y, and what backward reads of the statistics."""
        made, stream, sizes = self.kernels, torch._C._cuda_getCurrentRawStream(self.index), self.sizes
        save, y = self._empty(*self.saved), self._empty_like(x)
        saved = save.data_ptr()
        _c.launch(made.statistics, *self.grid, THREADS, stream, made.overlaps, x, weight, bias, mean, variance, batches, saved, saved + self.after_saved,
                  counters(self.index, stream), *sizes, momentum, eps)
        _c.launch(made.normalize, *self.grid, THREADS, stream, made.overlaps, x, y, saved, *sizes)
        return y, save

    def backward(self, dy, x, save, weight):
        """Of x, of weight and bias."""
        made, stream, sizes = self.kernels, torch._C._cuda_getCurrentRawStream(self.index), self.sizes
        of_weight, of_bias, spare = self._empty(*self.of_channels), self._empty(*self.of_channels), self._empty(*self.spare)
        dx, space = self._empty_like(x), spare.data_ptr()
        _c.launch(made.reduce, *self.grid, THREADS, stream, made.overlaps, dy, x, save, of_weight, of_bias, space, space + self.after_spare,
                  counters(self.index, stream), *sizes)
        _c.launch(made.apply, *self.grid, THREADS, stream, made.overlaps, dy, x, dx, save, space, *sizes)
        return dx, of_weight, of_bias


_counters = {}


def counters(index, stream):
    """Zeros that kernels leave as zeros: a stream's own, on which no two run at a time. index: the device's."""
    found = _counters.get((index, stream))
    if found is None:
        device = torch.device("cuda", index)
        found = _counters[index, stream] = apart(device, lambda: torch.zeros(COUNTERS, dtype=torch.int32, device=device))
    return found


def dense(tensor):
    """As kernels read it."""
    tensor = tensor.resolve_neg().contiguous(memory_format=torch.channels_last)
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def launches(device, dtype, word, rows, channels):
    """None where nothing of the kind is computed, or what it computed is not what PyTorch computes in f32."""
    if rows < 2 or across(channels) is None or (made := kernels(device, dtype, word)) is None:
        return None
    with torch.no_grad(), torch.random.fork_rng([device.index]), torch.autocast("cuda", enabled=False):
        made = Launches(made, device, dtype, word, rows, channels)
        try:
            return made if agrees(made, device) else None
        except RuntimeError:
            return None


def agrees(made, device):
    """Whether results, gradients and running statistics are PyTorch's in f32, within what rounding to the dtype makes of them."""
    rows, channels = made.sizes[:2]
    x = torch.randn(rows, channels, 1, 1, device=device).mul_(2).add_(1).to(made.dtype)
    weight, bias, mean = (torch.rand(channels, device=device) - 0.3 for _ in range(3))
    variance, batches = torch.rand(channels, device=device), torch.zeros((), dtype=torch.int64, device=device)
    theirs = mean.clone(), variance.clone()
    y, save = made.forward(x, weight, bias, mean, variance, batches, 0.1, 1e-5)
    leaves = [t.requires_grad_() for t in (x.float(), weight.clone(), bias.clone())]
    with torch.enable_grad():
        z = torch.batch_norm(*leaves, *theirs, True, 0.1, 1e-5, False)
        exact = activation_of(made.word)(z)
    dy = torch.where(z.abs() > 1 / 32, torch.rand_like(z) - 0.4, 0.0).to(made.dtype)  # of the others the sign is rounding's
    wanted = torch.autograd.grad(exact, leaves, dy.float())
    dx, *gradients = made.backward(dy, x, save, weight)
    rounding = 2.0 ** (-7 if made.dtype is torch.bfloat16 else -9)
    # Of what is subtracted in the gradient of x: of two rows next to nothing is left.
    terms = (weight.abs() * torch.rsqrt(x.float().var((0, 2, 3), correction=0) + 1e-5)).max() * dy.float().abs().max()
    far = [((a.float() - b).abs().max() / scale).item() for a, b, scale in (
        (y, exact, exact.abs().max()), (dx, wanted[0], terms),
        *((a, b, b.abs().max()) for a, b in zip((*gradients, mean, variance), (*wanted[1:], *theirs))))]
    made.far = far
    return all(f <= bound for f, bound in zip(far, (rounding, rounding, 1e-2, 1e-2, 1e-4, 1e-4))) and batches.item() == 1


_known = {}


def launches_for(x, word):
    """Of batch norm of this tensor and such an activation; None where nothing computes it. They are made when they are first asked
    for, but not while a CUDA graph is captured."""
    index = x.get_device()
    key = index, x.dtype, word, x.shape, x.stride()
    found = _known.get(key, _known)
    if found is _known:
        if not x.is_cuda or x.dim() != 4 or not x.is_contiguous(memory_format=torch.channels_last):
            return None
        if torch.cuda.is_current_stream_capturing():
            return None
        if len(_known) >= _run.MOST_PLANS:
            _known.clear()
        found = _known[key] = launches(x.device, x.dtype, word, x.numel() // max(x.shape[1], 1), x.shape[1])
    return found if found is None or (index == torch._C._cuda_getDevice() and x.data_ptr() % 16 == 0) else None
