"""Small architectures of PyTorch, for free_sizes.py: images, sequences, signals."""

from collections.abc import Callable
from typing import Any

SEQUENCE, IMAGE, SOUND = {0: "b", 1: "s"}, {0: "b", 2: "h", 3: "w"}, {0: "b", 1: "t"}


def of_torch() -> dict[str, Callable[[], tuple[Any, Any, dict[int, str]]]]:
    """Name → (module, an input, the names of its axes)."""
    import torch
    from torch import nn

    class Made(nn.Module):
        def __init__(self, fn: Callable[..., Any], *modules: Any) -> None:
            super().__init__()
            self.fn, self.parts = fn, nn.ModuleList(modules)

        def forward(self, x: Any) -> Any:
            return self.fn(self.parts, x)

    image, tokens, sound = torch.randn(2, 3, 16, 24), torch.randn(2, 7, 8), torch.randn(2, 200)
    rows: dict[str, tuple[Any, Any, dict[int, str]]] = {}

    def add(name: str, fn: Callable[..., Any], *parts: Any, x: Any = image, axes: dict[int, str] = IMAGE) -> None:
        rows[name] = (Made(fn, *parts), x, axes)

    def of_tokens(name: str, fn: Callable[..., Any], *parts: Any, x: Any = tokens) -> None:
        add(name, fn, *parts, x=x, axes=SEQUENCE)

    def of_sound(name: str, fn: Callable[..., Any], *parts: Any) -> None:
        add(name, fn, *parts, x=sound, axes=SOUND)

    conv, line, dense = nn.Conv2d, nn.Conv1d, nn.Linear
    images(add, conv, dense)
    sequences(of_tokens, dense)
    signals(of_sound, of_tokens, line, dense)
    return {name: lambda row=row: row for name, row in rows.items()}


