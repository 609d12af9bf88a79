"""One step of a decoder for rows with different numbers of tokens: the step of one row is mapped over the rows."""

import functools
from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxops.errors import SizeError
from jaxops.tools.generate.cache_inputs import is_of_later_tokens
from jaxops.tools.generate.padded_prompts import by_rows
from jaxops.tools.generate.step_inputs import is_filled
from jaxops.tools.generate.step_of_rows import StepOfRows


class StepOfBatch:
    """Runs a model for a batch.

    rows: the step of rows that have the same number of tokens. has_rows: whether the numbers of tokens may differ.
    """

    def __init__(self, rows: StepOfRows, has_rows: bool) -> None:
        self.rows, self.has_rows = rows, has_rows

    def __call__(
        self,
        params: Any,
        position: jax.Array,
        new: jax.Array,
        tokens: jax.Array,
        caches: dict[str, jax.Array],
        named: Mapping[str, Any],
        last_only: bool,
        pads: bool,
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Returns the logits and the caches after a step. Arguments: as those of `StepOfRows`, for each row.

        Some files take a prompt after no tokens, and then one token at a time. They compute their mask from the number
        of new tokens, and no symbolic number of past tokens fits. Such a file gets the prompt if all rows have no token
        yet, and otherwise the tokens in turn. So does a file with two decoders, for the first tokens and for later
        ones, unless it reads what an encoder gives: keys and values of it may be other ones than it would make. A file
        that fixes the number of new tokens to 1 takes them in turn, and so does a decoder of later tokens alone.
        """
        once = functools.partial(
            self._mapped, params, named=named, new=new, tokens=tokens, last_only=last_only, pads=pads
        )
        in_turn = functools.partial(self._in_turn, params, named=named, new=new, tokens=tokens, last_only=last_only)
        if self._takes_one and tokens.shape[1] > 1 and not self.rows.slides:
            if not self._begins_at_once:
                return in_turn(position, caches)
        else:
            try:
                return once(position, caches)
            except SizeError:
                if tokens.shape[1] == 1 or self.rows.in_place or self.rows.slides:
                    raise
        return jax.lax.cond((position == 0).all(), functools.partial(once, is_first=True), in_turn, position, caches)

    def takes_chunks(
        self,
        params: Any,
        position: jax.Array,
        tokens: jax.Array,
        caches: dict[str, jax.Array],
        named: Mapping[str, Any],
    ) -> bool:
        """Returns False for a file that takes tokens after others in turn, however many are given at once."""
        if self._takes_one:
            return False

        def run(params: Any, position: Any, tokens: Any, caches: Any, named: Any) -> Any:
            new = jnp.full_like(position, tokens.shape[1])
            return self._mapped(params, position, caches, named=named, new=new, tokens=tokens)

        try:
            jax.eval_shape(run, params, position, tokens, caches, named)
        except SizeError:
            return False
        return True

    def _mapped(
        self,
        params: Any,
        position: jax.Array,
        caches: dict[str, jax.Array],
        *,
        named: Mapping[str, Any],
        new: jax.Array,
        tokens: jax.Array,
        last_only: bool = False,
        pads: bool = False,
        is_first: bool = False,
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        run = functools.partial(self.rows, params, last_only=last_only, pads=pads, is_first=is_first)
        if tokens.shape[0] == 1 or not self.has_rows:
            return run(position[0], new[0], tokens, caches, named)
        axes = {c.past.name: c.batch for c in self.rows.caches}
        inputs = [v for v in self.rows.others if v.name in named]
        for value in inputs:
            self.rows.axes.check_rows(value)
        named_axes = {v.name: 0 if self.rows.axes.has_rows(v) else None for v in inputs}
        return by_rows(run, (0, 0, 0, axes, named_axes), (0, axes))(position, new, tokens, caches, named)

    def _in_turn(
        self,
        params: Any,
        position: jax.Array,
        caches: dict[str, jax.Array],
        *,
        named: Mapping[str, Any],
        new: jax.Array,
        tokens: jax.Array,
        last_only: bool,
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Returns what a step of several tokens gives, from one step for each of them."""
        of_tokens = {name: jnp.moveaxis(named[name], 1, 0)[:, :, None] for name in self.of_tokens(named)}
        one = jnp.ones_like(new)

        def step(position: Any, caches: Any, token: Any, more: Any) -> Any:
            return self._mapped(params, position, caches, named={**named, **more}, new=one, tokens=token)

        def take(carry: Any, column: Any) -> Any:
            k, caches, last = carry
            logits, caches = step(position + k, caches, *column)
            if not last_only:
                return (k + 1, caches, last), logits[:, 0]
            is_last = (k == new - 1).reshape(-1, *[1] * (logits.ndim - 1))
            return (k + 1, caches, jnp.where(is_last, logits, last)), None

        columns = tokens.T[:, :, None], of_tokens
        logits, _ = jax.eval_shape(step, position, caches, *jax.tree.map(lambda x: x[0], columns))
        none = jnp.zeros(logits.shape if last_only else (), logits.dtype)
        (_, caches, last), every = jax.lax.scan(take, (jnp.int32(0), caches, none), columns)
        return last if last_only else jnp.moveaxis(every, 0, 1), caches

    @property
    def _takes_one(self) -> bool:
        return (self.rows.tokens.shape or ())[1:] == (1,) or is_of_later_tokens(self.rows.others)

    @property
    def _begins_at_once(self) -> bool:
        nodes = self.rows.model.graph.nodes
        has_two = any(node.operator.name == "If" and node.inputs[0] == "use_cache_branch" for node in nodes)
        return has_two and all(map(is_filled, self.rows.others))

    def of_tokens(self, names: Collection[str]) -> set[str]:
        """Returns those of further inputs that have an entry for each token, (B, n, …)."""
        return {v.name for v in self.rows.others if v.name in names and self.rows.axes.has_tokens(v)}
