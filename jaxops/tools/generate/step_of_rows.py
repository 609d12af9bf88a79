"""One step of a decoder for rows that have the same number of tokens, traced with a symbolic number of past tokens."""

import functools
from collections.abc import Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.compiler.one_entry import with_one_entry
from jaxops.compiler.padded.growth import check_growth
from jaxops.compiler.padded.interpreter import run_padded
from jaxops.compiler.padded.values import Capacity
from jaxops.dtypes import canonical, is_float
from jaxops.errors import DTypeError, JaxopsError, ModelError, UnsupportedError
from jaxops.graph.nodes import Graph, Value
from jaxops.jax_internals import jaxpr_as_fun
from jaxops.runtime.auto_axes import auto_axes
from jaxops.runtime.training_function import check_infers
from jaxops.runtime.x64 import x64_on
from jaxops.static import Dim, Undecided, symbolic_shape
from jaxops.tools.generate.cache_inputs import Cache, counts_lengths, find_caches, logits_of, windows_of
from jaxops.tools.generate.input_axes import BATCH, COUNT, InputAxes
from jaxops.tools.generate.mask_inputs import filled_mask, mask_input, mask_sizes
from jaxops.tools.generate.needed_sizes import numbers_needed
from jaxops.tools.generate.step_inputs import Tokens, dtype_of, filled_input, is_filled, tokens_input
from jaxops.tools.generate.table_bounds import reaches
from jaxops.tools.generate.tables_by_length import WithTables, with_tables


