"""Speculative decoding: a small model drafts tokens, and a large one checks them all in one step."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.attributes import integer
from jaxops.dtypes import as_traced
from jaxops.errors import ShapeError, SignatureError, UnsupportedError, describe
from jaxops.runtime.auto_axes import under_auto_axes
from jaxops.signature_errors import errors_of, explained
from jaxops.tools.generate.decoder import Decoder, Params
from jaxops.tools.generate.decoder_state import DecoderState


class Speculated(NamedTuple):
    """The tokens of a greedy search, (B, count), and the number of steps that the target took for them."""

    tokens: jax.Array
    steps: jax.Array


class _Progress(NamedTuple):
    """The values of the loop.

    target, draft: the states before the last tokens. last: (B,), the last tokens. tokens: (B, count), those found so
    far. found: (B,), how many these are. steps: of the target.
    """

    target: DecoderState
    draft: DecoderState
    last: jax.Array
    tokens: jax.Array
    found: jax.Array
    steps: jax.Array


class Speculation:
    """A greedy search with a draft: `run(params, draft_params, prompts, count=…)`. See `speculative`."""

    def __init__(self, target: Decoder, draft: Decoder, ahead: int) -> None:
        with errors_of("speculative"):
            self.ahead = integer("ahead", ahead, least=1)
        self.target, self.draft = target, draft

    def __call__(
        self, params: Params, draft_params: Params, prompts: Any, /, *, count: int, mask: Any = None
    ) -> Speculated:
        """Returns the `count` tokens that follow each prompt, and the number of steps of the target.

        prompts: integers (B, n). mask: (B, n), 0 for padding on either side.
        Raises ShapeError unless both decoders have room for n + count + ahead tokens, and if the models have different
        numbers of tokens to choose from, SignatureError for a mask that a model cannot take, UnsupportedError if a
        model cannot take tokens back, or does not compute the logits of each token separately, and for a target with
        LongRoPE.
        """
        with errors_of("speculative"):
            if self.target.mixes_tables:
                raise UnsupportedError(
                    "the target reads other tables of positions for many tokens than for few (LongRoPE), so several "
                    "tokens at once are not those that it finds one by one\n"
                    "  hint    decoder(model, length=…) with at most the length of the table for few, or generate(…)"
                )
            count = integer("count", count, least=1)
            tokens = as_traced(prompts)
            if tokens.ndim != 2 or not tokens.size:
                raise ShapeError(f"`prompts` must be integers (B, n), not {describe(tokens)}")
            for name, step in (("target", self.target), ("draft", self.draft)):
                if tokens.shape[1] + count + self.ahead > step.length:
                    raise ShapeError(
                        f"the {name} has room for {step.length} tokens, but prompts of {tokens.shape[1]}, {count} more "
                        f"and {self.ahead} ahead are {tokens.shape[1] + count + self.ahead}\n"
                        "  hint    decoder(model, length=…) with at least that number"
                    )
                if mask is not None and step.mask_name is None:
                    raise SignatureError(
                        f"the {name} takes neither a mask nor lengths\n  hint    give prompts of equal lengths"
                    )
        run, padding = functools.partial(self._compiled, count), None if mask is None else as_traced(mask)
        return under_auto_axes(run, params, draft_params, tokens, padding, like=())

    @functools.cached_property
    def _compiled(self) -> Any:
        return jax.jit(self._run, static_argnums=0)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_compiled"}

    def _run(self, count: int, params: Params, draft_params: Params, prompts: Any, mask: Any) -> Speculated:
        batch = prompts.shape[0]

        def started(step: Decoder, params: Params) -> tuple[DecoderState, jax.Array]:
            named = {} if mask is None or step.mask_name is None else {step.mask_name: mask}
            return step(params, step.init(batch), prompts, last_only=True, **named)

        (target, logits), (draft, of_draft) = started(self.target, params), started(self.draft, draft_params)
        if logits.shape != of_draft.shape:
            raise ShapeError(
                f"speculative: the target chooses from {logits.shape[-1]} tokens, and the draft from "
                f"{of_draft.shape[-1]}; both need the same tokenizer"
            )
        first = _likeliest(logits)
        tokens = jnp.zeros((batch, count), np.int32).at[:, 0].set(first)
        start = _Progress(target, draft, first, tokens, jnp.ones(batch, np.int32), jnp.int32(1))
        step = functools.partial(self._step, params, draft_params)
        end = jax.lax.while_loop(lambda now: (now.found < count).any(), step, start)
        return Speculated(end.tokens, end.steps)

    def _step(self, params: Params, draft_params: Params, now: _Progress) -> _Progress:
        """Drafts tokens, and keeps those that the target would have chosen, and the one that it chooses next."""
        count = now.tokens.shape[1]

        def drafted(carry: tuple[DecoderState, jax.Array], _: Any) -> Any:
            state, token = carry
            state, logits = self.draft(draft_params, state, token)
            return (state, _likeliest(logits)), token

        # One step more than there are drafted tokens, so that the last of them stands in the caches, too.
        (draft, _), columns = jax.lax.scan(drafted, (now.draft, now.last), length=self.ahead + 1)
        proposed = columns.T  # (B, ahead + 1): the last token and the drafted ones
        target, logits = self.target(params, now.target, proposed)
        if logits.shape[1] != proposed.shape[1]:
            raise UnsupportedError("speculative: the target computes logits of the last place alone, not of each token")
        chosen = _likeliest(logits)  # what follows each of them
        agrees = proposed[:, 1:] == chosen[:, :-1]
        accepted = jnp.cumprod(agrees, axis=1, dtype=np.int32).sum(1, dtype=np.int32)
        kept = jnp.where(now.found < count, accepted + 1, 0)
        place = jnp.arange(self.ahead + 1, dtype=np.int32)[None]
        places = jnp.where(place < kept[:, None], now.found[:, None] + place, count)
        rows = jnp.arange(kept.size, dtype=np.int32)[:, None]
        last = jnp.take_along_axis(chosen, accepted[:, None], 1)[:, 0]
        surplus = self.ahead + 1 - kept
        return _Progress(
            self.target.rewind(target, surplus),
            self.draft.rewind(draft, surplus),
            jnp.where(kept > 0, last, now.last),
            now.tokens.at[rows, places].set(chosen, mode="drop"),
            now.found + kept,
            now.steps + 1,
        )


def _likeliest(logits: Any) -> jax.Array:
    return jnp.argmax(logits, axis=-1).astype(np.int32)


@explained
def speculative(target: Decoder, draft: Decoder, *, ahead: int = 4) -> Speculation:
    """Returns a greedy search by two decoders: `run(params, draft_params, prompts, count=…)` → tokens (B, count).

    target: the decoder whose tokens are wanted. draft: one of a smaller model with the same tokenizer. ahead: how many
    tokens it drafts for each step of the target. The tokens are those of the target alone, since each is its likeliest
    one, and the draft decides only how many it finds in a step; where two are equally likely, rounding may choose
    another one. The search is one compiled loop, in which each row accepts its own number of tokens.
    Raises ArgumentError for ahead < 1. Both decoders must keep all tokens, as sliding and circular caches do not, and
    the target must read the same tables for all numbers of tokens, as one with LongRoPE does only if it is short.

    >>> import jaxops.onnx
    >>> model = jaxops.onnx.load("notebooks/verses.onnx")
    >>> step = jaxops.onnx.decoder(model, length=64)
    >>> run = speculative(step, step, ahead=3)  # a draft that is always right
    >>> tokens, steps = run(model.params, model.params, jnp.array([[20, 5, 1]]), count=9)
    >>> tokens.shape, int(steps)
    ((1, 9), 3)
    """
    return Speculation(target, draft, ahead)
