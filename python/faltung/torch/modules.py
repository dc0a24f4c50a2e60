"""Modules over faltung's operators; parameters and state_dict are those of torch.nn's."""
import torch
import torch.nn.functional as F

from . import functional


class _Plain:
    """By faltung's kernels, whatever the padding mode."""

    def _conv_forward(self, input, weight, bias):
        dimensions = weight.dim() - 2
        function = getattr(functional, f"conv{dimensions}d")
        if input.dim() == dimensions + 1:  # without a batch
            return self._conv_forward(input.unsqueeze(0), weight, bias).squeeze(0)
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            return function(input, weight, bias, self.stride, 0, self.dilation, self.groups)
        return function(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)


class _Transposed:
    def forward(self, input, output_size=None):
        dimensions = self.weight.dim() - 2
        if input.dim() == dimensions + 1:
            return self.forward(input.unsqueeze(0), output_size).squeeze(0)
        output_padding = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size, dimensions,
                                              self.dilation)
        return getattr(functional, f"conv_transpose{dimensions}d")(
            input, self.weight, self.bias, self.stride, self.padding, output_padding, self.groups, self.dilation)


class Conv1d(_Plain, torch.nn.Conv1d):
    """torch.nn.Conv1d by faltung's kernels."""


class Conv2d(_Plain, torch.nn.Conv2d):
    """torch.nn.Conv2d by faltung's kernels."""


class Conv3d(_Plain, torch.nn.Conv3d):
    """torch.nn.Conv3d by faltung's kernels."""


class ConvTranspose1d(_Transposed, torch.nn.ConvTranspose1d):
    """torch.nn.ConvTranspose1d by faltung's kernels."""


class ConvTranspose2d(_Transposed, torch.nn.ConvTranspose2d):
    """torch.nn.ConvTranspose2d by faltung's kernels."""


class ConvTranspose3d(_Transposed, torch.nn.ConvTranspose3d):
    """torch.nn.ConvTranspose3d by faltung's kernels."""
