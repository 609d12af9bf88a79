"""The programs that generate text with a model, and the states after prompts of any lengths."""

import contextlib
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.dtypes import as_traced, canonical
from jaxops.errors import ModelError, ShapeError, SignatureError, UnsupportedError, amount, describe
from jaxops.graph.nodes import Value
from jaxops.runtime.auto_axes import auto_axes, under_auto_axes
from jaxops.runtime.prepared_params import PreparedParams
from jaxops.runtime.x64 import x64_on
from jaxops.static import is_concrete
from jaxops.tools.generate.cache_inputs import find_caches, is_of_later_tokens, logits_of, windows_of
from jaxops.tools.generate.decoder import Decoder, Params
from jaxops.tools.generate.decoder_state import DecoderState, repeated
from jaxops.tools.generate.encoder_caches import EncoderCaches
from jaxops.tools.generate.generation_defaults import read_defaults
from jaxops.tools.generate.model_with_variables import WithVariables
from jaxops.tools.generate.prompts import padded, program_length, program_width, rows_by_length
from jaxops.tools.generate.step_inputs import dtype_of, tokens_input
from jaxops.tools.generate.step_of_rows import Decodable
from jaxops.tools.generate.token_loop import TokenLoop

# Longer prompts are taken in chunks of so many tokens, as the scores of all of them may not fit into memory.
_CHUNK = 256


class Generating(Decodable, Protocol):
    """The part of a model that `generate` needs: further its folder, and a place for compiled programs."""

    @property
    def folder(self) -> Path | None:
        """The folder of the file; None for a model that is from no file."""
        ...

    programs: Any  # compiled programs; of a cached property, type checkers compare the descriptor


class Started(NamedTuple):
    """Prompts that were run. loop: the programs to go on with. params, named: what a step takes. state, logits: of the
    last tokens, for each sample of each prompt."""

    loop: TokenLoop
    params: Params
    named: dict[str, Any]
    state: DecoderState
    logits: jax.Array


