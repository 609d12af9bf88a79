"""The compiled loop that writes tokens until all rows have ended."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.runtime.auto_axes import under_auto_axes
from jaxops.tools.generate.decoder import Decoder, Params
from jaxops.tools.generate.decoder_state import DecoderState
from jaxops.tools.generate.sampling import Numbers, Sampling, log_probabilities, next_tokens


class Request(NamedTuple):
    """The requests of rows (R,). keys: (R,), or None. limits: (R,), how many tokens a row may get. stop: (S,), the
    tokens that end a row. pad: the token that follows them. suppressed: (2, V), True for tokens that are not the
    first new one, and for those that are no later one; or None."""

    keys: Any
    limits: Any
    stop: Any
    pad: Any
    numbers: Numbers
    suppressed: Any


class Written(NamedTuple):
    """The tokens so far.

    found: how many columns they are. tokens, log_probabilities: (R, n). lengths: (R,), how many of these are the row's
    own. ended: (R,). last: (R,), the tokens to go on with. seen: (R, V), True for tokens of a row; (R, 0) if nothing
    asks for it.
    """

    found: jax.Array
    tokens: jax.Array
    log_probabilities: jax.Array
    lengths: jax.Array
    ended: jax.Array
    last: jax.Array
    seen: jax.Array


class TokenLoop:
    """The two programs behind a prompt, for a decoder: `first` writes a token, and `more` goes on."""

    def __init__(self, step: Decoder) -> None:
        self.step = step

    def first(self, sampling: Sampling, room: int, request: Request, logits: jax.Array, seen: Any) -> Written:
        """Writes the token after the prompts. room: for how many tokens there is room. logits: of the last tokens."""
        return under_auto_axes(functools.partial(self.first_program, sampling, room), request, logits, seen, like=())

    def more(
        self,
        sampling: Sampling,
        params: Params,
        named: Mapping[str, Any],
        request: Request,
        until: Any,
        state: DecoderState,
        written: Written,
    ) -> tuple[DecoderState, Written]:
        """Goes on until all rows have ended, or to `until` tokens; the state and what was written are updated in place.

        On a mesh, the caches stay split as they are.
        """
        run = functools.partial(self.more_program, sampling)
        return under_auto_axes(run, params, named, request, until, state, written, like=state.caches)

    @functools.cached_property
    def first_program(self) -> Any:
        """The compiled form of `first`."""
        return jax.jit(_first, static_argnums=(0, 1))

    @functools.cached_property
    def more_program(self) -> Any:
        """The compiled form of `more`."""
        return jax.jit(self._more, static_argnums=0, donate_argnums=(5, 6))

    def _more(
        self,
        sampling: Sampling,
        params: Params,
        named: Mapping[str, Any],
        request: Request,
        until: Any,
        state: DecoderState,
        written: Written,
    ) -> tuple[DecoderState, Written]:
        def goes_on(carry: tuple[DecoderState, Written]) -> jax.Array:
            return (carry[1].found < until) & ~carry[1].ended.all()

        def write(carry: tuple[DecoderState, Written]) -> tuple[DecoderState, Written]:
            state, written = carry
            state, logits = self.step(params, state, written.last, **named)
            return state, _next(sampling, request, logits, written)

        return jax.lax.while_loop(goes_on, write, (state, written))


def _first(sampling: Sampling, room: int, request: Request, logits: jax.Array, seen: jax.Array) -> Written:
    rows = logits.shape[0]
    none = jnp.zeros(rows, np.int32)
    tokens = jnp.full((rows, room), request.pad, np.int32)
    is_none = jnp.zeros(rows, bool)
    start = Written(jnp.int32(0), tokens, jnp.zeros((rows, room), np.float32), none, is_none, none, seen)
    return _next(sampling, request, logits, start)


def _next(sampling: Sampling, request: Request, logits: jax.Array, written: Written) -> Written:
    """Adds a token to each row that has not ended."""
    count, goes_on = written.found, ~written.ended
    keys = request.keys if request.keys is None else jax.vmap(jax.random.fold_in, (0, None))(request.keys, count)
    suppressed = None if request.suppressed is None else request.suppressed[jnp.minimum(count, 1)]
    token = next_tokens(logits, written.seen, keys, sampling, request.numbers, suppressed)
    logarithms = jnp.where(goes_on, log_probabilities(logits, token), 0.0)
    rows = jnp.arange(token.size, dtype=np.int32)
    return Written(
        count + 1,
        written.tokens.at[:, count].set(jnp.where(goes_on, token, request.pad)),
        written.log_probabilities.at[:, count].set(logarithms),
        written.lengths + goes_on.astype(np.int32),
        written.ended | (token[:, None] == request.stop[None]).any(1) | (count + 1 >= request.limits),
        jnp.where(goes_on, token, written.last),
        written.seen.at[rows, token].set(True) if sampling.penalizes else written.seen,
    )