class Decodable(Protocol):
    """The part of a model that a decoder needs."""

    graph: Graph
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    x64: bool

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters, of which a decoder reads the shapes."""
        ...

    def apply(self, params: Mapping[str, Any], /, *inputs: Any, **named: Any) -> Any:
        """The pure function."""
        ...


class StepOfRows:
    """Runs a model for rows that have the same number of tokens, mostly one row.

    length: the largest number of tokens. tokens, mask, others: the inputs of the model besides its caches.
    mask_name: of the argument that marks padding; None if it cannot be left out.
    mixes_tables: whether tokens may need other tables than those before.
    logits: the position of the output with the logits. cache_dtype: in which caches are held; None for the model's.
    """

    def __init__(self, model: Decodable, cache: Mapping[str, str] | None, length: int, cache_dtype: Any = None) -> None:
        check_infers("decoder", model.graph)
        self.length = length
        self._cache_dtype = None if cache_dtype is None else np.dtype(cache_dtype)
        self.tokens = tokens_input(model.inputs, cache or {})
        batch = self.tokens.shape[0] if self.tokens.shape else None
        self.caches: tuple[Cache, ...] = find_caches(model.inputs, model.outputs, cache, batch, windows_of(model.graph))
        for one in self.caches:
            if self._cache_dtype is not None and not all(map(is_float, (self._cache_dtype, dtype_of(one.past)))):
                raise DTypeError(f"`cache_dtype` is {self._cache_dtype}, for {one.past}; both must be floating-point")
        self.in_place = all(c.in_place for c in self.caches)
        for one in self.caches:
            if one.in_place:
                one.shape(1, length)
        past = {c.past.name for c in self.caches}
        self.mask = mask_input([v for v in model.inputs if v.name not in past and v is not self.tokens], self.tokens)
        self.model = with_tables(model, self.mask, self.tokens, length)
        self.mixes_tables = isinstance(self.model, WithTables) and self.model.mixes
        others = [v for v in self.model.inputs if v.name not in past and v is not self.tokens]
        self.others = tuple(v for v in others if v is not self.mask)
        self.counts_lengths = counts_lengths(model.graph, [c.past.name for c in self.caches])
        self.slides = any(c.window for c in self.caches)
        named = self.mask.name if self.mask is not None else "attention_mask" if self.counts_lengths else None
        self.mask_name = None if any(c.recurs for c in self.caches) else named
        logits = logits_of(model.outputs, self.caches)
        if logits is None:
            raise ModelError("the model has no output beside its caches, so a step would give no logits")
        self.logits = logits
        self._reaches = False  # whether it is known that `length` tokens have positions

    def stored(self, cache: Cache) -> np.dtype:
        """Returns the type in which the state holds a cache."""
        return self._cache_dtype or dtype_of(cache.past)

    def __call__(
        self,
        params: Any,
        position: Any,
        new: Any,
        tokens: jax.Array,
        arrays: Mapping[str, Any],
        named: Mapping[str, Any],
        last_only: bool,
        pads: bool,
        is_first: bool,
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Returns the logits and the caches after a step of rows that have the same number of tokens, mostly one row.

        position: the number of tokens before. new: how many of these tokens are no padding, which follows them.
        last_only: whether to compute the logits of the last of them alone, (B, 1, V). pads: whether there may be
        padding, so that a model with logits of the last place alone is refused. is_first: whether it is known that
        there are no tokens before.
        """
        batch, count = tokens.shape
        total: Dim = count if is_first else self.length
        if not (self.in_place or is_first):
            (total,) = symbolic_shape("s", constraints=[f"s >= {count}", f"s <= {self.length}"])
        # A causal operator that counts from the end of the lengths takes padding for tokens, which no token sees.
        reached = position + (count if self.counts_lengths and not self.slides else new)
        new_tokens = Tokens(batch, count, position, total, reached, position + new, is_first)
        past = total - count
        specs, arrays = {}, dict(arrays)
        for cache in self.caches:
            array, name = arrays[cache.past.name], cache.past.name
            specs[name] = jax.ShapeDtypeStruct(cache.with_tokens(array.shape, past), array.dtype)
        if self.mask is not None:
            sizes = mask_sizes(self.mask, self.tokens, batch, count, total)
            specs[self.mask.name] = jax.ShapeDtypeStruct(sizes, dtype_of(self.mask))
            room = count if is_first else self.length
            arrays[self.mask.name] = filled_mask(self.mask, self.tokens, new_tokens, room)

        def run(caches: Mapping[str, Any]) -> tuple[Any, ...]:
            filled = {v.name: filled_input(v, new_tokens) for v in self.others if is_filled(v) and v.name not in named}
            taken = {c.past.name: caches[c.past.name].astype(dtype_of(c.past)) for c in self.caches}
            outputs = self.model.apply(params, **{self.tokens.name: tokens}, **filled, **named, **{**caches, **taken})
            results = dict(zip((v.name for v in self.model.outputs), outputs, strict=True))
            return outputs[self.logits], {
                c.past.name: results[c.present.name].astype(self.stored(c)) for c in self.caches
            }

        self._check_reach(params, arrays, batch, count, named)
        if self.in_place:
            logits, caches = self._run_once(run, arrays, tokens.shape, new, last_only, pads)
            for cache in self.caches:
                if caches[cache.past.name].shape != arrays[cache.past.name].shape:
                    raise ModelError(
                        f"cache: '{cache.past.name}' is declared to keep its size {arrays[cache.past.name].shape}, but "
                        f"'{cache.present.name}' is {caches[cache.past.name].shape}"
                    )
            return logits, caches
        if is_first:
            nothing = {c.past.name: jnp.zeros(specs[c.past.name].shape, specs[c.past.name].dtype) for c in self.caches}
            logits, presents = self._run_once(run, {**arrays, **nothing}, tokens.shape, new, last_only, pads)
            self._check(presents, total)
            return logits, {c.past.name: c.grown(presents[c.past.name], self.length) for c in self.caches}
        try:
            program, shapes = jax.make_jaxpr(run, return_shape=True)(specs)
            self._check(shapes[1], total)
            check_growth(program, {"s": range(count, self.length + 1)})
            leaves = jax.tree.leaves(arrays)
            is_alone = _is_last_alone(program.out_avals[0].shape, tokens.shape, pads)
            if last_only and count > 1 and not is_alone:
                program, leaves = self._at_last(program, count), [*leaves, self._last(new)]
            last = (position + count).astype(canonical(np.int64))
            capacity = Capacity({"s": last}, {"s": self.length}, {past: self.length})
            flat_outputs = run_padded(program, leaves, capacity)
        except (JaxopsError, Undecided) as error:
            error.add_note(
                f"while tracing the decoder with a symbolic number of tokens, s: {past} past and {count} new"
            )
            raise
        logits, presents = jax.tree.unflatten(jax.tree.structure(shapes), flat_outputs)
        caches = {}
        for cache in self.caches:
            present = presents[cache.past.name]
            sizes = cache.with_tokens(present.array.shape, total)
            caches[cache.past.name] = present.masked(sizes, {cache.axis}, 0, capacity)
        return logits.array, caches

    def _run_once(self, run: Any, arrays: Any, sizes: tuple[int, ...], new: Any, last_only: bool, pads: bool) -> Any:
        if sizes[1] == 1 or not (last_only or pads):
            return run(arrays)
        program, shapes = jax.make_jaxpr(run, return_shape=True)(arrays)
        if _is_last_alone(program.out_avals[0].shape, sizes, pads) or not last_only:
            return jax.tree.unflatten(jax.tree.structure(shapes), jaxpr_as_fun(program)(*jax.tree.leaves(arrays)))
        outputs = jaxpr_as_fun(self._at_last(program, sizes[1]))(*jax.tree.leaves(arrays), self._last(new))
        return jax.tree.unflatten(jax.tree.structure(shapes), outputs)

    def _last(self, new: Any) -> jax.Array:
        """Returns the place of the last of `new` tokens; 0 if there is none."""
        return jnp.maximum(jnp.asarray(new, np.int32) - 1, 0)

    def _at_last(self, program: Any, count: int) -> Any:
        """Returns a closed jaxpr that computes logits at the place that its last input gives.

        Raises UnsupportedError if it would compute those of all tokens for that.
        """
        logits = program.out_avals[0].shape
        pruned = with_one_entry(program, 1) if len(logits) > 2 and logits[1] == count else None
        if pruned is None:
            raise UnsupportedError(
                f"last_only: the model does not compute the logits {logits} of {count} tokens one by one\n"
                "  hint    leave out last_only, and take the logits of the last token of each row"
            )
        return pruned

    def _check_reach(
        self, params: Any, arrays: Mapping[str, Any], batch: int, count: int, named: Mapping[str, Any]
    ) -> None:
        """Raises ShapeError if the last of `length` tokens is beyond the end of a table, such as that of positions."""
        if self._reaches:
            return
        shapes = {c.past.name: arrays[c.past.name].shape for c in self.caches}
        filled, caches = self._types_of_step(batch, count, self.length - count, shapes)
        specs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (params, {**named, **caches}))

        def last_step(filled_inputs: Any, params: Any, other_inputs: Any) -> Any:
            return self.model.apply(params, **{**filled_inputs, **other_inputs})

        self._reaches = reaches(jax.make_jaxpr(last_step), filled, specs, self.length)

    def _types_of_step(
        self, batch: int, count: int, past: int, shapes: Mapping[str, tuple[Any, ...]]
    ) -> tuple[Any, Any]:
        """Returns the inputs of a step after `past` tokens: (filled inputs, types of tokens and caches), for caches of
        these shapes."""
        total = self.length if self.in_place else past + count
        with jax.ensure_compile_time_eval():
            mask = () if self.mask is None else (self.mask,)
            end = np.int32(past + count)
            tokens = Tokens(batch, count, np.int32(past), total, end, end)
            filled = {v.name: filled_input(v, tokens) for v in self.others if is_filled(v)}
            filled |= {v.name: filled_mask(v, self.tokens, tokens, total) for v in mask}
        specs = {self.tokens.name: jax.ShapeDtypeStruct((batch, count), dtype_of(self.tokens))}
        for cache in self.caches:
            sizes = cache.with_tokens(shapes[cache.past.name], self.length if cache.in_place else past)
            specs[cache.past.name] = jax.ShapeDtypeStruct(sizes, dtype_of(cache.past))
        return filled, specs

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        """The sizes of caches that have a name in the model, but must be a certain number: name → number."""
        free = [d for c in self.caches for k, d in enumerate(c.past.shape or ()) if k not in (c.axis, c.batch)]
        names = list(dict.fromkeys(d for d in free if isinstance(d, str)))
        if not names:  # the parameters need not be read yet
            return {}
        return numbers_needed(lambda sizes: self._trace(sizes, 1, 1, self.length - 1, {}), names)

    @functools.cached_property
    def axes(self) -> InputAxes:
        """The axes that further inputs share with the tokens."""
        return InputAxes(self.tokens, self._fits)

    def _fits(self, value: Value, first: tuple[int, ...]) -> bool:
        """Tells whether the model takes a prompt of `COUNT` tokens for each of `BATCH` rows, and this input with these
        first sizes."""
        sizes: dict[Any, int] = dict(zip(value.shape or (), first, strict=False))
        sizes |= dict(zip(self.tokens.shape or (), (BATCH, COUNT), strict=False))
        try:
            with x64_on(self.model.x64), auto_axes():
                self._trace({**self.numbers, **sizes}, BATCH, COUNT, 0, {value.name: first})
        except (JaxopsError, Undecided):
            return False
        return True

    def _trace(
        self, sizes: Mapping[Any, Dim], batch: int, count: int, past: int, first: Mapping[str, tuple[int, ...]]
    ) -> None:
        """Traces a step after `past` tokens. sizes: of dimensions by name, 1 for each that is missing. first: the first
        sizes of inputs by name, instead of the declared ones."""

        def numeric(value: Value) -> tuple[Any, ...]:
            found = [d if isinstance(d, int) else 1 if d is None else sizes.get(d, 1) for d in value.shape or ()]
            given = first.get(value.name, ())
            return *given, *found[len(given) :]

        caches = {c.past.name: c.with_tokens(c.with_batch(numeric(c.past), batch), c.window or 1) for c in self.caches}
        filled, types = self._types_of_step(batch, count, past, caches)
        filled = {name: x for name, x in filled.items() if name not in first}
        for value in self.others:
            is_given = value.name in first or not (is_filled(value) or value.kind == "optional" or value.shape is None)
            if is_given:
                types[value.name] = jax.ShapeDtypeStruct(numeric(value), dtype_of(value))
        params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), dict(self.model.params))
        jax.eval_shape(lambda params, arrays: self.model.apply(params, **{**filled, **arrays}), params, types)

    def _check(self, presents: Mapping[str, Any], total: Dim) -> None:
        for cache in self.caches:
            sizes = presents[cache.past.name].shape
            if not cache.window and sizes[cache.axis] != total:
                raise ModelError(
                    f"cache: output '{cache.present.name}' has size {sizes[cache.axis]} along axis {cache.axis}, not "
                    f"s: the s - n tokens of '{cache.past.name}' and n new ones\n  hint    name the pairs by `cache`; "
                    f"a cache of fixed size needs an input `write_indices` or `cache_position`, or no decoder: scan "
                    f"`model.apply`"
                )


def _is_last_alone(logits: tuple[Any, ...], tokens: tuple[int, ...], pads: bool) -> bool:
    """Returns True if a model computes logits of the last place alone, (B, 1, V) or (B, V), for tokens (B, n > 1).

    Raises UnsupportedError if that place may be padding.
    """
    batch, count = tokens
    is_alone = count > 1 and (logits[0] == batch if len(logits) == 2 else logits[1:2] == (1,))
    if is_alone and pads:
        raise UnsupportedError(
            f"the model computes logits {logits} of the last of {count} places alone, which may be padding\n"
            "  hint    run prompts of equal lengths without a mask; step.insert(…) puts their states together"
        )
    return is_alone
