"""As torch.nn.functional, by faltung's kernels."""
import torch

from .. import _c, _functional
from ._activations import activation_of


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, residual=None, activation=None):
    """torch.nn.functional.conv2d, and what follows it in one pass over memory: ``residual`` (of the output's shape) added,
    then ``activation`` (relu, relu6, leaky_relu(0.01), sigmoid, silu, gelu, gelu_tanh, hardswish).

    input: N C H W, contiguous or channels_last (others are copied), float32, float16 or bfloat16; weight: K C/groups R S;
    bias: K. padding also takes four numbers: top, bottom, left, right. Returns N K P Q, channels_last if input or weight is.
    Where a gradient is needed the activation and the residual are PyTorch's own operators."""
    stride = _functional.pair(stride, "stride")
    dilation = _functional.pair(dilation, "dilation")
    padding = _functional.four_sides(padding, tuple(weight.shape[2:]), stride, dilation)
    if residual is None and not activation:
        return torch.ops.faltung.conv2d(input, weight, bias, stride, padding, dilation, groups)
    activation_of(activation or "")
    return torch.ops.faltung.conv2d_fused(input, weight, bias, residual, stride, padding, dilation, groups, activation or "")


def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """torch.nn.functional.conv1d: input N C L, weight K C/groups S; an image of one row."""
    if input.dim() != 3 or weight.dim() != 3:
        raise _c.BadProblem(f"faltung: input has {input.dim()} dimensions and weight {weight.dim()}; conv1d takes 3: N C L, "
                            f"K C/groups S")
    one = [v if isinstance(v, int) else v[0] for v in (stride, dilation)]
    if isinstance(padding, str):
        padding = _functional.four_sides(padding, (1, weight.shape[2]), (1, one[0]), (1, one[1]))
    else:
        amount = padding if isinstance(padding, int) else padding[0]
        padding = (0, 0, amount, amount)
    y = torch.ops.faltung.conv2d(input.unsqueeze(2), weight.unsqueeze(2), bias, [1, one[0]], padding, [1, one[1]], groups)
    return y.squeeze(2)
