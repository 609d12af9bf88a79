"""Generation: turns a decoder with growing caches into a step of fixed shapes, for `jax.lax.scan`.

A model takes the keys and values of p past tokens and returns those of p + n. With arrays of exactly these sizes, each
token would need another program. So the model is traced once with a symbolic p, and runs on caches of a fixed length
(`jaxops.compiler.padded`), whose content beyond p does not affect the results. This works for any model, whether its
mask and positions are inputs, are computed from sizes, or do not exist.

Each row of a batch has a p of its own: the step of one row is mapped over the rows (`jax.vmap`). So a row gives what it
gives alone, whatever the model does with sizes.
"""

import functools
from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.attributes import integer
from jaxops.dtypes import as_traced, canonical
from jaxops.errors import BoundsError, JaxopsError, ShapeError, SignatureError, UnsupportedError, amount, describe
from jaxops.memory import readable
from jaxops.progress import progress, step
from jaxops.runtime.arguments import to_operand
from jaxops.runtime.auto_axes import under_auto_axes
from jaxops.runtime.prepared_params import PreparedParams, prepared, run_prepared
from jaxops.runtime.x64 import in_64_bits, is_on, under_its_x64, x64_on
from jaxops.signature_errors import errors_of, explained
from jaxops.static import Tracer
from jaxops.tools.generate.cache_inputs import check_batch, is_circular
from jaxops.tools.generate.decoder_state import DecoderState, inserted, only_first_tokens, rewound, with_past
from jaxops.tools.generate.padded_prompts import counts, first_aligned, nan_unless
from jaxops.tools.generate.prompt_chunks import Chunk, chunks_of
from jaxops.tools.generate.step_inputs import continues_rows, dtype_of, is_filled, missing, rows_of
from jaxops.tools.generate.step_of_batch import StepOfBatch
from jaxops.tools.generate.step_of_rows import Decodable, StepOfRows
from jaxops.tools.generate.tables_by_length import NUMBER
from jaxops.tools.inspect.overview import Row, overview
from jaxops.tools.inspect.tables import Report, Table

Params: TypeAlias = Mapping[str, Any] | PreparedParams


