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


def of_transformers() -> dict[str, Callable[[], tuple[Any, Any, dict[int, str]]]]:
    """Name → (module, an input, the names of its axes)."""
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
        return lambda: (Hidden(getattr(T, f"{kind}Model")(config)), torch.randint(5, 50, (2, 7)), {0: "b", 1: "s"})

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

    class Fn(L.Layer):
        def __init__(self, fn: Callable[[Any], Any]) -> None:
            super().__init__()
            self.fn = fn

        def call(self, x: Any) -> Any:
            return self.fn(x)

    def waves(x: Any) -> Any:
        n = tf.shape(x)[1]
        angle = tf.cast(tf.range(n), tf.float32)[:, None] * tf.exp(-tf.range(0, 8, 2, dtype=tf.float32))
        return x + tf.reshape(tf.stack([tf.sin(angle), tf.cos(angle)], -1), (1, n, 8))

    def padded(x: Any) -> Any:
        down, right = (tf.math.floormod(-tf.shape(x)[k], 8) for k in (1, 2))
        return tf.pad(x, [[0, 0], [0, down], [0, right], [0, 0]])

    def middle(x: Any) -> Any:
        quarter = [tf.shape(x)[k] // 4 for k in (1, 2)]
        return x[:, quarter[0] : tf.shape(x)[1] - quarter[0], quarter[1] : -quarter[1]]

    image, tokens = (None, None, 3), (None, 8)
    return {
        "keras convolutions": of(image, lambda x: L.GlobalAveragePooling2D()(L.Conv2D(8, 3, 2, "same")(x))),
        "keras transposed": of(image, L.Conv2DTranspose(4, 3, 2, "same")),
        "keras padded": of(image, Fn(padded)),
        "keras middle": of(image, Fn(middle)),
        "keras doubled": of(image, Fn(lambda x: tf.image.resize(x, tf.shape(x)[1:3] * 2))),
        "keras lstm": of((None, 6), L.LSTM(5, return_sequences=True)),
        "keras gru": of((None, 6), lambda x: L.Bidirectional(L.GRU(5))(x)),
        "keras causal attention": of(tokens, lambda x: L.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)),
        "keras waves": of(tokens, Fn(waves)),
        "keras ramp": of(tokens, Fn(lambda x: x * tf.linspace(0.0, 1.0, tf.shape(x)[1])[None, :, None])),
        "keras causal convolution": of(tokens, L.Conv1D(6, 3, padding="causal", dilation_rate=2)),
    }


def files(wanted: list[str], folder: Path) -> Iterator[tuple[str, Path]]:
    """(name, file) of what the exporters write."""
    from torch_architectures import of_torch

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
