"""Models that bench/torch_models.py and bench/torch_ddp.py time, with random weights. ResNet-50, ConvNeXt and MobileNetV3 are torchvision's."""
import pathlib
import sys

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))


class Double(nn.Sequential):
    def __init__(self, c, k):
        super().__init__(nn.Conv2d(c, k, 3, padding=1, bias=False), nn.BatchNorm2d(k), nn.ReLU(inplace=True),
                         nn.Conv2d(k, k, 3, padding=1, bias=False), nn.BatchNorm2d(k), nn.ReLU(inplace=True))


class UNet(nn.Module):
    """Ronneberger and others', padded, with batch norm."""

    def __init__(self, base=64, depth=4):
        super().__init__()
        c = [base * 2 ** i for i in range(depth + 1)]
        self.down = nn.ModuleList([Double(3, c[0])] + [Double(c[i], c[i + 1]) for i in range(depth)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(c[i + 1], c[i], 2, 2) for i in reversed(range(depth))])
        self.merge = nn.ModuleList([Double(2 * c[i], c[i]) for i in reversed(range(depth))])
        self.last = nn.Conv2d(base, 2, 1)

    def forward(self, x):
        kept = []
        for i, down in enumerate(self.down):
            x = down(x if i == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([kept.pop(), up(x)], 1))
        return self.last(x)


def vae_decoder():
    from vae_decoder import Decoder
    return Decoder()


def torchvision_model(name):
    import torchvision
    return getattr(torchvision.models, name)()


def efficientnet():
    from efficientnet import EfficientNet
    return EfficientNet("b2")


MODELS = {"resnet50": (lambda: torchvision_model("resnet50"), 32, 224), "efficientnet_b2": (efficientnet, 32, 260),
          "convnext_tiny": (lambda: torchvision_model("convnext_tiny"), 32, 224), "unet": (UNet, 8, 256),
          "vae_decoder": (vae_decoder, 1, 128), "mobilenet_v3": (lambda: torchvision_model("mobilenet_v3_large"), 32, 224)}
CHANNELS = {"vae_decoder": 4}  # of the input, else 3
FORMATS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}


def exactly():
    """In f32 as it is, and without a search for algorithms that nothing timed would use."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=False)


def made(options):
    """The model in eval mode, in f32, and an input."""
    torch.manual_seed(1)
    make, batch, size = MODELS[options.model]
    size = options.size or size
    model, shape = make().to(options.device), (options.batch or batch, CHANNELS.get(options.model, 3), size, size)
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad(), exactly():
        model.train()(torch.randn(min(8, shape[0]), *shape[1:], device=options.device))
    for norm in norms:
        norm.momentum = 0.1
    return model.eval(), torch.randn(shape, device=options.device)


def in_f16(options):
    """On the GPU: model and input in f16, and a function of the results' error against f32."""
    model, x = made(options)
    with torch.no_grad(), exactly():
        exact = model(x[:4]).double()
    dtype = torch.half if options.device.startswith("cuda") else torch.float32
    model, x = (t.to(dtype).to(memory_format=FORMATS[options.layout]) for t in (model, x))
    return model, x, lambda y: ((y[:4].double() - exact).norm() / exact.norm()).item()
