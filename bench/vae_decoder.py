"""The decoder of the variational autoencoder of latent diffusion models (Rombach and others, 2022), in the sizes of Stable Diffusion
XL's, with random weights: latents N 4 H W to images N 3 8H 8W."""
import torch
import torch.nn.functional as F
from torch import nn

CHANNELS = (512, 512, 256, 128)  # of each resolution, from the lowest
LAYERS = 3


def norm(channels):
    return nn.GroupNorm(32, channels, eps=1e-6)


class Residual(nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.norm1, self.conv1 = norm(c), nn.Conv2d(c, k, 3, padding=1)
        self.norm2, self.conv2 = norm(k), nn.Conv2d(k, k, 3, padding=1)
        self.beside = nn.Conv2d(c, k, 1) if c != k else nn.Identity()

    def forward(self, x):
        y = self.conv1(F.silu(self.norm1(x)))
        return self.beside(x) + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    """Of one head, over all pixels."""

    def __init__(self, c):
        super().__init__()
        self.norm, self.to_qkv, self.out = norm(c), nn.Linear(c, 3 * c), nn.Linear(c, c)

    def forward(self, x):
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = self.to_qkv(pixels).unsqueeze(1).chunk(3, dim=-1)
        y = self.out(F.scaled_dot_product_attention(q, k, v).squeeze(1))
        return x + y.transpose(1, 2).reshape(x.shape)


class Upsample(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Decoder(nn.Module):
    def __init__(self, channels=CHANNELS, layers=LAYERS):
        super().__init__()
        c = channels[0]
        parts = [nn.Conv2d(4, 4, 1), nn.Conv2d(4, c, 3, padding=1), Residual(c, c), Attention(c), Residual(c, c)]
        for i, k in enumerate(channels):
            for _ in range(layers):
                parts.append(Residual(c, k))
                c = k
            if i + 1 < len(channels):
                parts.append(Upsample(c))
        self.parts = nn.Sequential(*parts, norm(c), nn.SiLU(), nn.Conv2d(c, 3, 3, padding=1))

    def forward(self, x):
        return self.parts(x)