class Decoder(Report):
    """A step of fixed shapes: `step(params, state, tokens, **named)`. `step.init(batch)` is the first state.

    length: the largest number of tokens. caches: the caches of the model. endless: whether it may run past `length`.
    of_batch: runs the model. mixes_tables: whether tokens may need other tables than those before. `print(step)` shows
    the inputs that it fills.

    >>> import jaxops.onnx
    >>> step = decoder(jaxops.onnx.load("notebooks/verses.onnx"), length=64)
    >>> [cache.past.name for cache in step.caches][:2]
    ['past_key_0', 'past_value_0']
    """

    def __init__(self, model: Decodable, cache: Mapping[str, str] | None, length: int, cache_dtype: Any = None) -> None:
        with errors_of("decoder"):
            self.length = integer("length", length, least=1)
            self._rows = rows = StepOfRows(model, cache, self.length, cache_dtype)
        self.x64 = model.x64
        self._model, self._tokens, self._mask, self._others = model, rows.tokens, rows.mask, rows.others
        self.caches, self.mixes_tables = rows.caches, rows.mixes_tables
        batch = self._tokens.shape[0] if self._tokens.shape else None
        self._has_rows = not (isinstance(batch, int) and batch > 1) and all(c.batch is not None for c in self.caches)
        self.of_batch = StepOfBatch(rows, self._has_rows)
        # Otherwise a mask of the caches would have to drop old tokens, too.
        self.endless = self._mask is None and all(is_circular(model.graph, c.past.name) for c in self.caches)

    @functools.cached_property
    def _compiled(self) -> Any:
        return jax.jit(self._run, static_argnums=(0, 1))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_compiled"}

    def _table(self) -> Table:
        mask = [] if self._mask is None else [self._mask]
        rows = [Row("in", self._tokens.name, self._tokens.type_text, "the tokens")]
        for value in (*mask, *self._others):
            optional = "optional" if value.kind == "optional" else "to be given at each step"
            note = "filled" if value in mask or is_filled(value) else optional
            rows.append(Row("in", value.name, value.type_text, note))
        rows += [Row("past", c.past.name, c.past.type_text, f"→ {c.present.name}") for c in self.caches]
        logits, name = self._model.outputs[self._rows.logits], self._model.graph.name or "(unnamed)"
        return overview(
            [f"decoder of {name} · {self.length} tokens{self._memory}"],
            [*rows, Row("out", logits.name, logits.type_text)],
        )

    @property
    def _memory(self) -> str:
        """The bytes of the caches, as a part of the title; empty if the model does not say their sizes."""
        try:
            caches = jax.tree.leaves(jax.eval_shape(self.init).caches)
        except JaxopsError:  # `init` raises it
            return ""
        return f" · caches of {readable(sum(x.size * x.dtype.itemsize for x in caches))} for each row"

    @under_its_x64
    def init(self, batch: int = 1, *, past: Mapping[str, Any] | None = None) -> DecoderState:
        """Returns the state before the first token.

        past: keys and values of earlier tokens, by the name of the input for each cache, such as those that a separate
        model for the prompt returns. `batch` is then the batch of these arrays. A sliding cache needs all of its rows.
        Raises SignatureError for a missing or unknown cache, ShapeError for more tokens than `length`, ModelError if a
        size is unknown, or if all caches slide, so that the number of tokens is.

        >>> import jaxops.onnx
        >>> decoder(jaxops.onnx.load("notebooks/verses.onnx"), length=64).init(batch=2).position
        Array([0, 0], dtype=int32)
        """
        if past is None:
            sizes = {c.past.name: c.shape(batch, self.length, self._rows.numbers) for c in self.caches}
            caches = {c.past.name: jnp.zeros(sizes[c.past.name], self._rows.stored(c)) for c in self.caches}
            return DecoderState(jnp.zeros(batch, np.int32), caches)
        state = with_past(self.caches, past, self.length, batch)
        return state._replace(
            caches={c.past.name: state.caches[c.past.name].astype(self._rows.stored(c)) for c in self.caches}
        )

    def insert(self, state: DecoderState, rows: Any, other: DecoderState) -> DecoderState:
        """Returns `state` with the rows of another state in place of some, so that a finished row makes room.

        rows: integers (R,), where each of the R rows of `other` goes. A row of `step.init()` is an empty one.
        Raises UnsupportedError if the model fixes its batch, so that all rows have the same number of tokens, and
        BoundsError for a row that `state` does not have.

        >>> import jaxops.onnx
        >>> step = decoder(jaxops.onnx.load("notebooks/verses.onnx"), length=64)
        >>> other = step.init()._replace(position=jnp.array([5]))
        >>> step.insert(step.init(batch=3), [1], other).position
        Array([0, 5, 0], dtype=int32)
        """
        self._need_rows("insert")
        batch = state.position.shape[0]
        if not isinstance(rows, Tracer) and not all(0 <= row < batch for row in np.ravel(rows)):
            raise BoundsError(f"insert: `rows` is {rows!r:.80}; the state has rows 0 to {batch - 1}")
        return under_auto_axes(functools.partial(inserted, self.caches), state, jnp.asarray(rows), other)

    def rewind(self, state: DecoderState, counts: Any) -> DecoderState:
        """Returns the state before the last tokens, such as those of a draft that was refused.

        counts: the number of tokens to take back, one integer or (B,), at most `state.position`.
        Raises UnsupportedError for caches that slide or are circular, since what they dropped is gone, and BoundsError
        for more tokens than a row has; a traced number above that is taken for all tokens of the row.

        >>> import jaxops.onnx
        >>> model = jaxops.onnx.load("notebooks/verses.onnx")
        >>> step = decoder(model, length=64)
        >>> state, _ = step(model.params, step.init(batch=2), jnp.array([[20, 5, 1], [7, 2, 9]]))
        >>> step.rewind(state, jnp.array([0, 2])).position
        Array([3, 1], dtype=int32)
        """
        if self._rows.slides or self.endless:
            raise UnsupportedError("rewind: the caches have dropped tokens that would be needed; keep an earlier state")
        if np.ndim(counts):
            self._need_rows("rewind with a number for each row")
        if not isinstance(counts, Tracer) and not isinstance(state.position, Tracer):
            before = np.asarray(state.position)
            if np.any((np.asarray(counts) < 0) | (np.asarray(counts) > before)):
                raise BoundsError(f"rewind: `counts` is {counts!r:.80}; the rows have {before.tolist()} tokens")
        return under_auto_axes(functools.partial(rewound, self.caches), state, jnp.asarray(counts, np.int32))

    def _need_rows(self, what: str) -> None:
        if not self._has_rows:
            raise UnsupportedError(
                f"{what}: the model fixes its batch ({self._tokens}), so all rows have the same number of tokens"
            )

    @explained
    @under_its_x64
    def prepare(self, params: Mapping[str, Any], /, *, batch: int = 1, **named: Any) -> PreparedParams:
        """Returns the parameters with what a step computes from them alone, for steps of one token for each sample.

        A step takes the result in place of `params`, and then packs and turns no weights itself. Weights of 2, 4 or 8
        bits that DequantizeLinear scales in blocks stay integers. A prompt takes the result, too. batch: the number of
        samples. named: as for a step; arrays, or a `jax.ShapeDtypeStruct` for each.
        Returns a pytree; prepare anew when the parameters change. JAX cannot map or differentiate a step that takes it.

        >>> import jaxops.onnx
        >>> model = jaxops.onnx.load("notebooks/verses.onnx")
        >>> step = decoder(model, length=64)
        >>> prepared = step.prepare(model.params)
        >>> state, logits = step(prepared, step.init(batch=1), jnp.array([[20, 5, 1]]))
        """
        tokens = jax.ShapeDtypeStruct((batch, 1), canonical(dtype_of(self._tokens)))
        state = jax.eval_shape(lambda: self.init(batch))
        return prepared(functools.partial(self._step, False), params, state, tokens, named)

    def __call__(
        self, params: Params, state: DecoderState, tokens: Any, /, *, last_only: bool = False, **named: Any
    ) -> tuple[DecoderState, jax.Array]:
        """Takes one step: returns (the state with these tokens, the logits).

        tokens: integers (B,), one for each sample; or (B, n), such as a prompt. params: as for `model.apply`, or what
        `prepare` returns for them.
        last_only: compute logits (B, V) of the last token of each row alone, so that a prompt of n tokens does not take
        n × V; NaN for a row without a token.
        named: further inputs of the model, such as `encoder_hidden_states`, at each step. You may also give inputs that
        the decoder would fill, such as position_ids, and the attention mask of these tokens, (B, n), with 0 for
        padding on either side: then the prompts of a batch may have different lengths, and a row gives what it gives
        alone. A row of zeros takes no token. Padding gets no place in the caches, and its logits are NaN.
        Returns logits (B, n, V), or (B, V) for tokens of shape (B,). For a row with more than `length` tokens, padding
        included, they are NaN if `state` is traced, as a traced program cannot raise an error; test
        `(state.position < step.length).all()` there. Circular caches have no such limit.
        Raises SignatureError for a missing or unknown input, DTypeError, ShapeError for more tokens than `length`, and
        UnsupportedError for last_only if the model does not compute the logits of each token separately.

        >>> import jaxops.onnx
        >>> model = jaxops.onnx.load("notebooks/verses.onnx")
        >>> step = decoder(model, length=64)
        >>> state, logits = step(model.params, step.init(batch=1), jnp.array([[20, 5, 1]]))
        >>> state.position, logits.shape
        (Array([3], dtype=int32), (1, 3, 45))
        """
        enters = self.x64 and not is_on()
        with x64_on(enters):
            batched, inputs = self._arrived(state, as_traced(tokens), named)
        run = functools.partial(self._compiled, bool(last_only), bool(last_only) or np.ndim(tokens) == 1)
        run = functools.partial(in_64_bits, run) if enters else run
        with progress(f"compiling the decoder of {self._model.graph.name or 'a model'}", begun=False):
            state, logits = under_auto_axes(run, params, state, batched, inputs)
        return state, logits

    def prefill(
        self, params: Params, state: DecoderState, tokens: Any, /, *, chunk: int = 256, **named: Any
    ) -> tuple[DecoderState, jax.Array]:
        """Takes a long prompt in steps of `chunk` tokens: returns (the state, logits (B, V) of the last token).

        The results are those of `step(params, state, tokens, last_only=True, **named)`, in less memory. If the model
        can leave padding out (`mask_name`), has room for `chunk` more tokens, and no sliding cache has some already,
        all steps have the same shape: one program serves prompts of all lengths. Otherwise, and inside `jit`, the first
        step takes n % chunk tokens.
        Raises what a step raises.

        >>> import jaxops.onnx
        >>> model = jaxops.onnx.load("notebooks/verses.onnx")
        >>> step = decoder(model, length=64)
        >>> state, logits = step.prefill(model.params, step.init(batch=1), jnp.arange(40)[None], chunk=16)
        >>> state.position, logits.shape
        (Array([40], dtype=int32), (1, 45))
        """
        with errors_of("prefill"):
            chunk = min(integer("chunk", chunk, least=1), self.length)
        mask_name = self.mask_name or ""
        with x64_on(self.x64 and not is_on()):
            batched, inputs = self._arrived(state, as_traced(tokens), named)
            last = self.length if isinstance(state.position, Tracer) else int(np.asarray(state.position).max(initial=0))
            of_tokens = {name: inputs.pop(name) for name in self.of_batch.of_tokens(inputs)}
            pads = bool(mask_name) and self._has_rows and last + chunk <= self.length
            pads &= last == 0 or not self._rows.slides  # a sliding cache takes padding before all tokens only
            mask = inputs.pop(mask_name, None)
            if any(v.name == NUMBER for v in self._others):  # the first chunk reads the tables of the whole prompt
                inputs.setdefault(NUMBER, state.position + counts(batched, mask))
            *chunks, end = chunks_of(batched, mask, of_tokens, chunk, pads)

        def take(state: DecoderState, part: Chunk) -> tuple[DecoderState, jax.Array]:
            mask = {} if part.mask is None else {mask_name: part.mask}
            return self(params, state, part.tokens, last_only=True, **inputs, **part.named, **mask)

        for part in chunks:
            state, _ = take(state, part)
        return take(state, end)

    def _arrived(self, state: Any, tokens: jax.Array, named: Mapping[str, Any]) -> tuple[jax.Array, dict[str, Any]]:
        """Returns the tokens (B, n) in the model's type, and the remaining inputs by name, checked."""
        if not isinstance(state, DecoderState):
            raise SignatureError(
                f"the state is a {type(state).__name__}; give that of step.init(…) or of the last step"
            )
        batched = rows_of(tokens, self._tokens, self.length)
        check_batch(self.caches, state.caches, (self._tokens.shape or (None,))[0], tokens)
        if not self.endless and not isinstance(state.position, Tracer):
            last = int(np.asarray(state.position).max(initial=0)) + batched.shape[1]
            if last > self.length:
                raise ShapeError(f"{last} tokens are more than the length {self.length} of the decoder")
        mask = self.mask_name
        formals = {v.name: v for v in (*self._others, *([self._mask] if self._mask and mask else []))}
        for name in named:
            if name not in formals and name != mask:
                hint = (
                    "\n  hint    the model takes neither a mask nor lengths, so the prompts of a batch have equal "
                    "lengths; run a prompt alone, and put its state into a row: step.insert(…)"
                    if mask is None and "mask" in name
                    else ""
                )
                raise SignatureError(
                    f"unknown input '{name}'; besides tokens, a step takes {list(formals) or 'none'}{hint}"
                )
        for name, value in formals.items():
            if name not in named and not is_filled(value) and value is not self._mask and value.kind != "optional":
                raise missing(value)
        inputs = {name: to_operand(formals[name], value) for name, value in named.items() if name != mask}
        if mask is not None and mask in named:
            self._need_rows(f"'{mask}'")
            inputs[mask] = as_traced(named[mask])
            if inputs[mask].shape != batched.shape:
                raise ShapeError(
                    f"'{mask}' is {describe(inputs[mask])}, but the tokens are {describe(batched)}; give a number for "
                    "each token, 0 for padding"
                )
        return batched, inputs

    @property
    def mask_name(self) -> str | None:
        """The name of the argument that marks padding; None for a model that cannot leave padding out.

        >>> import jaxops.onnx
        >>> decoder(jaxops.onnx.load("notebooks/verses.onnx"), length=64).mask_name is None
        True
        """
        return self._rows.mask_name

    def _run(self, last_only: bool, of_one: bool, params: Any, *arguments: Any) -> tuple[DecoderState, jax.Array]:
        """Runs a step. of_one: whether the logits are those of one token, (B, V)."""
        run = functools.partial(self._step, last_only)
        is_prepared = isinstance(params, PreparedParams)
        state, logits = run_prepared(run, params, *arguments) if is_prepared else run(params, *arguments)
        return state, logits[:, 0] if of_one and logits.ndim > 2 else logits

    def _step(
        self, last_only: bool, params: Any, state: DecoderState, tokens: jax.Array, named: Mapping[str, Any]
    ) -> tuple[DecoderState, jax.Array]:
        named = dict(named)
        count = tokens.shape[1]
        step(amount(count, "token"))
        mask = named.pop(self.mask_name, None) if self.mask_name else None
        aligned = None if mask is None else first_aligned(mask)
        new = counts(tokens, mask)
        if aligned is not None:
            tokens = aligned.moved(tokens)
            named |= {name: aligned.moved(named[name]) for name in self.of_batch.of_tokens(named)}
        for name in [v.name for v in self._others if v.name in named and continues_rows(v)]:
            state = self._continued(state, named.pop(name))
        pads = aligned is not None
        logits, caches = self.of_batch(params, state.position, new, tokens, state.caches, named, last_only, pads)
        reached = state.position + new
        if aligned is not None:
            caches = only_first_tokens(self.caches, caches, reached)
            logits = logits if last_only else aligned.back(logits)
        is_valid = self._is_valid(state.position, new, count) & ((new > 0) | (not last_only))
        return DecoderState(reached, caches), nan_unless(is_valid, logits)

    def _continued(self, state: DecoderState, rows: Any) -> DecoderState:
        """Returns a state whose rows are those with these numbers, such as the beams that a search goes on with."""
        axes = {c.past.name: 0 if c.batch is None else c.batch for c in self.caches}
        caches = {name: jnp.take(x, rows, axes[name], mode="clip") for name, x in state.caches.items()}
        return DecoderState(state.position[rows], caches)

    def _is_valid(self, position: Any, new: Any, count: int) -> Any:
        """Returns False for a row that had no room for its tokens, or whose sliding cache cannot take padding after
        earlier tokens."""
        is_valid = (position + count <= self.length) | self.endless
        return is_valid & ((new == count) | (position == 0)) if self._rows.slides else is_valid