def images(add: Callable[..., None], conv: Any, dense: Any) -> None:
    import torch
    from torch import nn
    from torch.nn import functional as F

    def windows(m: Any, x: Any) -> Any:
        x = x.permute(0, 2, 3, 1)
        x = F.pad(x, (0, 0, 0, (4 - x.shape[2] % 4) % 4, 0, (4 - x.shape[1] % 4) % 4))
        x = torch.roll(x, (-2, -2), (1, 2))
        b, h, w, c = x.shape
        return m[0](x.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c))

    def boxes(m: Any, x: Any) -> Any:
        y = m[0](x)
        h, w = y.shape[2:]
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((columns, rows), -1).view(1, h * w, 2).float() + 0.5
        y = y.flatten(2).transpose(1, 2)
        middle, half = (y[..., :2].sigmoid() + grid) * 4, y[..., 2:4].exp() * 2
        return torch.cat([middle - half, middle + half, y[..., 4:].sigmoid()], -1)

    def peaks(m: Any, x: Any) -> Any:
        heat = m[0](x).sigmoid()
        return torch.topk(((F.max_pool2d(heat, 3, 1, 1) == heat).float() * heat).flatten(1), 5)

    def by_sizes(m: Any, x: Any) -> Any:
        a = m[0](x)
        b = m[1](a)
        return m[2](a) + F.interpolate(m[2](b), size=a.shape[-2:], mode="nearest")

    def padded(m: Any, x: Any) -> Any:
        y = m[1](F.max_pool2d(m[0](x), 2))
        h, w = x.shape[2] - y.shape[2], x.shape[3] - y.shape[3]
        return torch.cat([x, F.pad(y, [w // 2, w - w // 2, h // 2, h - h // 2])], 1)

    def positions(m: Any, x: Any) -> Any:
        y = m[0](x)
        table = F.interpolate(grid, size=y.shape[2:], mode="bicubic")
        return (y + table).flatten(2).transpose(1, 2)

    def waves(m: Any, x: Any) -> Any:
        y = m[0](x)
        down = torch.ones(y.shape[0], *y.shape[2:]).cumsum(1)
        angle = (down / (down[:, -1:, :] + 1e-6))[..., None] / torch.tensor([1.0, 10.0])
        return y + torch.stack((angle[..., :1].sin(), angle[..., 1:].cos()), 4).flatten(3).permute(0, 3, 1, 2)

    def middles(m: Any, x: Any) -> Any:
        p = m[0](x).flatten(2).softmax(-1).view(x.shape[0], 2, x.shape[2], x.shape[3])
        return (p.sum(2) * torch.linspace(0, 1, x.shape[3])).sum(-1)

    up, grid = nn.Upsample(scale_factor=2.0), torch.randn(1, 4, 4, 4)
    add("residual", lambda m, x: (m[0](x).relu() + m[1](x)).mean((2, 3)), conv(3, 4, 3, 2, 1), conv(3, 4, 1, 2))
    add(
        "unet",
        lambda m, x: torch.cat([up(m[1](F.max_pool2d(m[0](x), 2))), m[0](x)], 1),
        *(conv(3, 4, 3, 1, 1), conv(4, 4, 3, 1, 1)),
    )
    add("unet of odd sizes", padded, conv(3, 4, 3), nn.ConvTranspose2d(4, 4, 2, 2))
    add(
        "to the size of another",
        lambda m, x: F.interpolate(m[0](x), size=x.shape[2:], mode="bilinear") + x[:, :1],
        conv(3, 4, 3, 2, 1),
    )
    add("pyramid", by_sizes, conv(3, 4, 3, 2, 1), conv(4, 4, 3, 2, 1), conv(4, 4, 1))
    add(
        "pooled context",
        lambda m, x: m[0](x) + F.interpolate(m[1](F.adaptive_avg_pool2d(x, 1)), size=x.shape[2:], mode="bilinear"),
        *(conv(3, 4, 3, 1, 2, 2), conv(3, 4, 1)),
    )
    add("boxes of a grid", boxes, conv(3, 6, 3, 4, 1))
    add("scores of anchors", lambda m, x: m[0](x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 3), conv(3, 12, 3, 4, 1))
    add("peaks of a heat map", peaks, conv(3, 2, 3, 2, 1))
    add("middles of heat maps", middles, conv(3, 2, 3, 1, 1))
    add("pixel shuffle", lambda m, x: F.pixel_shuffle(m[0](x), 2), conv(3, 12, 3, 1, 1))
    add("pixel unshuffle", lambda m, x: m[0](F.pixel_unshuffle(x, 2)), conv(12, 4, 1))
    add("every second pixel", lambda m, x: m[0](torch.cat([x[..., ::2, ::2], x[..., 1::2, 1::2]], 1)), conv(6, 4, 1))
    add("columns of an image", lambda m, x: F.unfold(x, 3, padding=1))
    add("crops", lambda m, x: F.pad(m[0](x), (-1, -2, -1, 1)), conv(3, 4, 3))
    add("shifted windows", windows, dense(3, 6))
    add(
        "attention to channels and places",
        lambda m, x: x * m[0](x.mean((2, 3), keepdim=True)).sigmoid() * m[1](x.amax(1, keepdim=True)).sigmoid(),
        *(conv(3, 3, 1), conv(1, 1, 7, 1, 3)),
    )
    add("positions of another size", positions, conv(3, 4, 4, 4))
    add("waves along rows", waves, conv(3, 2, 4, 4))
    add(
        "groups that are shuffled",
        lambda m, x: m[0](x).unflatten(1, (2, 2)).transpose(1, 2).flatten(1, 2),
        conv(3, 4, 1),
    )
    add("pooling that rounds up", lambda m, x: F.avg_pool2d(x, 3, 2, ceil_mode=True, count_include_pad=False))
    add("instance normalization", lambda m, x: m[1](m[0](x)), conv(3, 4, 3), nn.InstanceNorm2d(4))
    add(
        "several scales",
        lambda m, x: F.interpolate(m[0](F.interpolate(x, scale_factor=0.5, mode="bilinear")), scale_factor=2.0),
        conv(3, 4, 3, 1, 1),
    )


def sequences(add: Callable[..., None], dense: Any) -> None:
    import torch
    from torch import nn
    from torch.nn import functional as F

    def in_heads(x: Any) -> Any:
        return (p.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2) for p in x.chunk(3, -1))

    def merged(x: Any) -> Any:
        return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], 8)

    def heads(m: Any, x: Any) -> Any:
        q, k, v = in_heads(m[0](x))
        masked = (q @ k.transpose(2, 3)).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -9.0)
        return merged(masked.softmax(-1) @ v)

    def rotated(m: Any, x: Any) -> Any:
        q, k, v = in_heads(m[0](x))
        angle = torch.arange(x.shape[1])[:, None] / torch.tensor([1.0, 10.0]).repeat(2)
        turn = lambda t: t * angle.cos() + torch.cat([-t[..., 2:], t[..., :2]], -1) * angle.sin()  # noqa: E731
        k, v = (t[:, :1, None].expand(-1, 1, 2, -1, 4).flatten(1, 2) for t in (turn(k), v))  # one for two heads
        return merged((turn(q) @ k.transpose(2, 3)).softmax(-1) @ v)

    def buckets(m: Any, x: Any) -> Any:
        steps = torch.arange(x.shape[1])
        far = (steps[None] - steps[:, None]).float().clamp(-3, 3).long() + 3
        return (x @ x.transpose(1, 2) + m[0](far)[..., 0]).softmax(-1) @ x

    def shifted(m: Any, x: Any) -> Any:
        b, n, _ = x.shape
        scores = F.pad(x @ table[0, 40 - n : 39 + n].T, (1, 0)).view(b, -1, n)[:, 1:].reshape(b, n, -1)[..., :n]
        return scores.softmax(-1) @ x

    def local(m: Any, x: Any) -> Any:
        n = x.shape[1]
        y = F.pad(x, (0, 0, 0, (4 - n % 4) % 4)).view(x.shape[0], -1, 4, 8)
        both = torch.cat([F.pad(y, (0, 0, 0, 0, 1, 0))[:, :-1], y], 2)
        return ((y @ both.transpose(2, 3)).softmax(-1) @ both).reshape(x.shape[0], -1, 8)[:, :n]

    def decayed(m: Any, x: Any) -> Any:
        steps = torch.arange(x.shape[1])
        past = steps[:, None] - steps
        return (x @ x.transpose(1, 2) * torch.where(past >= 0, 0.9 ** past.float(), 0.0)) @ x

    def scanned(m: Any, x: Any) -> Any:
        rate = F.softplus(m[0](x))
        fall = (-rate).cumsum(1)
        return (rate * x * (-fall).exp()).cumsum(1) * fall.exp()

    def experts(m: Any, x: Any) -> Any:
        weight, chosen = m[0](x).softmax(-1).topk(2)
        return sum(((chosen == k) * weight).sum(-1, keepdim=True) * m[k + 1](x) for k in range(3))

    def zeros(m: Any, x: Any) -> Any:
        state = torch.zeros(2, x.shape[0], 5)
        return m[0](x, (state, state))[0][:, -1]

    table, words = torch.randn(1, 79, 8), torch.randint(0, 9, (2, 7))
    add("lstm", lambda m, x: m[0](x)[0], nn.LSTM(8, 5, batch_first=True, bidirectional=True))
    add("lstm of zeros", zeros, nn.LSTM(8, 5, 2, batch_first=True))
    add("gru", lambda m, x: m[0](x)[1], nn.GRU(8, 5, 2, batch_first=True))
    add("causal attention", heads, dense(8, 24))
    add("rotary positions", rotated, dense(8, 24))
    add("buckets of distances", buckets, nn.Embedding(7, 1))
    add("relative shift", shifted)
    add("local attention", local)
    add("decay", decayed)
    add("selective scan", scanned, dense(8, 8))
    add("experts", experts, dense(8, 3), *(dense(8, 4) for _ in range(3)))
    add("positions", lambda m, x: m[0](x + table[:, : x.size(1)]), dense(8, 8))
    add("squeeze", lambda m, x: m[0](x).squeeze(), dense(8, 1))
    add("flip and stride", lambda m, x: torch.cat([x.flip(1), x], 1)[:, ::2])
    add(
        "a token before the others",
        lambda m, x: torch.cat([m[0].weight[None].expand(x.shape[0], -1, -1), x], 1),
        dense(8, 1),
    )
    add("sorted by a score", lambda m, x: torch.gather(x, 1, m[0](x).argsort(1).expand(-1, -1, 8)), dense(8, 1))
    add("fourier", lambda m, x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real)
    add(
        "autocorrelation",
        lambda m, x: torch.fft.irfft(torch.fft.rfft(x, dim=1).abs() ** 2 + 0j, n=x.shape[1], dim=1),
    )
    add("patches", lambda m, x: m[0](F.pad(x.transpose(1, 2), (0, 4), mode="replicate").unfold(-1, 8, 2)), dense(8, 3))
    add("one hot", lambda m, x: F.one_hot(x, 60).float() @ m[0].weight.T, dense(60, 4), x=words)
    add(
        "words in a window",
        lambda m, x: m[1](m[0](x).transpose(1, 2)).amax(2),
        nn.Embedding(60, 4),
        nn.Conv1d(4, 3, 3),
        x=words,
    )


