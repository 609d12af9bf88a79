"""Finds the caches of a decoder: an input, the output that is this input with new tokens appended, and the axis."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from jaxops.errors import ModelError, ShapeError, SignatureError
from jaxops.graph.nodes import Graph, Node, Value
from jaxops.signature import CACHE, operand_marks

# The input and the output of a cache have the same name without these words.
_SIDES = {"past", "present", "cache", "caches", "kv", "in", "out", "input", "output", "inputs", "outputs"}
_SIDES |= {"new", "old", "next", "prev", "previous", "updated", "current"}
# Words in the names of states that are updated with each token: of convolutions, and of linear attentions.
_STATES = {"conv", "recurrent", "ssm"}
# Inputs with the positions of new tokens in a cache of fixed size.
_PLACES = {"write_indices", "cache_position"}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")


@dataclass(frozen=True)
class Cache:
    """A cache. past, present: the input and the output. axis: of the tokens. batch: of the batch; None if fixed.

    in_place: whether the cache has a fixed size, and an input gives the position where the model writes new tokens.
    window: the number of rows of a cache of fixed size that drops old tokens; 0 for other caches.
    recurs: whether it is a state that the model updates with each token, padding included, such as the last inputs of a
    causal convolution; it has a window, too.
    """

    past: Value
    present: Value
    axis: int
    batch: int | None
    in_place: bool = False
    window: int = 0
    recurs: bool = False

    def with_tokens(self, sizes: Sequence[Any], count: Any) -> tuple[Any, ...]:
        """The sizes of this cache with `count` tokens; those of a cache that drops old tokens do not depend on it."""
        return tuple(count if axis == self.axis and not self.window else size for axis, size in enumerate(sizes))

    def with_batch(self, sizes: Sequence[Any], batch: int) -> tuple[Any, ...]:
        """The sizes of this cache with `batch` rows."""
        return tuple(batch if axis == self.batch else size for axis, size in enumerate(sizes))

    def grown(self, array: jax.Array, count: int) -> jax.Array:
        """Returns an array of this cache with room for `count` tokens: zeros follow its own."""
        more = [(0, count - size if axis == self.axis else 0) for axis, size in enumerate(array.shape)]
        return jnp.pad(array, more)

    def shape(self, batch: int, length: Any, numbers: Mapping[str, int] | None = None) -> tuple[Any, ...]:
        """The sizes of this cache. length: the largest number of tokens. numbers: of sizes that the model only names.

        Raises ModelError for a size that is not known.
        """
        assert self.past.shape is not None
        sizes = list(self.past.shape)
        room = sizes[self.axis]
        if self.window:
            length = room if isinstance(room, int) else self.window
        if isinstance(room, int) and room != length:
            raise ShapeError(
                f"the cache {self.past} has room for {room} tokens, not for {length}\n"
                f"  hint    decoder(model, length={room})"
            )
        if self.batch is not None:
            sizes[self.batch] = batch
        sizes[self.axis] = length
        sizes = [(numbers or {}).get(size, size) if isinstance(size, str) else size for size in sizes]
        unknown = [name for axis, name in enumerate(sizes) if axis != self.axis and not isinstance(name, int)]
        if unknown:
            raise ModelError(
                f"the model does not say the size {unknown[0] or '?'} of its cache {self.past}\n"
                f"  hint    give arrays of that size and of no tokens: init(past={{'{self.past.name}': …, …}})"
            )
        return tuple(sizes)


def logits_of(outputs: Sequence[Value], caches: Sequence[Cache]) -> int | None:
    """Returns the position of the output with the logits: that of this name, or else the first one that is no cache;
    None if there is none."""
    presents = {cache.present.name for cache in caches}
    others = [k for k, v in enumerate(outputs) if v.name not in presents]
    named = [k for k in others if outputs[k].name.lower().endswith("logits")]
    return next(iter([*named, *others]), None)


def check_batch(caches: Sequence[Cache], arrays: Mapping[str, Any], name: Any, tokens: Any) -> None:
    """Raises ShapeError if tokens, (B,) or (B, n), have another batch than the arrays of the caches. name: of the batch
    size."""
    batch = tokens.shape[0]
    for cache in caches:
        if cache.batch is None or (cache.past.shape or ())[cache.batch] != name:
            continue
        rows = arrays[cache.past.name].shape[cache.batch]
        if rows != batch:
            if tokens.ndim == 1 and rows == 1:
                raise ShapeError(
                    f"tokens of shape ({batch},) are one token for each of {batch} samples, but the state has 1\n"
                    f"  hint    a prompt of {batch} tokens has shape (1, {batch}): give tokens[None]"
                )
            raise ShapeError(
                f"the tokens are {batch} samples, but the state has {rows}\n"
                f"  hint    begin with step.init(batch={batch}), or give tokens of {rows} samples"
            )


def find_caches(
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    named: Mapping[str, str] | None,
    batch: Any,
    windows: Mapping[str, int] | None = None,
) -> tuple[Cache, ...]:
    """The caches that grow, that are written in place, or that drop old tokens.

    named: input → output, or None to find them. batch: the model's name of the batch size. windows: see `windows_of`.
    Raises SignatureError for a name that the model does not have, ModelError if no cache is found.
    """
    if named is not None:
        pairs = _named(inputs, outputs, named)
    else:
        pairs = pairs_by_name(inputs, outputs) or _by_order(inputs, outputs)
    placed = any(value.name.lower() in _PLACES for value in inputs)
    caches = tuple(c for past, present in pairs if (c := _cache(past, present, batch, named is not None, placed)))
    caches = tuple(replace(cache, window=(windows or {}).get(cache.past.name, 0)) for cache in caches)
    if caches and named is None:
        caches += tuple(state for past, present in pairs if (state := _state(past, present, batch)))
    if not caches:
        hint = "name the pairs: decoder(model, {'past': 'present'}); or export the model with caches"
        if any("present" in v.name and len(v.shape or ()) == 4 and _belongs_to_encoder(v, 2) for v in outputs):
            hint = "this is a decoder of the first tokens alone; load decoder_model_merged.onnx, or "
            hint += "decoder_with_past_model.onnx with what this one makes of the encoder's output"
        raise ModelError(
            "no cache that grows was found: an input such as 'past_key_values.0.key', and an output "
            "'present.0.key' with the new tokens added\n"
            f"  inputs  {', '.join(map(str, inputs))}\n"
            f"  outputs {', '.join(map(str, outputs))}\n"
            f"  hint    {hint}"
        )
    return caches


def _named(inputs: Sequence[Value], outputs: Sequence[Value], given: Mapping[str, str]) -> list[tuple[Value, Value]]:
    read_inputs, made_outputs = ({v.name: v for v in values} for values in (inputs, outputs))
    for past, present in given.items():
        for kind, name, by_name in (("input", past, read_inputs), ("output", present, made_outputs)):
            if name not in by_name:
                raise SignatureError(f"cache: the model has no {kind} '{name}'; its {kind}s are {', '.join(by_name)}")
    return [(read_inputs[past], made_outputs[present]) for past, present in given.items()]


def pairs_by_name(inputs: Sequence[Value], outputs: Sequence[Value]) -> list[tuple[Value, Value]]:
    """Pairs whose names are equal without the words that distinguish past from present."""
    outputs_by_key: dict[Any, list[Value]] = {}
    for value in filter(_may_be_cache, outputs):
        outputs_by_key.setdefault(_key(value.name), []).append(value)
    pairs = []
    for value in filter(_may_be_cache, inputs):
        fitting = [v for v in outputs_by_key.get(_key(value.name), ()) if _fits(value, v)]
        if len(fitting) == 1:
            pairs.append((value, fitting[0]))
    return pairs


def _key(name: str) -> tuple[str, ...]:
    words = [word.lower() for word in _WORD.findall(re.sub(r"(?i)key_?values?", "", name))]
    return tuple(word for word in words if word not in _SIDES)


def _by_order(inputs: Sequence[Value], outputs: Sequence[Value]) -> list[tuple[Value, Value]]:
    """The inputs and outputs that may be caches, paired in order if all shapes agree; for names that do not match."""
    cache_inputs, cache_outputs = ([v for v in values if _may_be_cache(v)] for values in (inputs, outputs[1:]))
    pairs = list(zip(cache_inputs, cache_outputs, strict=False))
    return (
        pairs
        if len(cache_inputs) == len(cache_outputs) and all(_fits(past, present) for past, present in pairs)
        else []
    )


def _may_be_cache(value: Value) -> bool:
    return value.kind == "tensor" and (value.shape is None or len(value.shape) >= 3)


def _fits(past: Value, present: Value) -> bool:
    """Returns True if types, ranks and the sizes that both declare agree."""
    if past.dtype != present.dtype:
        return False
    if past.shape is None or present.shape is None:
        return True
    pairs = list(zip(past.shape, present.shape, strict=False))
    return len(past.shape) == len(present.shape) and all(
        a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int)
    )


def _cache(past: Value, present: Value, batch_size: Any, is_named: bool, placed: bool) -> Cache | None:
    """The cache of an input and an output; None if it does not grow, such as the keys of an encoder. placed: True if an
    input holds positions to write to.
    """
    if past.shape is None:
        if not is_named:
            return None
        raise ModelError(f"cache: the model does not say the rank of '{past.name}'")
    free = [axis for axis, size in enumerate(past.shape) if not isinstance(size, int)]
    named = [axis for axis in free if past.shape[axis] is not None and past.shape[axis] == batch_size]
    batch = named[0] if named else 0 if 0 in free and len(free) > 1 else None
    free = [axis for axis in free if axis != batch]
    lacks_batch = batch is None and isinstance(batch_size, str) and free != [2]  # (1, heads, tokens, width) is a cache
    if lacks_batch and past.shape == present.shape and not (is_named or placed):
        return None  # a recurrent state, whose free axis is the batch under another name
    in_place = placed and past.shape == present.shape and None not in past.shape
    if in_place and not free and len(past.shape) == 4:
        free = [2]
    if present.shape is not None:
        sizes = present.shape
        changed = [axis for axis in free if past.shape[axis] != sizes[axis] and not isinstance(sizes[axis], int)]
        free = changed or free
    if len(free) > 1 and 2 in free and len(past.shape) == 4:
        free = [2]  # (batch, heads, tokens, width)
    if not is_named and (len(free) != 1 or _belongs_to_encoder(past, free[0])):
        return None
    if len(free) != 1:
        raise ModelError(
            f"cache: '{past}' must have one size besides the batch that is not fixed: that of the axis that grows"
        )
    return Cache(past, present, free[0], batch, in_place)


def _state(past: Value, present: Value, batch_size: Any) -> Cache | None:
    """The state of an input and an output: of fixed sizes but for the batch, and with a name that says so."""
    words, sizes = {word.lower() for word in _WORD.findall(past.name)}, list(past.shape or ())
    last = sizes[-1] if len(sizes) > 1 and all(isinstance(size, int) for size in sizes[1:]) else None
    if not isinstance(last, int) or past.shape != present.shape or not words & _STATES or _belongs_to_encoder(past, 0):
        return None
    batch = 0 if sizes[0] == batch_size and not isinstance(batch_size, int) else None
    return Cache(past, present, len(sizes) - 1, batch, window=last, recurs=True)


def _belongs_to_encoder(past: Value, axis: int) -> bool:
    assert past.shape is not None
    text = f"{past.name} {past.shape[axis]}".lower()
    of_decoder = ".decoder." in text or "self" in text
    return not of_decoder and ("encoder" in text.replace("decoder", "") or "cross" in text)


def is_of_later_tokens(inputs: Sequence[Value]) -> bool:
    """Returns True for a decoder beside one of the first token, in its file (`use_cache_branch`) or another one, which
    takes the keys and values of an encoder's output as past ones.

    Exporters trace it with one new token, and then leave out the mask among new tokens (TrOCR of transformers).
    """
    past = [v for v in inputs if "past" in v.name.lower() and len(v.shape or ()) == 4]
    return any(_belongs_to_encoder(v, 2) for v in past) or any(v.name == "use_cache_branch" for v in inputs)


def is_circular(graph: Graph, cache: str) -> bool:
    """Returns True if a model that reaches the end of a cache goes on writing at its beginning."""
    writing = [node for node in graph.nodes if cache in _caches(node)]
    return bool(writing) and all(node.attributes.get("mode") == "circular" for node in writing)


def windows_of(graph: Graph) -> dict[str, int]:
    """The caches that drop old tokens: for each, the number of tokens that it must hold."""
    windows = {}
    for node in graph.nodes:
        if node.attributes.get("sliding_window_cache"):
            windows |= dict.fromkeys(_caches(node), node.attributes.get("local_window_size", 0))
    return windows


def _caches(node: Node) -> list[str]:
    function = node.operator.function
    return [name for k, name in enumerate(node.inputs) if name and CACHE in operand_marks(function, k)]


def counts_lengths(graph: Graph, caches: Sequence[str]) -> bool:
    """Returns True if every cache is read by GroupQueryAttention alone, which is causal and takes lengths of rows."""
    readers = {name: [node for node in graph.nodes if name in node.inputs] for name in caches}
    return all(
        nodes
        and all(node.operator.name == "GroupQueryAttention" and node.attributes.get("causal", 1) for node in nodes)
        for nodes in readers.values()
    )
