"""What the operators compute: plans by shape, run on PyTorch's memory and streams. _autograd.py has the operators themselves, which
repeat in C what ran here once."""
import os
from concurrent.futures import ThreadPoolExecutor

import torch

from .. import _c
from .._engine import _question, engine
from .._geometry import CHANNELS_LAST, CONTIGUOUS, dense_strides, geometry_of, output_shape, problem_text

DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
ALIGNMENT = 16  # bytes; what some kernels need of a tensor's address
MOST_PLANS = 16384  # that are remembered; beyond, all are forgotten: a program with ever new shapes must not fill the memory
MOST_AT_ONCE = 256  # plans that are made at once
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}  # by dimensions; PyTorch has no other order of three

if "backend: OpenMP" in torch.__config__.parallel_info():
    _c.use_openmp_of(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))


def format_of(dimensions, last):
    return FORMATS[dimensions] if last else torch.contiguous_format


def wants_channels_last(a, b):
    """Whether the result is channels_last, as PyTorch decides it: if either of the two is, and not contiguous as well."""
    last = FORMATS.get(a.dim())
    return last is not None and ((not a.is_contiguous() and a.is_contiguous(memory_format=last))
                                 or (not b.is_contiguous() and b.is_contiguous(memory_format=last)))


def check_alike(name, other, first):
    """That both are of one dtype, which is computed, and on one device."""
    if first.dtype not in DTYPES:
        raise _c.Unsupported(f"faltung: input is {first.dtype}; float32, float16 and bfloat16 are computed: convert it, or leave it "
                             f"to PyTorch")
    if first.layout is not torch.strided:
        raise _c.Unsupported(f"faltung: input is {first.layout}; strided tensors are computed: to_dense() makes one")
    if other.dtype != first.dtype:
        raise _c.BadProblem(f"faltung: {name} is {other.dtype} and input {first.dtype}; they must be of one dtype")
    if other.device != first.device:
        raise _c.BadProblem(f"faltung: {name} is on {other.device} and input on {first.device}; they must be on one device")


def check_shapes(family, x_shape, w_shape, groups):
    """What the problem's own text would not say in PyTorch's terms."""
    if len(x_shape) != family.dimensions + 2 or len(w_shape) != family.dimensions + 2:
        raise _c.BadProblem(f"faltung: input has {len(x_shape)} dimensions and weight {len(w_shape)}; both need "
                            f"{family.dimensions + 2}: {family.image_sizes}, {family.filter_sizes}")
    if groups < 1 or family.channels(w_shape, groups)[0] != x_shape[1] or w_shape[0] % groups:
        raise _c.BadProblem(f"faltung: weight {tuple(w_shape)} in {groups} groups does not fit an input with {x_shape[1]} channels")


def shape_forward(family, x, w, bias, residual, geometry):
    """The result's shape, and the whole Geometry; raises for tensors that do not fit."""
    check_shapes(family, x.shape, w.shape, geometry[3])
    for name, other in (("weight", w), ("bias", bias), ("residual", residual)):
        if other is not None:
            check_alike(name, other, x)
    geometry = geometry_of(family, w.shape[2:], *geometry)
    shape = output_shape(family, x.shape, w.shape, geometry)
    if bias is not None and tuple(bias.shape) != (shape[1],):
        raise _c.BadProblem(f"faltung: bias has the shape {tuple(bias.shape)}; weight has {shape[1]} output channels")
    if residual is not None and list(residual.shape) != shape:
        raise _c.BadProblem(f"faltung: residual has the shape {tuple(residual.shape)}; it is added to {tuple(shape)}")
    return shape, geometry


def check_grad(family, dy, other, x_shape, w_shape, geometry):
    """The whole Geometry; raises for tensors that do not fit."""
    check_shapes(family, x_shape, w_shape, geometry[3])
    check_alike("grad_output", dy, other)
    geometry = geometry_of(family, w_shape[2:], *geometry)
    shape = output_shape(family, x_shape, w_shape, geometry)
    if list(dy.shape) != shape:
        raise _c.BadProblem(f"faltung: grad_output has the shape {tuple(dy.shape)}; that of the convolution's output is {tuple(shape)}")
    return geometry


