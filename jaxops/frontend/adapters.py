"""Adds low-rank adapters (LoRA) to a model: the option `adapters` of `load`."""

import dataclasses
import fnmatch
import functools
import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxops import ops
from jaxops.errors import ArgumentError, near
from jaxops.frontend.signature_operator import SignatureOperator
from jaxops.graph.nodes import Adapter, Graph, Node, Piece, Tensor
from jaxops.graph.parameters import Params
from jaxops.tools.adapters.fused_projections import joined_pieces, named_like, names_in, pieces_of
from jaxops.tools.adapters.merging import Adapting
from jaxops.tools.adapters.peft_files import AdapterFile, Saved, joined, read
from jaxops.tools.adapters.products import Modules, Product, modules_with_products
from jaxops.tools.generate.generation_defaults import model_type

# Patterns of module paths, each with a rank, or with a rank and an alpha; or the folder of adapters that were saved.
Adapters: TypeAlias = Mapping[str, int | tuple[int, float]] | str | os.PathLike[str]

_TRANSPOSE, _MATMUL = SignatureOperator("Transpose", ops.transpose), SignatureOperator("MatMul", ops.matmul)
_MUL, _ADD = SignatureOperator("Mul", ops.mul), SignatureOperator("Add", ops.add)
# The models whose queries, keys and values, and whose gate and up, transformers computes in one module each.
_JOINING = ("phi3",)
# Modules with other names in transformers than in the files of onnxruntime-genai's builder, by the type of the model.
_OF_LFM2 = {
    "self_attn.o_proj": "self_attn.out_proj", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
}  # fmt: skip
_CALLED = {"phi": {"self_attn.o_proj": "self_attn.dense"}, "lfm2": _OF_LFM2, "lfm2_moe": _OF_LFM2}
# The number of modules that a message lists.
_LISTED = 8


class _Chosen(NamedTuple):
    """The adapter of a module: its rank and alpha, the values of a and b, and the modules of the file that it is from;
    None and empty for new ones."""

    rank: int
    alpha: float
    values: tuple[np.ndarray, np.ndarray] | None = None
    pieces: tuple[Piece, ...] = ()


def adapting(adapters: Adapters, folder: Path | None) -> Adapting:
    """Returns a function that adds adapters to a prepared graph and its parameters; they alone are trained.

    folder: of the model; a `genai_config.json` there says how transformers calls modules, and whether it joins products
    that the file has apart.
    The function raises ArgumentError if the model has no modules for them, ShapeError for a file of other sizes.
    Raises ArgumentError for adapters of another type; PathError and ModelError for a folder that cannot be read.
    """
    called = _CALLED.get(model_type(folder), {})
    if isinstance(adapters, str | os.PathLike):
        file = read(adapters)
        return functools.partial(_adapted, lambda modules: _of_file(file, modules), pieces_of, called)
    if not isinstance(adapters, Mapping) or not adapters:
        raise ArgumentError(
            f"`adapters` is {adapters!r:.80}; it must be a dictionary from patterns of modules to ranks, such as "
            "{'*.q_proj': 8}, or the folder of saved adapters"
        )
    chosen = {pattern: _rank_and_alpha(pattern, value) for pattern, value in adapters.items()}
    saved = joined_pieces if model_type(folder) in _JOINING else pieces_of
    return functools.partial(_adapted, lambda modules: _of_patterns(chosen, modules), saved, called)


def _rank_and_alpha(pattern: Any, value: Any) -> _Chosen:
    if not isinstance(pattern, str):
        raise ArgumentError(
            f"`adapters`: the key {pattern!r:.80} must be a pattern of module paths, such as '*.q_proj'"
        )
    rank, alpha = value if isinstance(value, tuple) and len(value) == 2 else (value, value)
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1:
        raise ArgumentError(
            f"`adapters`: '{pattern}' has {value!r:.80}; give a rank, an integer of at least 1, or (rank, alpha)"
        )
    if isinstance(alpha, bool) or not isinstance(alpha, int | float | np.number) or not math.isfinite(alpha):
        raise ArgumentError(f"`adapters`: '{pattern}' has the alpha {alpha!r:.80}; it must be a finite number")
    return _Chosen(int(rank), float(alpha))