@explained
def decoder(
    model: Decodable, cache: Mapping[str, str] | None = None, *, length: int = 256, cache_dtype: Any = None
) -> Decoder:
    """Turns a decoder with growing caches into a step of fixed shapes: `step(params, state, tokens)` → (state, logits).

    model: takes tokens (B, n), and keys and values of past tokens. It returns logits, and keys and values that end with
    those of the new tokens. If it has position ids or an attention mask (B, total), the step fills them; one of pairs,
    such as (B, 1, n, total), as PyTorch's attention takes it: floats are added to scores, others are True for the
    tokens that a token sees, up to its own. Grouped heads, rotary or relative positions, and masks that the model
    computes from sizes need no options. The results are those of the model with growing caches. Where the number of
    tokens chooses between two tables of positions (LongRoPE), each row has those of its own number; those of a whole
    prompt in `prefill`.
    cache: input → output for each cache; by default they are matched by name (`past_key_values.0.key` and
    `present.0.key`, `cache_k_0` and `new_cache_k_0`, …) and shape. Caches of an encoder do not grow; give them by name
    at each step. A model with an input `write_indices` or `cache_position` (TensorScatter of opset 24) writes caches of
    fixed size in place, and the step fills that input. Circular caches hold the last `length` tokens, and may run past
    `length`. Sliding ones (`sliding_window_cache` of GroupQueryAttention) have as many rows as their window. A state
    that each token updates, such as `past.0.conv`, is kept beside the caches; prompts are then not padded.
    cache_dtype: a floating-point type in which the state holds keys and values, such as `jnp.bfloat16` for a model in
    float32: they take half of the memory, and are rounded. By default it is that of the model. `print(step)` says what
    the caches take; in `jax.jit(step, donate_argnums=1)` they are updated in place.
    length: the largest number of tokens, prompt included; also the size of caches that are written in place.
    `step.prepare(params)` computes once what depends on the parameters alone; files with DequantizeLinear need it, and
    one row in float16 takes half as long.
    Raises ModelError if the model has no cache, or one that does not grow, SignatureError for an unknown name, and
    DTypeError for a `cache_dtype` that is not floating-point, or for caches that are not.

    >>> import jaxops.onnx
    >>> model = jaxops.onnx.load("notebooks/verses.onnx")
    >>> step = decoder(model, length=64)
    >>> state, logits = step(model.params, step.init(batch=1), jnp.array([[20, 5, 1]]))  # a prompt
    >>> def write(carry, _):
    ...     state, token = carry
    ...     state, logits = step(model.params, state, token)  # (1,) → (1, V)
    ...     return (state, logits.argmax(-1)), token
    >>> _, tokens = jax.lax.scan(write, (state, logits[:, -1].argmax(-1)), length=20)
    >>> tokens.shape
    (20, 1)
    """
    return Decoder(model, cache, length, cache_dtype)
