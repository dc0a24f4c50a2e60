"""Types of faltung.torch.functional. input: N C L, N C H W or N C D H W; weight: K C/groups S, K C/groups R S or K C/groups T R S, of a
transposed convolution C K/groups ...; bias: K; residual, and what is returned: N K Q, N K P Q or N K Z P Q."""
from collections.abc import Sequence
from typing import Literal, Protocol

from torch import Tensor

_Sizes = int | Sequence[int]

class _Plain(Protocol):
    """padding: also "same" or "valid", or two numbers for each dimension: before and after."""
    def __call__(self, input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: _Sizes = 1,
                 padding: _Sizes | Literal["same", "valid"] = 0, dilation: _Sizes = 1, groups: int = 1, *, residual: Tensor | None = None,
                 activation: str | None = None) -> Tensor: ...

class _Transposed(Protocol):
    """output_padding: how much larger the output is, below the stride."""
    def __call__(self, input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: _Sizes = 1, padding: _Sizes = 0,
                 output_padding: _Sizes = 0, groups: int = 1, dilation: _Sizes = 1, *, residual: Tensor | None = None,
                 activation: str | None = None) -> Tensor: ...

conv1d: _Plain
conv2d: _Plain
conv3d: _Plain
conv_transpose1d: _Transposed
conv_transpose2d: _Transposed
conv_transpose3d: _Transposed