def device_type(x):
    """As x.device.type has it, which makes a text by a stream: microseconds where the caches are cold, as in a model."""
    return "cuda" if x.is_cuda else "cpu"


def is_captured(x):
    """Whether what is computed of the tensor now is not run, but captured into a CUDA graph."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def autocast_dtype(x):
    """That which autocast converts to on the tensor's device; None where it is off."""
    where = device_type(x)
    return torch.get_autocast_dtype(where) if torch.is_autocast_enabled(where) else None


def allows_tf32():
    """Whether PyTorch's convolutions may round f32 to TF32 on CUDA."""
    try:
        return torch._C._get_cudnn_allow_tf32()
    except RuntimeError:  # set by the newer interface alone
        return torch.backends.cudnn.conv.fp32_precision == "tf32"


_plans = {}


def _new_plan(direction, family, x_shape, w_shape, geometry, dtype, device, last, has_bias, has_residual, activation, threads, tf32):
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("faltung: this convolution has not run before, and its first run makes a plan, which cannot be "
                           "captured into a CUDA graph; warm up first: run the model once on the same shapes")
    text = problem_text(direction, family, tuple(x_shape), tuple(w_shape), geometry, DTYPES[dtype],
                        CHANNELS_LAST if last else CONTIGUOUS, "tf32" if tf32 else None, has_bias, has_residual, activation)
    where = f"cuda:{device.index}" if device.type == "cuda" else "cpu"
    return engine().plan(*_question(text, where, threads=threads))


def bias_dtype(like):
    """Of a bias that is made for what computes tensors like this one: GPUs' kernels read f32, as they do in whole networks."""
    return torch.float32 if like.is_cuda else like.dtype


def made_bias(has_bias, like):
    """What plan_for takes for such a bias."""
    return "f32" if has_bias and bias_dtype(like) is not like.dtype else has_bias


def is_flat(x_shape, w_shape, geometry):
    """Whether all images are single pixels, as in squeeze and excite: both layouts are one then."""
    return x_shape[2:].numel() == 1 == w_shape[2:].numel() and not any(geometry.padding) and not any(geometry.output_padding)


def _key(direction, family, x_shape, w_shape, geometry, like, last, has_bias=False, has_residual=False, activation=""):
    """_new_plan's arguments."""
    device = like.device
    last = last or is_flat(x_shape, w_shape, geometry)  # kernels read and write rows of channels as they are
    cuda = device.type == "cuda"
    return (direction, family, x_shape, w_shape, geometry, like.dtype, device, last, has_bias, has_residual, activation,
            0 if cuda else torch.get_num_threads(), cuda and like.dtype is torch.float32 and allows_tf32())


def _plan_of(key):
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        plan = _plans[key] = _new_plan(*key)
    return plan


def plan_for(*arguments):
    """The plan of: direction, family, shapes of x and w, geometry, a tensor of the dtype on the device, whether it is channels_last,
    has a bias ("f32": of that dtype), a residual; the activation."""
    return _plan_of(_key(*arguments))


def plan_ahead(device, wanted):
    """Has plans made, by plan_for's arguments, and says how many there were none of. All are made at once, each by a thread of its own,
    which mostly waits: what they need compiled is then known together, and compiled by all processors; kernels of the same programs are
    tried once. What cannot be made says so when it is asked for."""
    if device.type != "cuda":
        return 0
    keys = [key for key in dict.fromkeys(_key(*arguments) for arguments in wanted) if key not in _plans]

    def make(key):
        with torch.cuda.device(device):
            try:
                _plan_of(key)
            except (_c.Error, RuntimeError):
                pass
    with ThreadPoolExecutor(MOST_AT_ONCE) as threads:
        list(threads.map(make, keys))
    return len(keys)


def likeness(tensor):
    """One without memory, for questions of shapes and layouts."""
    return torch.empty_strided(tensor.shape, tensor.stride(), device="meta")


