"""Small architectures with named sizes, as PyTorch's two exporters, transformers and TensorFlow write them.

Each is exported by jaxops for every size and runs at two; onnxruntime says what comes out. Prints a table, and ends
with 1 where something is wrong. It needs torch, onnxscript, transformers, tensorflow and tf2onnx, or those of the names
that are asked for: python tests/models/free_sizes.py [NAME …]
"""

import itertools
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnxruntime

import jaxops.onnx

# The sizes at which each runs, by the names that are given here, and by position for those that an exporter makes up.
SIZES = ({"b": 2, "s": 7, "t": 200, "h": 16, "w": 24}, {"b": 3, "s": 12, "t": 73, "h": 32, "w": 16})
SEQUENCE, IMAGE, SOUND = {0: "b", 1: "s"}, {0: "b", 2: "h", 3: "w"}, {0: "b", 1: "t"}


def of_torch() -> dict[str, Callable[[], tuple[Any, Any, dict[int, str]]]]:
    """Name → (module, an input, the names of its axes)."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Made(nn.Module):
        def __init__(self, fn: Callable[..., Any], *modules: Any) -> None:
            super().__init__()
            self.fn, self.parts = fn, nn.ModuleList(modules)

        def forward(self, x: Any) -> Any:
            return self.fn(self.parts, x)

    def heads(m: Any, x: Any) -> Any:
        parts = (p.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2) for p in m[0](x).chunk(3, -1))
        q, k, v = parts
        masked = (q @ k.transpose(2, 3)).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -9.0)
        return (masked.softmax(-1) @ v).transpose(1, 2).reshape(x.shape[0], x.shape[1], 8)

    def windows(m: Any, x: Any) -> Any:
        x = x.permute(0, 2, 3, 1)
        x = F.pad(x, (0, 0, 0, (4 - x.shape[2] % 4) % 4, 0, (4 - x.shape[1] % 4) % 4))
        b, h, w, c = x.shape
        return m[0](x.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c))

    image, tokens, sound = torch.randn(2, 3, 16, 24), torch.randn(2, 7, 8), torch.randn(2, 200)
    up, table = nn.Upsample(scale_factor=2.0), torch.randn(1, 40, 8)
    conv = lambda *a, **k: nn.Conv2d(*a, **k)  # noqa: E731
    rows: dict[str, tuple[Any, Any, dict[int, str]]] = {
        "residual": (
            Made(lambda m, x: (m[0](x).relu() + m[1](x)).mean((2, 3)), conv(3, 4, 3, 2, 1), conv(3, 4, 1, 2)),
            image,
            IMAGE,
        ),
        "unet": (
            Made(
                lambda m, x: torch.cat([up(m[1](F.max_pool2d(m[0](x), 2))), m[0](x)], 1),
                conv(3, 4, 3, 1, 1),
                conv(4, 4, 3, 1, 1),
            ),
            image,
            IMAGE,
        ),
        "to the size of another": (
            Made(
                lambda m, x: F.interpolate(m[0](x), size=x.shape[2:], mode="bilinear") + x[:, :1], conv(3, 4, 3, 2, 1)
            ),
            image,
            IMAGE,
        ),
        "pixel shuffle": (Made(lambda m, x: F.pixel_shuffle(m[0](x), 2), conv(3, 12, 3, 1, 1)), image, IMAGE),
        "crops": (Made(lambda m, x: F.pad(m[0](x), (-1, -2, -1, 1)), conv(3, 4, 3)), image, IMAGE),
        "windows": (Made(windows, nn.Linear(3, 6)), image, IMAGE),
        "pooling that rounds up": (
            Made(lambda m, x: F.avg_pool2d(x, 3, 2, ceil_mode=True, count_include_pad=False)),
            image,
            IMAGE,
        ),
        "instance normalization": (Made(lambda m, x: m[1](m[0](x)), conv(3, 4, 3), nn.InstanceNorm2d(4)), image, IMAGE),
        "lstm": (Made(lambda m, x: m[0](x)[0], nn.LSTM(8, 5, batch_first=True, bidirectional=True)), tokens, SEQUENCE),
        "gru": (Made(lambda m, x: m[0](x)[1], nn.GRU(8, 5, 2, batch_first=True)), tokens, SEQUENCE),
        "causal attention": (Made(heads, nn.Linear(8, 24)), tokens, SEQUENCE),
        "positions": (Made(lambda m, x: m[0](x + table[:, : x.size(1)]), nn.Linear(8, 8)), tokens, SEQUENCE),
        "squeeze": (Made(lambda m, x: m[0](x).squeeze(), nn.Linear(8, 1)), tokens, SEQUENCE),
        "flip and stride": (Made(lambda m, x: torch.cat([x.flip(1), x], 1)[:, ::2]), tokens, SEQUENCE),
        "spectrum": (
            Made(lambda m, x: m[0](F.pad(x[:, None], (4, 4), mode="reflect")) ** 2, nn.Conv1d(1, 10, 8, 4)),
            sound,
            SOUND,
        ),
        "convolutions of sound": (
            Made(lambda m, x: m[1](m[0](x[:, None])), nn.Conv1d(1, 4, 10, 5), nn.Conv1d(4, 4, 3, 2)),
            sound,
            SOUND,
        ),
        "transposed convolution": (
            Made(lambda m, x: m[0](x[:, None]), nn.ConvTranspose1d(1, 3, 8, 4, 2)),
            sound,
            SOUND,
        ),
    }
    return {name: lambda row=row: row for name, row in rows.items()}


def of_transformers() -> dict[str, Callable[[], tuple[Any, Any, dict[int, str]]]]:
    """Likewise."""
    import torch
    import transformers as T

    small = {
        **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32},
        "vocab_size": 60,
    }

    class Hidden(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model.eval()

        def forward(self, x: Any) -> Any:
            return self.model(x, return_dict=False)[0]

    def text(kind: str, **more: Any) -> Callable[[], tuple[Any, Any, dict[int, str]]]:
        config = getattr(T, f"{kind}Config")(**small, **more)
        return lambda: (Hidden(getattr(T, f"{kind}Model")(config)), torch.randint(5, 50, (2, 7)), SEQUENCE)

    return {"bert": text("Bert"), "electra": text("Electra"), "albert": text("Albert", embedding_size=8)}


def of_tensorflow() -> dict[str, Callable[[], Any]]:
    """Name → a model of Keras."""
    import tensorflow as tf

    K, L = tf.keras, tf.keras.layers

    def of(shape: tuple[int | None, ...], fn: Callable[[Any], Any]) -> Callable[[], Any]:
        def make() -> Any:
            x = K.Input(shape)
            return K.Model(x, fn(x))

        return make

    return {
        "keras convolutions": of((None, None, 3), lambda x: L.GlobalAveragePooling2D()(L.Conv2D(8, 3, 2, "same")(x))),
        "keras lstm": of((None, 6), L.LSTM(5, return_sequences=True)),
        "keras causal attention": of((None, 8), lambda x: L.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)),
    }


def files(wanted: list[str], folder: Path) -> Iterator[tuple[str, Path]]:
    """(name, file) of what the exporters write."""
    others = {name for name in wanted if not name.startswith("keras")}
    rows = of_torch() if others or not wanted else {}
    if not wanted or others - rows.keys():
        rows |= of_transformers()
    asked = [row for row in rows.items() if not wanted or row[0] in wanted]
    for (name, make), (dynamo, opset) in itertools.product(asked, ((False, 11), (False, 17), (True, 18))):
        path = folder / f"{name} {'dynamo' if dynamo else 'script'} {opset}.onnx"
        try:
            written_by_torch(path, make, dynamo, opset)
        except Exception as error:  # an exporter's own limit is no fault of what reads its files
            print(f"{path.stem:45} is not written: {type(error).__name__}")
            continue
        yield path.stem, path
    if not wanted or any(name.startswith("keras") for name in wanted):
        yield from files_of_tensorflow(wanted, folder)


def written_by_torch(path: Path, make: Callable[[], Any], dynamo: bool, opset: int) -> None:
    import torch

    module, example, axes = make()
    how: dict[str, Any] = {"dynamic_axes": {"x": axes}}
    if dynamo:
        how = {"dynamic_shapes": (dict.fromkeys(axes, torch.export.Dim.DYNAMIC),), "verbose": False}
    how |= {"input_names": ["x"], "opset_version": opset, "dynamo": dynamo}
    torch.onnx.export(module.eval(), (example,), str(path), **how)


def files_of_tensorflow(wanted: list[str], folder: Path) -> Iterator[tuple[str, Path]]:
    import tensorflow as tf
    import tf2onnx

    for (name, make), opset in itertools.product(of_tensorflow().items(), (13, 18)):
        if wanted and name not in wanted:
            continue
        model, path = make(), folder / f"{name} {opset}.onnx"
        spec = [tf.TensorSpec([None, *model.inputs[0].shape[1:]], tf.float32, name="x")]
        call = tf.function(lambda x, model=model: model(x, training=False), input_signature=spec)
        tf2onnx.convert.from_function(call, input_signature=spec, opset=opset, output_path=str(path))
        yield path.stem, path


def problem(path: Path) -> str:
    """What is wrong with the program of a file; empty if it gives what onnxruntime gives at both sizes."""
    model = jaxops.onnx.load(path)
    program, runtime = model.export(), onnxruntime.InferenceSession(path)
    [value] = model.inputs
    free = [axis for axis, d in enumerate(value.shape) if not isinstance(d, int)]
    sound = len(value.shape) == 2 and value.dtype.kind == "f"
    names = ("b", "h", "w") if len(free) == 3 else ("b", "t") if sound else ("b", "s")
    for sizes in SIZES:
        shape = list(value.shape)
        for axis, name in zip(free, names, strict=True):
            shape[axis] = sizes[name]
        rng = np.random.default_rng(0)
        x = rng.standard_normal(shape) if value.dtype.kind == "f" else rng.integers(5, 50, shape)
        x = x.astype(value.dtype)
        with jax.enable_x64(any(aval.dtype.itemsize == 8 for aval in program.in_avals)):
            found = jax.tree.leaves(program.call(model.params, x))
        for got, want in zip(found, runtime.run(None, {value.name: x}), strict=True):
            if got.shape != want.shape or not np.allclose(got, want, rtol=1e-3, atol=1e-4):
                return f"differs at {shape}"
    return ""


def main(wanted: list[str]) -> int:
    wrong = count = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, path in files(wanted, Path(folder)):
            try:
                found = problem(path)
            except (ValueError, TypeError, NotImplementedError) as error:
                found = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            print(f"{name:45} {found or 'right'}", flush=True)
            wrong, count = wrong + bool(found), count + 1
    print(f"{count - wrong} of {count} are right")
    return int(wrong > 0 or not count)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))
