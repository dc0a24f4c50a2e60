"""The kernels of the operators: plans by shape, run on PyTorch's memory and streams."""
import torch

from .. import _c
from .._engine import engine, _question
from .._functional import CHANNELS_LAST, CONTIGUOUS, dense_strides, problem_text

DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
ALIGNMENT = 16  # bytes; what some kernels need of a tensor's address


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


def forward(x, w, bias, residual, stride, padding, dilation, groups, activation):
    check(x, w, bias, groups, stride, padding, dilation)
    shape = output_shape(x.shape, w.shape, stride, padding, dilation)
    last = wants_channels_last(x, w)
    y = empty(shape, x, last)
    if y.numel() == 0:
        return y
    x, w = dense(x, last), dense(w, last)
    if bias is not None:
        bias = bias.contiguous()
    if residual is not None:
        if list(residual.shape) != shape or residual.dtype != x.dtype or residual.device != x.device:
            raise _c.BadProblem(f"faltung: residual is {residual.dtype} {tuple(residual.shape)} on {residual.device}; it is added "
                                f"to {x.dtype} {tuple(shape)} on {x.device}")
        residual = dense(residual, last)
    plan = plan_for("fwd", x.shape, w.shape, tuple(stride), tuple(padding), tuple(dilation), groups, x, last, bias is not None,
                    residual is not None, activation)
    run(plan, x, w, y, bias, residual)
    return y


def input_grad(dy, w, input_size, stride, padding, dilation, groups):
    last = wants_channels_last(dy, w)
    dx = empty(list(input_size), dy, last)
    check(dx, w, None, groups, stride, padding, dilation)
    check_grad(dy, dx.shape, w.shape, stride, padding, dilation)
    if dy.numel() == 0:
        return dx
    dy, w = dense(dy, last), dense(w, last)
    run(plan_for("bwd_d", dx.shape, w.shape, tuple(stride), tuple(padding), tuple(dilation), groups, dy, last), dx, w, dy)
    return dx


def weight_grad(dy, x, weight_size, stride, padding, dilation, groups):
    last = wants_channels_last(x, dy)
    dw = empty(list(weight_size), x, last)
    check(x, dw, None, groups, stride, padding, dilation)
    check_grad(dy, x.shape, dw.shape, stride, padding, dilation)
    if dy.numel() == 0:
        return dw.zero_()
    dy, x = dense(dy, last), dense(x, last)
    run(plan_for("bwd_w", x.shape, dw.shape, tuple(stride), tuple(padding), tuple(dilation), groups, x, last), x, dw, dy)
    return dw


def check_grad(dy, x_shape, w_shape, stride, padding, dilation):
    shape = output_shape(x_shape, w_shape, stride, padding, dilation)
    if list(dy.shape) != shape:
        raise _c.BadProblem(f"faltung: grad_output has the shape {tuple(dy.shape)}; that of the convolution's output is {tuple(shape)}")
