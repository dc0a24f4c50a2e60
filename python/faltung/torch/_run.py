"""The kernels of the operators: plans by shape, run on PyTorch's memory and streams."""
import torch

from .. import _c
from .._engine import engine, _question
from .._functional import CHANNELS_LAST, CONTIGUOUS, dense_strides, problem_text

DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
ALIGNMENT = 16  # bytes; what some kernels need of a tensor's address
MOST_CALLS = 16384  # that are remembered; beyond, all are forgotten: a program with ever new shapes must not fill the memory


def wants_channels_last(a, b):
    """Whether the result is channels_last, as PyTorch decides it: if either of the two is, and not contiguous as well."""
    last = torch.channels_last
    return ((not a.is_contiguous() and a.is_contiguous(memory_format=last))
            or (not b.is_contiguous() and b.is_contiguous(memory_format=last)))


def check(x, w, bias, groups, stride, padding, dilation):
    """What the problem's own text would not say in PyTorch's terms. padding: 2 or 4 numbers."""
    if x.dim() != 4 or w.dim() != 4:
        raise _c.BadProblem(f"faltung: input has {x.dim()} dimensions and weight {w.dim()}; both need 4: N C H W, K C/groups R S")
    if x.dtype not in DTYPES:
        raise _c.Unsupported(f"faltung: input is {x.dtype}; float32, float16 and bfloat16 are computed: convert it, or leave it "
                             f"to PyTorch")
    for name, other in (("weight", w), ("bias", bias)):
        if other is None:
            continue
        if other.dtype != x.dtype:
            raise _c.BadProblem(f"faltung: {name} is {other.dtype} and input {x.dtype}; they must be of one dtype")
        if other.device != x.device:
            raise _c.BadProblem(f"faltung: {name} is on {other.device} and input on {x.device}; they must be on one device")
    if bias is not None and tuple(bias.shape) != (w.shape[0],):
        raise _c.BadProblem(f"faltung: bias has the shape {tuple(bias.shape)}; weight has {w.shape[0]} output channels")
    if groups < 1 or w.shape[1] * groups != x.shape[1] or w.shape[0] % groups:
        raise _c.BadProblem(f"faltung: weight {tuple(w.shape)} in {groups} groups does not fit an input with {x.shape[1]} channels")
    if len(stride) != 2 or len(dilation) != 2 or len(padding) not in (2, 4):
        raise _c.BadProblem("faltung: stride and dilation are 2 numbers, padding is 2, or 4: top, bottom, left, right")


def sides(padding):
    return tuple(padding) if len(padding) == 4 else (padding[0], padding[0], padding[1], padding[1])


def output_shape(x_shape, w_shape, stride, padding, dilation):
    """N K P Q; raises where the filter does not fit."""
    top, bottom, left, right = sides(padding)
    p = (x_shape[2] + top + bottom - dilation[0] * (w_shape[2] - 1) - 1) // stride[0] + 1
    q = (x_shape[3] + left + right - dilation[1] * (w_shape[3] - 1) - 1) // stride[1] + 1
    if p < 1 or q < 1:
        raise _c.BadProblem(f"faltung: a filter of {tuple(w_shape[2:])} with the dilation {tuple(dilation)} does not fit an image "
                            f"of {tuple(x_shape[2:])} with the padding {tuple(padding)}")
    return [x_shape[0], w_shape[0], p, q]


def allows_tf32():
    """Whether PyTorch's convolutions may round f32 to TF32 on CUDA."""
    try:
        return torch._C._get_cudnn_allow_tf32()
    except RuntimeError:  # set by the newer interface alone
        return torch.backends.cudnn.conv.fp32_precision == "tf32"


_plans = {}


def _new_plan(direction, x_shape, w_shape, stride, padding, dilation, groups, dtype, device, last, has_bias, has_residual,
              activation, threads, tf32):
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("faltung: this convolution has not run before, and its first run makes a plan, which cannot be "
                           "captured into a CUDA graph; warm up first: run the model once on the same shapes")
    text = problem_text(direction, tuple(x_shape), tuple(w_shape), stride, sides(padding), dilation, groups, DTYPES[dtype],
                        CHANNELS_LAST if last else CONTIGUOUS, "tf32" if tf32 else None, has_bias, has_residual, activation)
    where = f"cuda:{device.index}" if device.type == "cuda" else "cpu"
    return engine().plan(*_question(text, where, threads=threads))


def plan_for(direction, x_shape, w_shape, stride, padding, dilation, groups, like, last, has_bias=False, has_residual=False,
             activation=""):
    device = like.device
    cuda = device.type == "cuda"
    key = (direction, x_shape, w_shape, stride, padding, dilation, groups, like.dtype, device, last, has_bias, has_residual,
           activation, 0 if cuda else torch.get_num_threads(), cuda and like.dtype is torch.float32 and allows_tf32())
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= MOST_CALLS:
            _plans.clear()
        plan = _plans[key] = _new_plan(*key)
    return plan


def dense(tensor, last):
    """The tensor as kernels read it: without gaps, in the layout, at an address that is a multiple of 16 bytes."""
    tensor = tensor.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
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