class Generation:
    """The programs that generate text with a model; those of a model are made once, and kept in `model.programs`."""

    def __init__(self, model: Generating) -> None:
        self.model: Decodable = WithVariables(model) if model.graph.variables else model
        self.pairs = self.model.caches if isinstance(self.model, WithVariables) else None
        self.tokens = tokens_input(self.model.inputs, self.pairs or {})
        batch = self.tokens.shape[0] if self.tokens.shape else None
        windows = windows_of(model.graph)
        caches = find_caches(self.model.inputs, self.model.outputs, self.pairs, batch, windows)
        sizes = [(c.past.shape or ())[c.axis] for c in caches if not c.window]
        self.fixed_length = max((size for size in sizes if isinstance(size, int)), default=0)
        logits = logits_of(self.model.outputs, caches)
        scores = None if logits is None else self.model.outputs[logits]
        if scores is not None and "hidden_state" in scores.name:
            raise ModelError(
                f"the model returns {scores}, and no logits to choose tokens by\n"
                "  hint    load a file with its head, or apply yours to what jaxops.onnx.decoder(model) returns"
            )
        size = scores.shape[-1] if scores is not None and scores.shape else None
        self.vocabulary = size if isinstance(size, int) else None
        self._encoder_caches = EncoderCaches(self.model, caches)
        self.defaults = read_defaults(model.folder, self.model.inputs, self.vocabulary)
        self._loops: dict[int, TokenLoop] = {}
        self._prepares = any(node.operator.name == "DequantizeLinear" for node in model.graph.nodes)
        # The parameters of the last call, and what was prepared for them, by the number of rows.
        self._prepared: tuple[list[Any], dict[int, PreparedParams]] = [], {}
        # Whether the logits of the last token are computed without those of the tokens before, as far as is known.
        self._one_by_one = True
        # Whether several tokens after others are taken at once; None before the first long prompt.
        self._takes_chunks: bool | None = None
        # Whether prompts may be padded, as far as is known.
        self._pads = True
        # The smallest room for which the file is known to have too few positions.
        self._beyond = 0

    def started(
        self, params: Params, prompts: Sequence[np.ndarray], room: int, named: Mapping[str, Any], samples: int
    ) -> Started:
        """Runs the prompts.

        The caches get room for `room` tokens. Sizes are rounded up, so that one program serves prompts of many lengths,
        unless the file has too few positions for that.
        """
        rounded = self.fixed_length or program_length(max(room, program_width(max(p.size for p in prompts))))
        if self.fixed_length or rounded == room:
            return self._started(self._loop(rounded, room), params, prompts, named, samples)
        if not self._beyond or rounded < self._beyond:
            with contextlib.suppress(ShapeError):  # that of too few positions; another one comes again below
                return self._started(self._loop(rounded, room), params, prompts, named, samples)
        found = self._started(self._loop(room, room), params, prompts, named, samples)
        self._beyond = min(rounded, self._beyond or rounded)
        return found

    def _loop(self, length: int, room: int) -> TokenLoop:
        """Returns the programs for caches of this length. room: the number of tokens they must have room for."""
        if length not in self._loops:
            self._loops[length] = TokenLoop(Decoder(self.model, self.pairs, length))
        loop = self._loops[length]
        if room > length and not loop.step.endless:
            raise ShapeError(
                f"the caches have room for {length} tokens, but a prompt and its new tokens are {room}\n"
                "  hint    shorten the prompts, or give a smaller max_tokens"
            )
        return loop

    def _started(
        self,
        loop: TokenLoop,
        params: Params,
        prompts: Sequence[np.ndarray],
        named: Mapping[str, Any],
        samples: int,
    ) -> Started:
        step = loop.step
        arrays = self._arrays(step, named, len(prompts))
        if self._encoder_caches.names - arrays.keys():
            first = np.array([prompt[:1] for prompt in prompts], dtype_of(self.tokens))
            weights = params.params if isinstance(params, PreparedParams) else params
            given = {self.tokens.name: jnp.asarray(first), **arrays}
            mapped = step.of_batch.has_rows and len(prompts) > 1
            with_rows = frozenset(name for name in given if mapped and self._has_rows(step, name))
            arrays = self._encoder_caches(weights, given, with_rows) | arrays
        ready = self._ready(step, params, len(prompts), arrays)
        state, logits = self._after_prompts(step, ready, prompts, arrays)
        if samples > 1:
            if not step.of_batch.has_rows:
                raise UnsupportedError(f"samples: the model fixes its batch ({self.tokens}); call it for each sample")

            def for_samples(state: DecoderState, logits: jax.Array, named: dict[str, Any]) -> Any:
                named = {k: jnp.repeat(x, samples, 0) if self._has_rows(step, k) else x for k, x in named.items()}
                return repeated(step.caches, state, samples), jnp.repeat(logits, samples, 0), named

            state, logits, arrays = under_auto_axes(for_samples, state, logits, arrays)
            ready = self._ready(step, params, len(prompts) * samples, arrays)
        return Started(loop, ready, arrays, state, logits)

    def _after_prompts(
        self, step: Decoder, params: Params, prompts: Sequence[np.ndarray], named: Mapping[str, Any]
    ) -> tuple[DecoderState, jax.Array]:
        """Returns the state after the prompts, and the logits (B, V) of the last tokens."""
        groups = rows_by_length(prompts)
        fixed = (self.tokens.shape or (None,))[0]
        if isinstance(fixed, int) and fixed != len(prompts):
            raise UnsupportedError(
                f"the model fixes its batch ({self.tokens}), but there are {amount(len(prompts), 'prompt')}; give "
                f"{amount(fixed, 'prompt')} at a time"
            )
        if step.mask_name is not None and step.of_batch.has_rows and self._pads:
            tokens, mask = padded(prompts, min(program_width(max(groups)), step.length))
            more = {**named, step.mask_name: mask}
            try:
                return self._prompted(step, params, tokens, np.array([prompt.size for prompt in prompts]), more)
            except UnsupportedError:  # that of logits of the last place alone; another one comes again below
                self._pads, self._one_by_one = False, True
        if len(groups) == 1:
            return self._prompted(step, params, np.stack(prompts), None, named)
        if not step.of_batch.has_rows:
            raise UnsupportedError(
                f"the model fixes its batch ({self.tokens}), so prompts have equal lengths; these have "
                f"{', '.join(map(str, sorted(groups)))} tokens"
            )
        state, every = step.init(len(prompts)), []
        for rows in map(np.array, groups.values()):

            def of_rows(named: dict[str, Any], rows: np.ndarray = rows) -> dict[str, Any]:
                return {name: x[rows] if self._has_rows(step, name) else x for name, x in named.items()}

            here = under_auto_axes(of_rows, dict(named))
            part, logits = self._prompted(step, params, np.stack([prompts[row] for row in rows]), None, here)
            state = step.insert(state, rows, part)
            every.append(logits)
        order = np.argsort(np.concatenate(list(groups.values())))
        return state, under_auto_axes(lambda every: jnp.concatenate(every)[order], every)

    def _prompted(
        self, step: Decoder, params: Params, tokens: np.ndarray, counts: np.ndarray | None, named: Mapping[str, Any]
    ) -> tuple[DecoderState, jax.Array]:
        """Returns the state after prompts (B, n), and the logits of the last of `counts` tokens (B,), n by default."""
        state = step.init(len(tokens))
        if self._one_by_one:
            try:
                if tokens.shape[1] > _CHUNK and self._in_chunks(step, params, state, named):
                    return step.prefill(params, state, tokens, chunk=_CHUNK, **named)
                return step(params, state, tokens, last_only=True, **named)
            except UnsupportedError:  # that of last_only; another one comes again below
                self._one_by_one = False
        state, logits = step(params, state, tokens, **named)
        last = np.full(len(tokens), tokens.shape[1]) if counts is None else counts
        return state, under_auto_axes(lambda logits: logits[np.arange(len(tokens)), last - 1], logits)

    def _in_chunks(self, step: Decoder, params: Params, state: DecoderState, named: Mapping[str, Any]) -> bool:
        """Tells whether a long prompt is taken in chunks: unless its later tokens would be taken in turn."""
        if self._takes_chunks is None:
            weights = params.params if isinstance(params, PreparedParams) else params
            more = {name: x for name, x in named.items() if name != step.mask_name}
            with x64_on(step.x64), auto_axes():
                tokens = jnp.zeros((state.position.size, 2), canonical(dtype_of(self.tokens)))
                arrays = weights, state.position, tokens, state.caches, more
                types = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, canonical(x.dtype)), arrays)
                self._takes_chunks = step.of_batch.takes_chunks(*types)
        return self._takes_chunks

    def _has_rows(self, step: Decoder, name: str) -> bool:
        """Tells whether a further input has a row for each prompt."""
        return step.of_batch.rows.axes.has_rows(self._formals[name])

    @functools.cached_property
    def _formals(self) -> dict[str, Value]:
        return {value.name: value for value in self.model.inputs}

    def _arrays(self, step: Decoder, named: Mapping[str, Any], batch: int) -> dict[str, Any]:
        """Returns further inputs as arrays. Raises SignatureError, and ShapeError for one with other rows."""
        arrays = {}
        for name, value in named.items():
            if name == step.mask_name:
                raise SignatureError(f"'{name}' is made from the prompts; give each prompt without padding")
            if name not in self._formals:
                hint = (
                    "\n  hint    this is a decoder of later tokens alone, which takes what decoder_model.onnx makes of "
                    "the encoder's output; decoder_model_merged.onnx makes it itself"
                    if "encoder_hidden" in name and is_of_later_tokens(self.model.inputs)
                    else ""
                )
                raise SignatureError(f"unknown input '{name}'; the inputs are {', '.join(self._formals)}{hint}")
            axes = step.of_batch.rows.axes
            if axes.has_tokens(self._formals[name]):
                raise SignatureError(
                    f"'{name}' has a number for each token, which later tokens lack\n"
                    "  hint    write the loop with a decoder: step(params, state, tokens, …)"
                )
            if batch > 1:
                axes.check_rows(self._formals[name])
            arrays[name] = as_traced(value)
            if self._has_rows(step, name) and (not arrays[name].ndim or arrays[name].shape[0] != batch):
                raise ShapeError(
                    f"'{name}' is {describe(arrays[name])}; it must have a row for each of {batch} prompts"
                )
        return arrays

    def _ready(self, step: Decoder, params: Params, rows: int, named: Mapping[str, Any]) -> Params:
        """Returns the parameters, prepared if a step with them is much faster: for one row in float16, and for
        DequantizeLinear.

        What was prepared for the arrays of the last call is kept.
        """
        if isinstance(params, PreparedParams):
            return params
        leaves = list(params.values())
        turns = rows == 1 and any(getattr(x, "dtype", None) == np.float16 for x in leaves)
        if not self._prepares and not turns:
            return params
        if not all(isinstance(x, jax.Array) and is_concrete(x) for x in leaves):  # NumPy arrays may change
            return step.prepare(params, batch=rows, **named)
        known, by_rows = self._prepared
        if len(known) != len(leaves) or not all(a is b for a, b in zip(known, leaves, strict=True)):
            by_rows = {}
            self._prepared = leaves, by_rows
        if rows not in by_rows:
            by_rows[rows] = step.prepare(params, batch=rows, **named)
        return by_rows[rows]


def generation_of(model: Generating) -> Generation:
    """Returns the programs of a model."""
    if "generate" not in model.programs:
        model.programs["generate"] = Generation(model)
    return model.programs["generate"]
