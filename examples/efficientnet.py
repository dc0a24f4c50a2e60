"""EfficientNet (Tan and Le, 2019) in PyTorch, of its table alone: B0, and what width and depth make of it."""
import math

from torch import nn

# Of B0: expansion, output channels, blocks, stride of the first, filter.
STAGES = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)]
# Width, depth, dropout.
SCALES = {"b0": (1.0, 1.0, 0.2), "b1": (1.0, 1.1, 0.2), "b2": (1.1, 1.2, 0.3), "b3": (1.2, 1.4, 0.3)}


def channels_of(channels, width):
    """Scaled, to a multiple of 8 that is at most a tenth less."""
    scaled = channels * width
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * scaled else rounded


def norm_of(kind, channels):
    """``running``: batch norm with running statistics; ``batch``: with the batch's own, in evaluation too; ``none``."""
    if kind == "none":
        return nn.Identity()
    return nn.BatchNorm2d(channels, track_running_stats=kind == "running")


def conv_norm(c, k, size, norm, stride=1, groups=1):
    return nn.Sequential(nn.Conv2d(c, k, size, stride, size // 2, groups=groups, bias=norm == "none"), norm_of(norm, k))


class SqueezeExcite(nn.Module):
    """Scales each channel by what the mean of all channels says."""

    def __init__(self, channels, squeezed):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x):
        return x * self.up(nn.functional.silu(self.down(x.mean((2, 3), keepdim=True)))).sigmoid()


class Block(nn.Module):
    """Widens, a depthwise convolution, narrows; adds its input where the sizes are the same."""

    def __init__(self, c, k, expansion, size, stride, norm, squeeze_excite):
        super().__init__()
        wide = c * expansion
        parts = [conv_norm(c, wide, 1, norm), nn.SiLU()] if expansion > 1 else []
        parts += [conv_norm(wide, wide, size, norm, stride, groups=wide), nn.SiLU()]
        parts += [SqueezeExcite(wide, max(1, c // 4))] if squeeze_excite else []
        parts += [conv_norm(wide, k, 1, norm)]
        self.parts = nn.Sequential(*parts)
        self.adds = stride == 1 and c == k

    def forward(self, x):
        return x + self.parts(x) if self.adds else self.parts(x)


class EfficientNet(nn.Module):
    """x: N 3 H W; returns N classes."""

    def __init__(self, name="b0", classes=1000, norm="running", squeeze_excite=True, dropout=None):
        super().__init__()
        width, depth, default_dropout = SCALES[name]
        c = channels_of(32, width)
        parts = [conv_norm(3, c, 3, norm, stride=2), nn.SiLU()]
        for expansion, channels, blocks, stride, size in STAGES:
            k = channels_of(channels, width)
            for i in range(math.ceil(blocks * depth)):
                parts.append(Block(c, k, expansion, size, stride if i == 0 else 1, norm, squeeze_excite))
                c = k
        last = channels_of(1280, width)
        parts += [conv_norm(c, last, 1, norm), nn.SiLU()]
        self.features = nn.Sequential(*parts)
        self.dropout = nn.Dropout(default_dropout if dropout is None else dropout)
        self.classifier = nn.Linear(last, classes)

    def forward(self, x):
        return self.classifier(self.dropout(self.features(x).mean((2, 3))))