def _of_patterns(patterns: Mapping[str, _Chosen], modules: Modules) -> dict[str, _Chosen]:
    """Returns the adapter of each module; the first pattern that fits it decides."""
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(module, pattern) for module in modules.by_module):
            raise ArgumentError(_nothing(pattern, modules))
    return {
        module: next(chosen for pattern, chosen in patterns.items() if fnmatch.fnmatchcase(module, pattern))
        for module in modules.by_module
        if any(fnmatch.fnmatchcase(module, pattern) for pattern in patterns)
    }


def _nothing(pattern: str, modules: Modules) -> str:
    """The message for a pattern that fits no module with a product."""
    for module, operator in modules.other.items():
        if fnmatch.fnmatchcase(module, pattern):
            return (
                f"`adapters`: '{pattern}' fits '{module}', but no product x · W reads its weight: {operator} does; "
                "adapters are for MatMul and Gemm with a matrix of floats, or of integers that DequantizeLinear reads, "
                "and for MatMulNBits"
            )
    return f"`adapters`: no module with a product x · W fits '{pattern}'{_similar(pattern, modules)}"


def _similar(name: str, modules: Modules) -> str:
    names = list(modules.by_module)
    by_leaf = {module.rpartition(".")[2]: module for module in names}
    text = near(name, names) or near(name.rpartition(".")[2].strip("*"), by_leaf)
    if text or not names:
        return text or "; the model has none"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"; the modules are {', '.join(map(repr, names[:_LISTED]))}{more}"


def _of_file(file: AdapterFile, modules: Modules) -> dict[str, _Chosen]:
    """Returns the adapters of a file, by the modules of the model."""
    known = names_in(modules)
    names = file.modules_in(known)
    if names is None:
        missing = next(name for name in file.by_module if name not in known)
        raise ArgumentError(
            f"`adapters`: '{file.folder}' belongs to another model: it adapts '{missing}', but this model has no such "
            f"module with a product x · W{_similar(missing, modules)}"
        )
    given: dict[str, list[tuple[Piece, Saved]]] = {}
    for name, known_as in names.items():
        saved, targets = file.by_module[name], known[known_as]
        inputs = modules.by_module[targets[0][0]][0].sizes[0]
        file.check(name, (inputs, sum(piece.size for _, piece in targets)))
        for module, piece in targets:
            part = Saved(saved.alpha, saved.a, saved.b[piece.first : piece.first + piece.size])
            given.setdefault(module, []).append((piece._replace(name=name), part))
    chosen = {}
    for module, parts in given.items():
        whole = joined(parts, modules.by_module[module][0].sizes[1])
        named = named_like([piece for piece, _ in parts], pieces_of(modules, module))
        chosen[module] = _Chosen(whole.rank, whole.alpha, (whole.a, whole.b), named)
    return chosen


def _adapted(
    choose: Callable[[Modules], dict[str, _Chosen]],
    saved: Callable[[Modules, str], tuple[Piece, ...]],
    called: Mapping[str, str],
    graph: Graph,
    params: Params,
) -> tuple[Graph, Params]:
    """Returns a graph with the chosen adapters, and its parameters. saved: the pieces that a new one is written as.
    called: see `Modules`."""
    modules = modules_with_products(graph, params.tensors, called)
    tensors, adapters, own = dict(params.tensors), list[Adapter](), dict[str, str]()
    by_node: dict[Node, tuple[Adapter, Product]] = {}
    for module, chosen in choose(modules).items():
        products = modules.by_module[module]
        a, b = (_unused(f"{module}.lora_{which}.weight", tensors, graph) for which in "AB")
        merges = modules.can_merge(products)
        first = products[0]
        weight, base = first.weight if merges else "", first.parameters[0]
        pieces = chosen.pieces or saved(modules, module)
        adapter = Adapter(module, chosen.rank, chosen.alpha, a, b, base, weight, first.by_rows, first.factor, pieces)
        tensors |= dict(zip((a, b), _values(adapter, chosen, products[0]), strict=True))
        own |= {a: a, b: b}
        adapters.append(adapter)
        by_node |= {product.node: (adapter, product) for product in products}
    rewritten = _Rewriter(by_node, graph).graph(graph)
    rewritten = dataclasses.replace(rewritten, params={**rewritten.params, **own}, adapters=tuple(adapters))
    # A caller's decision to train a parameter of the file stays.
    trainable = {name: params.trainable.get(name) is True for name in params.tensors} | dict.fromkeys(own, True)
    return rewritten, Params(tensors, trainable)


