"""Keys and values of an encoder's output, from a file that holds a decoder of the first token and one of later ones.

Such a file (optimum's `decoder_model_merged.onnx`) makes them with the first token, and takes them with later ones.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.runtime.auto_axes import under_auto_axes
from jaxops.runtime.x64 import under_its_x64
from jaxops.static import StaticValue
from jaxops.tools.generate.cache_inputs import Cache, pairs_by_name
from jaxops.tools.generate.padded_prompts import by_rows
from jaxops.tools.generate.step_inputs import Tokens, dtype_of, filled_input, is_filled
from jaxops.tools.generate.step_of_rows import Decodable

# The input that chooses between the decoders.
_BRANCH = "use_cache_branch"


class EncoderCaches:
    """The keys and values that a model makes of an encoder's output; there are none if it has not two decoders."""

    def __init__(self, model: Decodable, caches: Sequence[Cache]) -> None:
        self._model, self.x64 = model, model.x64
        own = {cache.past.name for cache in caches}
        pairs = pairs_by_name(model.inputs, model.outputs) if any(v.name == _BRANCH for v in model.inputs) else []
        self._outputs = {past.name: present.name for past, present in pairs if past.name not in own}
        self._formals = {value.name: value for value in model.inputs}

    @property
    def names(self) -> Collection[str]:
        """The names of the inputs that take them."""
        return self._outputs.keys()

    @under_its_x64
    def __call__(
        self, params: Mapping[str, Any], named: Mapping[str, Any], with_rows: frozenset[str]
    ) -> dict[str, jax.Array]:
        """Returns them by the names of the inputs.

        named: the first tokens (B, 1), and further inputs of the model, such as `encoder_hidden_states`. with_rows: the
        names of those to run row by row, as a file may quantize a batch by its largest number; empty for a fixed batch.
        """
        return under_auto_axes(functools.partial(self._compiled, with_rows), params, named)

    @functools.cached_property
    def _compiled(self) -> Any:
        return jax.jit(self._by_rows, static_argnums=0)

    def _by_rows(self, with_rows: frozenset[str], params: Any, named: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        if not with_rows:
            return self._run(params, named)
        axes = {name: 0 if name in with_rows else None for name in named}
        run = by_rows(lambda named: (self._run(params, named),), (axes,), (dict.fromkeys(self._outputs, 0),))
        return run(named)[0]

    def _run(self, params: Any, named: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        sizes: dict[Any, int] = {}
        for name, x in named.items():
            sizes |= dict(zip(self._formals[name].shape or (), x.shape, strict=False))
        first = Tokens(next(iter(named.values())).shape[0], 1, jnp.int32(0), 1, jnp.int32(1), jnp.int32(1), True)
        unread: dict[str, Any] = {}
        for name, value in self._formals.items():
            if name == _BRANCH:
                unread[name] = StaticValue(np.zeros([1] * len(value.shape or ()), bool))
            elif name not in named and is_filled(value):
                unread[name] = filled_input(value, first)
            elif name not in named and value.kind != "optional":  # past tokens, of which there are none
                shape = [d if isinstance(d, int) else sizes.get(d, 0) for d in value.shape or ()]
                unread[name] = jnp.zeros(shape, dtype_of(value))
        outputs = self._model.apply(params, **named, **unread)
        by_name = dict(zip((value.name for value in self._model.outputs), outputs, strict=True))
        return {past: by_name[present] for past, present in self._outputs.items()}
