"""Trains the little transformer of the guides to fill in missing letters: `python train_letters.py`.

It is a module of PyTorch, exported with random weights, trained through jaxops, and saved as `letters.onnx`: from
`tokens` (batch, length) to `logits` (batch, length, letters). The letters are in the file's metadata. `rights.txt`
has the text: 22 passages of the Universal Declaration of Human Rights, some of them shortened, in English, German,
French and Spanish (and Italian, for the guide `fine_tune`). The last six of each are for testing. Needs torch,
onnxscript and optax.
"""

import math
import tempfile
import unicodedata
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import torch
from torch import nn

import jaxops.onnx

HERE = Path(__file__).parent
LETTERS = " abcdefghijklmnopqrstuvwxyz_"  # the last stands for a letter that is hidden
WIDTH, HEADS, LAYERS, WINDOW, LONGEST = 48, 4, 2, 48, 96
STEPS = 4000


class Attention(nn.Module):
    """Each letter looks at all others."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS), dim=-1)
        return self.output((weights @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Attention and two dense layers, each behind a normalization and beside a residual."""

    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.attention_norm, self.dense_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(nn.functional.gelu(self.up(self.dense_norm(x))))


class Letters(nn.Module):
    """The transformer."""

    def __init__(self):
        super().__init__()
        self.embedding, self.position = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.letters = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS), bias=False)
        nn.init.normal_(self.embedding.weight, std=0.1)
        nn.init.normal_(self.position.weight, std=0.1)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.letters(self.norm(x))


def encoded(text: str) -> list[int]:
    """The letters of a text without accents and punctuation."""
    plain = unicodedata.normalize("NFKD", text.casefold()).replace("'", " ")
    return [LETTERS.index(letter) for letter in plain if letter in LETTERS[:-1]]


def export(path: Path) -> None:
    """Writes the model with random weights."""
    torch.manual_seed(0)
    sizes = {"tokens": {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", min=2, max=LONGEST)}}
    program = torch.onnx.export(
        Letters().eval(), (torch.zeros(2, WINDOW, dtype=torch.int64),), dynamo=True, opset_version=18,
        dynamic_shapes=sizes, input_names=["tokens"], output_names=["logits"],
    )  # fmt: skip
    assert program is not None
    program.model.metadata_props["letters"] = LETTERS
    program.save(path, external_data=False)


def train(model: jaxops.onnx.Model, text: jax.Array, test: jax.Array, batch: int = 32) -> dict[str, jax.Array]:
    """The parameters after AdamW on windows of the text, a fifth of whose letters are hidden."""

    def loss(params, key, text, batch):
        first, second = jax.random.split(key)
        windows = text[jax.random.randint(first, (batch, 1), 0, len(text) - WINDOW) + jnp.arange(WINDOW)]
        hidden = jax.random.bernoulli(second, 0.2, windows.shape)
        logits = model.apply(params, jnp.where(hidden, len(LETTERS) - 1, windows))
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, windows)
        right = hidden & (logits.argmax(-1) == windows)
        return jnp.where(hidden, losses, 0).sum() / hidden.sum(), right.sum() / hidden.sum()

    optimizer = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 8e-3, STEPS // 20, STEPS), weight_decay=0.05)

    def step(carry, key):
        params, state = carry
        (value, _), gradient = jax.value_and_grad(loss, has_aux=True)(params, key, text, batch)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), value

    carry = model.params, optimizer.init(model.params)
    run = jax.jit(lambda carry, keys: jax.lax.scan(step, carry, keys))
    score = jax.jit(lambda params: loss(params, jax.random.key(1), test, 512))
    for keys in jnp.split(jax.random.split(jax.random.key(0), STEPS), 10):
        carry, losses = run(carry, keys)
        right = score(carry[0])[1]
        print(f"loss {losses.mean():.2f}, {right:.0%} of the hidden letters of new sentences are right", flush=True)
    return carry[0]


def main() -> None:
    lines = [line.split(" ", 1) for line in (HERE / "rights.txt").read_text(encoding="utf-8").splitlines()]
    sentences = [[encoded(text + " ") for n, text in lines if n == name] for name in ("en", "de", "fr", "es")]
    text, test = (
        jnp.array([letter for texts in sentences for line in texts[part] for letter in line])
        for part in (slice(16), slice(16, None))
    )
    with tempfile.TemporaryDirectory() as folder:
        export(Path(folder) / "random.onnx")
        model = jaxops.onnx.load(Path(folder) / "random.onnx")
        model.save(HERE / "letters.onnx", train(model, text, test))
    print(f"{(HERE / 'letters.onnx').stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
