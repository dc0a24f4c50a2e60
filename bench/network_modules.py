"""Networks as PyTorch's modules, with random weights, for bench/torch_networks.py."""
import torch


class UNet(torch.nn.Module):
    """Two convolutions a level, four levels, doubling by transposed convolutions."""

    def __init__(self, widths=(64, 128, 256, 512), classes=21):
        super().__init__()
        nn = torch.nn
        def twice(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(),
                                 nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
        self.down = nn.ModuleList(twice(a, b) for a, b in zip((3,) + widths, widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * a, a, 2, 2) for a in widths[-2::-1])
        self.join = nn.ModuleList(twice(2 * a, a) for a in widths[-2::-1])
        self.last = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        kept = []
        for level in self.down:
            x = level(x)
            kept.append(x)
            if level is not self.down[-1]:
                x = torch.nn.functional.max_pool2d(x, 2)
        for up, join, other in zip(self.up, self.join, kept[-2::-1]):
            x = join(torch.cat((up(x), other), 1))
        return self.last(x)


class SuperResolution(torch.nn.Module):
    """Real-ESRGAN x4's generator: 23 residual blocks of three dense blocks of five convolutions each."""

    class Dense(torch.nn.Module):
        def __init__(self, width=64, growth=32):
            super().__init__()
            self.convolutions = torch.nn.ModuleList(
                torch.nn.Conv2d(width + i * growth, width if i == 4 else growth, 3, padding=1) for i in range(5))

        def forward(self, x):
            all = [x]
            for convolution in self.convolutions[:-1]:
                all.append(torch.nn.functional.leaky_relu(convolution(torch.cat(all, 1)), 0.2))
            return x + 0.2 * self.convolutions[-1](torch.cat(all, 1))

    def __init__(self, width=64, blocks=23):
        super().__init__()
        nn = torch.nn
        conv = lambda a, b: nn.Conv2d(a, b, 3, padding=1)
        self.first, self.body = conv(3, width), nn.ModuleList(
            nn.Sequential(*(self.Dense(width) for _ in range(3))) for _ in range(blocks))
        self.after, self.up = conv(width, width), nn.ModuleList(conv(width, width) for _ in range(2))
        self.before_last, self.last = conv(width, width), conv(width, 3)

    def forward(self, x):
        functional = torch.nn.functional
        x = y = self.first(x)
        for block in self.body:
            y = y + 0.2 * block(y)
        x = x + self.after(y)
        for up in self.up:
            x = functional.leaky_relu(up(functional.interpolate(x, scale_factor=2.0, mode="nearest")), 0.2)
        return self.last(functional.leaky_relu(self.before_last(x), 0.2))


class Decoder(torch.nn.Module):
    """The decoder of Stable Diffusion's autoencoders: four levels of residual blocks with group normalization, attention
    at the lowest."""

    class Block(torch.nn.Module):
        def __init__(self, a, b):
            super().__init__()
            nn = torch.nn
            self.way = nn.Sequential(nn.GroupNorm(32, a, 1e-6), nn.SiLU(), nn.Conv2d(a, b, 3, padding=1),
                                     nn.GroupNorm(32, b, 1e-6), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1))
            self.short = nn.Identity() if a == b else nn.Conv2d(a, b, 1)

        def forward(self, x):
            return self.short(x) + self.way(x)

    class Attention(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm = torch.nn.GroupNorm(32, width, 1e-6)
            self.query, self.key, self.value, self.out = (torch.nn.Linear(width, width) for _ in range(4))

        def forward(self, x):
            tokens = self.norm(x).flatten(2).transpose(1, 2)
            y = torch.nn.functional.scaled_dot_product_attention(
                *(part(tokens).unsqueeze(1) for part in (self.query, self.key, self.value))).squeeze(1)
            return x + self.out(y).transpose(1, 2).reshape(x.shape)

    def __init__(self, widths=(512, 512, 256, 128), latent=4):
        super().__init__()
        nn = torch.nn
        layers = [nn.Conv2d(latent, widths[0], 3, padding=1), self.Block(widths[0], widths[0]),
                  self.Attention(widths[0]), self.Block(widths[0], widths[0])]
        for i, (a, b) in enumerate(zip((widths[0],) + widths, widths)):
            layers += [self.Block(a, b), self.Block(b, b), self.Block(b, b)]
            if i < 3:
                layers += [nn.Upsample(scale_factor=2.0, mode="nearest"), nn.Conv2d(b, b, 3, padding=1)]
        layers += [nn.GroupNorm(32, widths[-1], 1e-6), nn.SiLU(), nn.Conv2d(widths[-1], 3, 3, padding=1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


class Attention(torch.nn.Module):
    """Heads of `depth` over tokens: of the tokens themselves, or of a context's."""

    def __init__(self, width, context, heads):
        super().__init__()
        linear = lambda a: torch.nn.Linear(a, width, bias=False)
        self.heads, self.query, self.key, self.value = heads, linear(width), linear(context), linear(context)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x, context=None):
        context = x if context is None else context
        parts = (part(y).unflatten(2, (self.heads, -1)).transpose(1, 2)
                 for part, y in ((self.query, x), (self.key, context), (self.value, context)))
        return self.out(torch.nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))


class Diffusion(torch.nn.Module):
    """Stable Diffusion 1.5's U-Net: of a latent image, a time's embedding and a context of 77 tokens."""

    class Block(torch.nn.Module):
        def __init__(self, a, b, time):
            super().__init__()
            nn = torch.nn
            self.before = nn.Sequential(nn.GroupNorm(32, a), nn.SiLU(), nn.Conv2d(a, b, 3, padding=1))
            self.time = nn.Sequential(nn.SiLU(), nn.Linear(time, b))
            self.after = nn.Sequential(nn.GroupNorm(32, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1))
            self.short = nn.Identity() if a == b else nn.Conv2d(a, b, 1)

        def forward(self, x, time, context):
            return self.short(x) + self.after(self.before(x) + self.time(time)[:, :, None, None])

    class Transformer(torch.nn.Module):
        def __init__(self, width, context, heads):
            super().__init__()
            nn = torch.nn
            self.norm, self.first, self.last = nn.GroupNorm(32, width, 1e-6), nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
            self.own, self.cross = Attention(width, width, heads), Attention(width, context, heads)
            self.wide, self.narrow = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

        def forward(self, x, time, context):
            tokens = self.first(self.norm(x)).permute(0, 2, 3, 1).flatten(1, 2)
            tokens = tokens + self.own(self.norms[0](tokens))
            tokens = tokens + self.cross(self.norms[1](tokens), context)
            value, gate = self.wide(self.norms[2](tokens)).chunk(2, 2)
            tokens = tokens + self.narrow(value * torch.nn.functional.gelu(gate))
            return x + self.last(tokens.unflatten(1, x.shape[2:]).permute(0, 3, 1, 2))

    class Sampling(torch.nn.Module):
        def __init__(self, width, stride):
            super().__init__()
            self.stride, self.conv = stride, torch.nn.Conv2d(width, width, 3, stride, 1)

        def forward(self, x, time, context):
            return self.conv(x if self.stride == 2 else torch.nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"))

    def __init__(self, widths=(320, 640, 1280, 1280), context=768, heads=8):
        super().__init__()
        nn, time = torch.nn, 4 * widths[0]
        block = lambda a, b: self.Block(a, b, time)
        transformer = lambda width: self.Transformer(width, context, heads)
        self.time = nn.Sequential(nn.Linear(widths[0], time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(4, widths[0], 3, padding=1)
        self.down, self.up, kept, width = nn.ModuleList(), nn.ModuleList(), [widths[0]], widths[0]
        for i, b in enumerate(widths):  # a stage's result is kept for the way up
            for _ in range(2):
                self.down.append(nn.ModuleList([block(width, b)] + ([transformer(b)] if i < 3 else [])))
                kept.append(width := b)
            if i < 3:
                self.down.append(nn.ModuleList([self.Sampling(b, 2)]))
                kept.append(b)
        self.middle = nn.ModuleList([block(width, width), transformer(width), block(width, width)])
        for i, b in reversed(list(enumerate(widths))):
            for j in range(3):
                more = ([transformer(b)] if i < 3 else []) + ([self.Sampling(b, 1)] if i > 0 and j == 2 else [])
                self.up.append(nn.ModuleList([block(width + kept.pop(), b)] + more))
                width = b
        self.last = nn.Sequential(nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1))

    def forward(self, x, time, context):
        def through(stage, x):
            for part in stage:
                x = part(x, time, context)
            return x
        time = self.time(time)
        x = self.first(x)
        kept = [x]
        for stage in self.down:
            kept.append(x := through(stage, x))
        x = through(self.middle, x)
        for stage in self.up:
            x = through(stage, torch.cat((x, kept.pop()), 1))
        return self.last(x)