def dense(tensor, last):
    """The tensor as kernels read it: without gaps or the negative bit, in the layout, at an address that is a multiple of 16 bytes."""
    if tensor is None:
        return None
    tensor = tensor.resolve_neg().contiguous(memory_format=format_of(tensor.dim(), last and tensor.dim() > 1))
    # A size of 1 lets both formats pass for the other; kernels see no strides, so that this is no copy.
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def empty(shape, like, last):
    return torch.empty_strided(shape, dense_strides(shape, CHANNELS_LAST if last else CONTIGUOUS), dtype=like.dtype,
                               device=like.device)


def run(plan, x, w, y, bias=None, residual=None, weights=None):
    """On the current stream, with PyTorch's memory for workspace."""
    stream = workspace = space = None
    if x.is_cuda:
        stream = torch._C._cuda_getCurrentRawStream(x.device.index)
        size = plan.workspace_bytes if weights is None else plan.packed_workspace_bytes
        if size:
            space = torch.empty(size, dtype=torch.uint8, device=x.device)
            workspace = space.data_ptr()
    plan.run(x.data_ptr(), w.data_ptr(), y.data_ptr(), None if bias is None else bias.data_ptr(),
             None if residual is None else residual.data_ptr(), workspace, stream, weights)


def allocator(device, dtype):
    """A function of sizes and strides, and its keywords: the quickest that there is."""
    quick = getattr(torch._C._dynamo.guards, f"_empty_strided_{device.type}", None)
    # That for CUDA, as torch.compile's code uses it, is of the current device.
    if quick is not None and (device.type == "cpu" or torch.cuda.device_count() == 1):
        return quick, (dtype,), {}
    return torch.empty_strided, (), {"dtype": dtype, "device": device}


def remember(operator, arguments, plan, given, used, result, weights=None, made_w=None, made_bias=None, rests=False):
    """Lets the operator repeat this call without Python, where all tensors were read as they were given. weights, made_w, made_bias:
    used in place of the call's constants; rests: whether what is read as weights was written, and waited for, before. Returns the call's
    key, or None."""
    if not all(a is b for a, b in zip(given, used)):
        return None
    element = result.element_size()
    size = -(-(plan.workspace_bytes if weights is None else plan.packed_workspace_bytes) // element)
    allocate, dtype, keywords = allocator(result.device, result.dtype)
    return operator.remember(arguments, plan, weights, allocate, (tuple(result.shape), result.stride(), *dtype),
                             ((size,), (1,), *dtype), keywords, made_w, made_bias, rests)


def forward(operator, family, arguments, tensors, geometry, activation=""):
    """tensors: x, w, bias, residual. operator: that remembers the call, whose arguments these are."""
    x, w, bias, residual = tensors
    shape, geometry = shape_forward(family, *tensors, geometry)
    last = wants_channels_last(x, w)
    y = empty(shape, x, last)
    if y.numel() == 0:
        return y
    plan = plan_for("fwd", family, x.shape, w.shape, geometry, x, last, bias is not None, residual is not None, activation)
    used = [dense(t, last) for t in tensors]
    run(plan, used[0], used[1], y, *used[2:])
    remember(operator, arguments, plan, tensors, used, y)
    return y


def input_grad(operator, family, arguments, dy, w, size, geometry):
    geometry = check_grad(family, dy, w, size, w.shape, geometry)
    last = wants_channels_last(dy, w)
    dx = empty(list(size), dy, last)
    if dx.numel() == 0 or dy.numel() == 0:
        return dx.zero_()
    plan = plan_for("bwd_d", family, torch.Size(size), w.shape, geometry, dy, last)
    used = dense(dy, last), dense(w, last)
    run(plan, dx, used[1], used[0])
    remember(operator, arguments, plan, (dy, w), used, dx)
    return dx


def weight_grad(operator, family, arguments, dy, x, size, geometry):
    geometry = check_grad(family, dy, x, x.shape, size, geometry)
    last = wants_channels_last(x, dy)
    dw = empty(list(size), x, last)
    if dw.numel() == 0 or dy.numel() == 0:
        return dw.zero_()
    plan = plan_for("bwd_w", family, x.shape, torch.Size(size), geometry, x, last)
    used = dense(dy, last), dense(x, last)
    run(plan, used[1], dw, used[0])
    remember(operator, arguments, plan, (dy, x), used, dw)
    return dw