class Call:
    """All that one call is but its memory: the plan, the result's sizes and strides, and which inputs lie as kernels read them."""

    __slots__ = ("plan", "shape", "strides", "last", "dense", "empty")

    def __init__(self, shape, like, last):
        self.shape, self.last = list(shape), last
        self.strides = dense_strides(self.shape, CHANNELS_LAST if last else CONTIGUOUS)
        self.plan, self.dense, self.empty = None, (), 0 in shape


_calls = {}


def _about(tensor):
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def call_of(direction, make, tensors, *rest):
    """The Call of the same tensors but for their contents, made where there is none. rest: what make takes beside them."""
    a = tensors[0]
    cuda = a.is_cuda
    key = (direction, *[None if t is None else _about(t) for t in tensors],
           *[tuple(r) if isinstance(r, list) else r for r in rest], 0 if cuda else torch.get_num_threads(),
           cuda and a.dtype is torch.float32 and allows_tf32())
    call = _calls.get(key)
    if call is None:
        call = make(*tensors, *rest)
        call.dense = tuple(t is None or t.dim() != 4
                           or t.is_contiguous(memory_format=torch.channels_last if call.last else torch.contiguous_format)
                           for t in tensors)
        if len(_calls) >= MOST_CALLS:
            _calls.clear()
        _calls[key] = call
    return call


def compute(call, tensors, slots):
    """Runs the call's plan; slots: which of x, w, y the first two tensors are, and the result."""
    out = torch.empty_strided(call.shape, call.strides, dtype=tensors[0].dtype, device=tensors[0].device)
    if out.numel() == 0:
        return out
    given = [t if t is None or (is_dense and t.data_ptr() % ALIGNMENT == 0) else dense(t, call.last) if t.dim() == 4 else t.contiguous()
             for t, is_dense in zip(tensors, call.dense)]
    xwy = [None, None, None]
    xwy[slots[0]], xwy[slots[1]], xwy[slots[2]] = given[0], given[1], out
    run(call.plan, *xwy, *given[2:])
    return out


def forward(x, w, bias, residual, stride, padding, dilation, groups, activation):
    tensors = (x, w, bias, residual)
    return compute(call_of("fwd", _new_forward, tensors, stride, padding, dilation, groups, activation), tensors, (0, 1, 2))


def input_grad(dy, w, input_size, stride, padding, dilation, groups):
    tensors = (dy, w)
    return compute(call_of("bwd_d", _new_input_grad, tensors, input_size, stride, padding, dilation, groups), tensors, (2, 1, 0))


def weight_grad(dy, x, weight_size, stride, padding, dilation, groups):
    tensors = (dy, x)
    call = call_of("bwd_w", _new_weight_grad, tensors, weight_size, stride, padding, dilation, groups)
    if call.empty:
        return torch.zeros(call.shape, dtype=x.dtype, device=x.device)
    return compute(call, tensors, (2, 0, 1))


def _new_forward(x, w, bias, residual, stride, padding, dilation, groups, activation):
    check(x, w, bias, groups, stride, padding, dilation)
    call = Call(output_shape(x.shape, w.shape, stride, padding, dilation), x, wants_channels_last(x, w))
    if residual is not None and (list(residual.shape) != call.shape or residual.dtype != x.dtype or residual.device != x.device):
        raise _c.BadProblem(f"faltung: residual is {residual.dtype} {tuple(residual.shape)} on {residual.device}; it is added "
                            f"to {x.dtype} {tuple(call.shape)} on {x.device}")
    if not call.empty:
        call.plan = plan_for("fwd", x.shape, w.shape, tuple(stride), tuple(padding), tuple(dilation), groups, x, call.last,
                             bias is not None, residual is not None, activation)
    return call


def _new_input_grad(dy, w, input_size, stride, padding, dilation, groups):
    call = Call(input_size, dy, wants_channels_last(dy, w))
    check(dy.new_empty(input_size, device="meta"), w.to("meta"), None, groups, stride, padding, dilation)
    check_grad(dy, w, input_size, w.shape, stride, padding, dilation)
    if not call.empty and dy.numel():
        call.plan = plan_for("bwd_d", torch.Size(input_size), w.shape, tuple(stride), tuple(padding), tuple(dilation), groups, dy, call.last)
    return call


def _new_weight_grad(dy, x, weight_size, stride, padding, dilation, groups):
    call = Call(weight_size, x, wants_channels_last(x, dy))
    check(x, x.new_empty(weight_size), None, groups, stride, padding, dilation)
    check_grad(dy, x, x.shape, weight_size, stride, padding, dilation)
    call.empty = dy.numel() == 0
    if not call.empty:
        call.plan = plan_for("bwd_w", x.shape, torch.Size(weight_size), tuple(stride), tuple(padding), tuple(dilation), groups, x, call.last)
    return call


def check_grad(dy, other, x_shape, w_shape, stride, padding, dilation):
    shape = output_shape(x_shape, w_shape, stride, padding, dilation)
    if list(dy.shape) != shape:
        raise _c.BadProblem(f"faltung: grad_output has the shape {tuple(dy.shape)}; that of the convolution's output is {tuple(shape)}")
    if dy.dtype != other.dtype or dy.device != other.device:
        raise _c.BadProblem(f"faltung: grad_output is {dy.dtype} on {dy.device} and the other tensor {other.dtype} on {other.device}; "
                            f"they must be alike")
