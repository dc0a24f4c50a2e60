"""Modules over faltung's operators; parameters and state_dict are those of torch.nn's."""
import torch
import torch.nn.functional as F

from . import functional


class Conv2d(torch.nn.Conv2d):
    """torch.nn.Conv2d by faltung's kernels."""

    def _conv_forward(self, input, weight, bias):
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            return functional.conv2d(input, weight, bias, self.stride, 0, self.dilation, self.groups)
        if input.dim() == 3:  # without a batch
            return self._conv_forward(input.unsqueeze(0), weight, bias).squeeze(0)
        return functional.conv2d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)