def _unused(name: str, tensors: Mapping[str, Tensor], graph: Graph) -> str:
    while name in tensors or name in graph.defined:
        name += "_"
    return name


def _values(adapter: Adapter, chosen: _Chosen, product: Product) -> Iterator[Tensor]:
    """Yields a and b: those of a file; or, as in peft, uniform numbers and zeros, so that the model stays the same."""
    inputs, outputs = product.sizes
    for k, shape in enumerate([(adapter.rank, inputs), (outputs, adapter.rank)]):
        values = None if chosen.values is None else chosen.values[k]
        load = functools.partial(_initial, "" if k else adapter.a, shape, product.dtype)
        load = load if values is None else functools.partial(np.asarray, values, product.dtype)
        yield Tensor(product.dtype, shape, load)


def _initial(name: str, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """The first values: zeros without a name, or uniform numbers that the name determines."""
    if not name:
        return np.zeros(shape, dtype)
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    bound = shape[1] ** -0.5
    return np.random.default_rng(seed).uniform(-bound, bound, shape).astype(dtype)


class _Rewriter:
    """Adds nodes after products, in subgraphs too. by_node: the adapter of each product."""

    def __init__(self, by_node: Mapping[Node, tuple[Adapter, Product]], graph: Graph) -> None:
        self._by_node, self._done = by_node, dict[Graph, Graph]()
        self._taken = _names(graph)

    def graph(self, graph: Graph) -> Graph:
        """Returns the graph with the nodes; nodes that share a graph still share the new one."""
        if graph not in self._done:
            nodes, static, numbers = list[Node](), dict(graph.static), list[int]()
            for index, node in enumerate(graph.nodes):
                nodes += self._with_adapter(node, static) if node in self._by_node else [self._inside(node)]
                numbers += [graph.number(index)] * (len(nodes) - len(numbers))  # random numbers stay the same
            self._done[graph] = dataclasses.replace(graph, nodes=tuple(nodes), static=static, numbers=tuple(numbers))
        return self._done[graph]

    def _inside(self, node: Node) -> Node:
        """Returns a node with rewritten subgraphs; functions have no adapters."""
        return node.with_nested(lambda inner: inner if inner is node.body else self.graph(inner))

    def _with_adapter(self, product: Node, static: dict[str, Any]) -> Sequence[Node]:
        adapter, facts = self._by_node[product]
        result, nodes = product.outputs[0], list[Node]()

        def add(operator: SignatureOperator, name: str, *inputs: str) -> str:
            output = self._new(f"{result}/{name}") if name else result
            made = {"operator": operator, "name": output, "inputs": inputs, "outputs": (output,), "attributes": {}}
            if operator is _TRANSPOSE:
                made |= {"attributes": {"perm": (1, 0)}, "whole_axis": None}
            nodes.append(dataclasses.replace(product, **made, is_adapter=True))
            return output

        x = add(_TRANSPOSE, "transposed", product.inputs[0]) if facts.is_turned else product.inputs[0]
        for which, parameter in (("lora_A", adapter.a), ("lora_B", adapter.b)):
            x = add(_MATMUL, which, x, add(_TRANSPOSE, f"{which}_transposed", parameter))
        if adapter.alpha != adapter.rank:
            scale = self._new(f"{result}/scale")
            static[scale] = np.asarray(adapter.alpha / adapter.rank, facts.dtype)
            x = add(_MUL, "lora_scaled", x, scale)
        alone = self._new(f"{result}/without_lora")
        add(_ADD, "", alone, x)
        return [dataclasses.replace(product, outputs=(alone, *product.outputs[1:])), *nodes]

    def _new(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def _names(graph: Graph) -> set[str]:
    """Returns the names of all values of a graph and its subgraphs."""
    return set(graph.defined).union(*map(_names, graph.nested))