def signals(add: Callable[..., None], of_tokens: Callable[..., None], line: Any, dense: Any) -> None:
    import torch
    from torch import nn
    from torch.nn import functional as F

    def conformer(m: Any, x: Any) -> Any:
        y = m[0](x.transpose(1, 2))
        a, b = y.chunk(2, 1)
        return x + m[2](m[1](a * b.sigmoid()).relu()).transpose(1, 2)

    def features(m: Any, x: Any) -> Any:
        y = m[1](m[0](((x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True))[:, None]))
        return y + m[3](m[2](y))[..., :-1]

    def trimmed(m: Any, x: Any) -> Any:
        y = m[1](m[0](F.pad(x[:, None], (0, (8 - x.shape[1] % 8) % 8))))
        return y[..., (y.shape[-1] - x.shape[1]) // 2 :][..., : x.shape[1]]

    add(
        "spectrum",
        lambda m, x: m[0](F.pad(x[:, None], (4, 4), mode="reflect")) ** 2,
        line(1, 10, 8, 4),
    )
    add("convolutions of sound", lambda m, x: m[1](m[0](x[:, None])), line(1, 4, 10, 5), line(4, 4, 3, 2))
    add("transposed convolution", lambda m, x: m[0](x[:, None]), nn.ConvTranspose1d(1, 3, 8, 4, 2))
    add("features of sound", features, line(1, 4, 10, 5), nn.GroupNorm(4, 4), line(4, 4, 8, padding=4), nn.GELU())
    add("as long as before", trimmed, line(1, 4, 8, 4, 2), nn.ConvTranspose1d(4, 1, 8, 4, 2))
    add("frames", lambda m, x: m[0](x.unfold(1, 16, 8)), dense(16, 4))
    add("spectrum of all of it", lambda m, x: torch.fft.rfft(x, dim=-1).abs())
    add("a causal convolution", lambda m, x: m[0](F.pad(x[:, None], (6, 0))), line(1, 4, 3, dilation=3))
    of_tokens("statistics", lambda m, x: torch.cat([x.mean(1), x.std(1), x.amax(1)], 1))
    of_tokens("conformer", conformer, line(8, 16, 1), line(8, 8, 3, padding=1, groups=8), line(8, 8, 1))
