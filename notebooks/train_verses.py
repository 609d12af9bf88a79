"""Trains the little model of `generate_text.ipynb` to write like Lewis Carroll, letter by letter: half a minute.

The network is written as an ONNX graph, two transformer layers with a cache of keys and values, and trained through
jaxops: the loss is a function of `model.params` like any other. Then the weights go back into the graph.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import optax
from onnx import numpy_helper, parser

import jaxops.onnx

TEXT = """'Twas brillig, and the slithy toves
Did gyre and gimble in the wabe:
All mimsy were the borogoves,
And the mome raths outgrabe.

"Beware the Jabberwock, my son!
The jaws that bite, the claws that catch!
Beware the Jubjub bird, and shun
The frumious Bandersnatch!"

He took his vorpal sword in hand;
Long time the manxome foe he sought -
So rested he by the Tumtum tree
And stood awhile in thought.

And, as in uffish thought he stood,
The Jabberwock, with eyes of flame,
Came whiffling through the tulgey wood,
And burbled as it came!

One, two! One, two! And through and through
The vorpal blade went snicker-snack!
He left it dead, and with its head
He went galumphing back.

"And hast thou slain the Jabberwock?
Come to my arms, my beamish boy!
O frabjous day! Callooh! Callay!"
He chortled in his joy.

"""
LETTERS = "".join(sorted(set(TEXT)))
WIDTH, HEADS, LAYERS, LENGTH = 48, 4, 2, 256
HERE = Path(__file__).parent


def graph() -> onnx.ModelProto:
    """The network with random weights."""
    rng, size = np.random.default_rng(0), WIDTH // HEADS
    weights = {
        "letters": rng.normal(size=(len(LETTERS), WIDTH)) * 0.1,
        "out": rng.normal(size=(WIDTH, len(LETTERS))) * 0.1,
    }
    text = "x0 = Gather(letters, tokens)\n"
    for k in range(LAYERS):
        for name, shape in {
            "qkv": (WIDTH, 3 * WIDTH),
            "o": (WIDTH, WIDTH),
            "up": (WIDTH, 96),
            "down": (96, WIDTH),
        }.items():
            weights[f"{name}{k}"] = rng.normal(size=shape) / np.sqrt(shape[0]) / 2
        weights |= {f"{name}{k}": np.ones(WIDTH) for name in ("scale_a", "scale_b")}
        text += f"""
            n{k} = LayerNormalization(x{k}, scale_a{k})  p{k} = MatMul(n{k}, qkv{k})
            q{k}, k{k}, v{k} = Split<axis = -1, num_outputs = 3>(p{k})
            qr{k} = RotaryEmbedding<num_heads = {HEADS}>(q{k}, cos, sin, position_ids)
            kr{k} = RotaryEmbedding<num_heads = {HEADS}>(k{k}, cos, sin, position_ids)
            a{k}, present_key_{k}, present_value_{k} =
                Attention<is_causal = 1, q_num_heads = {HEADS}, kv_num_heads = {HEADS}>
                (qr{k}, kr{k}, v{k}, , past_key_{k}, past_value_{k})
            s{k} = MatMul(a{k}, o{k})  y{k} = Add(x{k}, s{k})
            m{k} = LayerNormalization(y{k}, scale_b{k})  u{k} = MatMul(m{k}, up{k})  g{k} = Gelu(u{k})
            d{k} = MatMul(g{k}, down{k})  x{k + 1} = Add(y{k}, d{k})
        """
    kinds = [f"{part}_{k}" for k in range(LAYERS) for part in ("key", "value")]
    past = ", ".join(f"float[batch, {HEADS}, past, {size}] past_{kind}" for kind in kinds)
    present = ", ".join(f"float[batch, {HEADS}, total, {size}] present_{kind}" for kind in kinds)
    model = parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 23]>
        verses (int64[batch, n] tokens, int64[batch, n] position_ids, {past})
            => (float[batch, n, {len(LETTERS)}] logits, {present}) {{
            {text}
            logits = MatMul(x{LAYERS}, out)
        }}""")
    angle = np.arange(LENGTH)[:, None] / 1000.0 ** (np.arange(size // 2) * 2 / size)
    weights |= {"cos": np.cos(angle), "sin": np.sin(angle)}
    model.graph.initializer.extend(numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items())
    model.metadata_props.add(key="letters", value=LETTERS)
    return model


def train(model: jaxops.onnx.Model, steps: int = 400, batch: int = 8, window: int = 192) -> dict[str, jax.Array]:
    """The parameters after `steps` of Adam on pieces of the text."""
    text = jnp.array([LETTERS.index(letter) for letter in TEXT * 2])
    empty = {v.name: jnp.zeros((batch, HEADS, 0, WIDTH // HEADS)) for v in model.inputs if v.name.startswith("past")}
    places = jnp.tile(jnp.arange(window), (batch, 1))
    tables = {name: model.params[name] for name in ("cos", "sin")}
    params = {name: value for name, value in model.params.items() if name not in tables}
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, steps))

    def loss(params, pieces):
        logits = model.apply({**params, **tables}, tokens=pieces[:, :-1], position_ids=places, **empty).logits
        return optax.softmax_cross_entropy_with_integer_labels(logits, pieces[:, 1:]).mean()

    def step(carry, key):
        params, state = carry
        starts = jax.random.randint(key, (batch, 1), 0, len(TEXT))
        value, gradient = jax.value_and_grad(loss)(params, text[starts + jnp.arange(window + 1)])
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(params, updates), state), value

    (params, _), losses = jax.jit(lambda p, keys: jax.lax.scan(step, (p, optimizer.init(p)), keys))(
        params, jax.random.split(jax.random.key(0), steps)
    )
    print("loss", *(f"{value:.2f}" for value in losses[:: steps // 8]), f"{losses[-1]:.3f}")
    return {**params, **tables}


if __name__ == "__main__":
    proto = graph()
    params = train(jaxops.onnx.load(proto))
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(params[tensor.name]), tensor.name))
    onnx.save(proto, HERE / "verses.onnx")
    print(f"{(HERE / 'verses.onnx').stat().st_size / 1000:.0f} kB")
