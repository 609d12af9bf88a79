"""Damaged texts of a model: names, paths of modules in metadata, names and expressions of sizes; `TEXTS` lists them."""

import random
from typing import Any

from changed_fields import WORDS
from onnx import TensorProto

LONG = 2000
# Names of nodes and values.
_NAMES = (
    *WORDS,
    "." * LONG,
    "/" * LONG,
    "a." * LONG,
    "/a" * LONG,
    "a/a." * LONG,
    "class",
    "批",
    "*",
    "\x1b[31mred",
    "a\nb",
    "x:0",
    "ﬁ",
    "__class__",
    "%(x)s",
    "{0}",
    "'\"",
    "\ue000",
    "\u202e",
    "\ufdd0",
)
# Lists of names, as PyTorch writes them, and what Python reads otherwise.
_LISTS = (
    "['', 'model', 'model.fc', 'linear']",
    "[" * LONG,
    "[" * 50 + "]" * 50,
    "-" * LONG + "1",
    "{[]}",
    "{[]: 1}",
    "[1, None, 1e999]",
    "['a', [], {}]",
    "('a.b',)",
    "['\\d', 'x']",
    "['\\N{nothing}']",
    "[b'a', 'b']",
    "['" + "." * LONG + "', 'x']",
    "['a' 'b']",
    "['a'",
    "[f'{x}', 'y']",
    "['a\0', 'b']",
    "1 + 1",
    "9" * 5000,
    "[] + []",
)
_SIZES = (
    *_NAMES,
    "N + 1",
    "N*2",
    "N**N",
    "N // 0",
    "N % 0",
    "2*N - 3",
    "N - 9999999999999999999999",
    "N + " * LONG + "N",
    "(" * LONG + "N" + ")" * LONG,
    "-" * LONG + "N",
    "N" + "**9" * 60,
    "9**9**9**9",
    "floordiv(N, 0)",
    "mod(N, 2)",
    "max(N)",
    "floordiv",
    "min",
    "non_negative",
    "1 + 1",
    "N + True",
    "N.real",
    "N[0]",
    "lambda: 0",
    "N if N else 1",
    "(N := 3)",
    "f(N)",
    "'a' + 'b'",
    "N + 0x10",
    "N + 1_000",
    "01",
    "1e3",
    "N +",
    "N\0",
    "N + 1j",
    "N * 1000000000000000000000000000",
    "9" * 5000,
    "N + " + "9" * 5000,
    "N - 1 - 1",
    "a+b*c-d",
    "ﬁ + 1",
    "not N",
    "N @ N",
)
_KEYS = ("pkg.torch.onnx.name_scopes", "namespace", "pkg.torch.onnx.class_hierarchy", "", "x")


def _name(rng: random.Random, model: Any, donor: Any) -> str:
    """The name of a node becomes another."""
    if not model.graph.node:
        return "no node"
    node = rng.choice(model.graph.node)
    node.name = rng.choice(_NAMES)
    return f"{node.op_type} is called {node.name!r:.60}"


def _value_name(rng: random.Random, model: Any, donor: Any) -> str:
    """The name of a value becomes another, wherever it stands."""
    names = {name for node in model.graph.node for name in (*node.input, *node.output) if name}
    if not names:
        return "no value"
    old, new = rng.choice(sorted(names)), rng.choice(_NAMES)
    for node in model.graph.node:
        for owner in (node.input, node.output):
            for at, name in enumerate(owner):
                owner[at] = new if name == old else name
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer, *model.graph.value_info):
        value.name = new if value.name == old else value.name
    return f"'{old}' is {new!r:.60}"


def _metadata(rng: random.Random, model: Any, donor: Any) -> str:
    """Metadata of the module of a node."""
    if not model.graph.node:
        return "no node"
    node = rng.choice(model.graph.node)
    text = rng.choice((*_LISTS, *_NAMES, "/".join(["a: b"] * LONG)))
    node.metadata_props.add(key=rng.choice(_KEYS), value=text)
    return f"{node.op_type} has {text!r:.60}"


def _size(rng: random.Random, model: Any, donor: Any) -> str:
    """The name of a declared size becomes another, or an expression."""
    values = [v for v in (*model.graph.input, *model.graph.output) if v.type.HasField("tensor_type")]
    dims = [d for value in values for d in value.type.tensor_type.shape.dim]
    if not dims:
        return "no size"
    chosen = rng.sample(dims, min(len(dims), rng.choice((1, 1, 2, 3))))
    texts = [rng.choice(("N", "M", rng.choice(_SIZES), rng.choice(_SIZES))) for _ in chosen]
    for dim, text in zip(chosen, texts, strict=True):
        dim.dim_param = text
    return f"sizes are {[text[:60] for text in texts]}"


def _words_of_model(rng: random.Random, model: Any, donor: Any) -> str:
    """What the model says of itself, and of its tensors."""
    text = rng.choice(_NAMES)
    where = rng.choice(("producer_name", "producer_version", "domain", "doc_string", "graph", "initializer", "string"))
    if where == "graph":
        model.graph.name = model.graph.doc_string = text
    elif where == "initializer" and model.graph.initializer:
        rng.choice(model.graph.initializer).doc_string = text
    elif where == "string":
        strings = [t for t in model.graph.initializer if t.data_type == TensorProto.STRING and t.string_data]
        if not strings:
            return "no strings"
        rng.choice(strings).string_data[0] = text.encode()
    elif where != "initializer":
        setattr(model, where, text)
    return f"{where}: {text!r:.60}"


TEXTS = (_name, _value_name, _metadata, _metadata, _size, _size, _size, _words_of_model)
