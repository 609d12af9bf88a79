"""A model as a part of a flax module. It needs the package flax; `import jaxops` does not.

>>> from flax import nnx
>>> import jaxops.flax, jaxops.onnx
>>> class Classifier(nnx.Module):
...     def __init__(self, model, rngs):
...         self.backbone = jaxops.flax.Module(model)
...         self.head = nnx.Linear(10, 2, rngs=rngs)
...     def __call__(self, image):
...         return self.head(self.backbone(image))
>>> network = Classifier(jaxops.onnx.load("notebooks/digits.onnx"), nnx.Rngs(0))
>>> len(jax.tree.leaves(nnx.state(network, nnx.Param)))
10
"""

from collections.abc import Sequence
from typing import Any

import jax

from jaxops.errors import ArgumentError, describe
from jaxops.model import Model

try:
    from flax import nnx
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("jaxops.flax needs the flax package: pip install flax") from error

__all__ = ["Module"]


class Module(nnx.Module):
    """A model whose parameters are variables of flax, so that it learns with the module that holds it.

    model: what `load` returns. params: for each of `model.params` an `nnx.Param` where `model.trainable` says True, and
    a plain `nnx.Variable`, which optimizers of `nnx.Param` leave alone, where it says False. `load(path,
    trainable=lambda name: False)` freezes the whole model.

    A call takes what a call of the model takes and returns the same. rng: a key, such as `rngs.dropout()`. Raises what
    `Model.apply` raises, and ArgumentError for what is not a model.

    >>> import jaxops.flax, jaxops.onnx, numpy as np
    >>> model = jaxops.onnx.load("notebooks/digits.onnx", trainable={"hidden.weight": False})
    >>> module = jaxops.flax.Module(model)
    >>> type(module.params["hidden.weight"]).__name__, type(module.params["hidden.bias"]).__name__
    ('Variable', 'Param')
    >>> module(np.load("notebooks/seven.npy")).argmax(-1).tolist()
    [7]
    """

    def __init__(self, model: Model) -> None:
        if not isinstance(model, Model):
            raise ArgumentError(f"Module: `model` is {describe(model)}; give a model, such as jaxops.onnx.load(path)")
        params, trainable = model.params, model.trainable
        self._names, self._structure = tuple(params), jax.tree.structure(model)
        self.params = nnx.data(
            {name: (nnx.Param if trainable[name] else nnx.Variable)(x) for name, x in params.items()}
        )

    @property
    def model(self) -> Model:
        """The model with the parameters as they are now, to be saved, exported or compared.

        >>> import jaxops.flax, jaxops.onnx
        >>> module = jaxops.flax.Module(jaxops.onnx.load("notebooks/digits.onnx"))
        >>> module.params["hidden.bias"][...] *= 0
        >>> module.model.params["hidden.bias"].any().item()
        False
        """
        empty = jax.tree.unflatten(self._structure, [None] * self._structure.num_leaves)
        return empty.with_params({name: param[...] for name, param in self.params.items()})

    def __call__(
        self, /, *inputs: Any, rng: jax.Array | None = None, outputs: Sequence[str] | None = None, **named: Any
    ) -> Any:
        """Computes the outputs with the parameters as they are now."""
        if isinstance(rng, nnx.Rngs):
            raise ArgumentError("`rng` is nnx.Rngs; give a key that it makes: rng=rngs.dropout()")
        return self.model(*inputs, rng=rng, outputs=outputs, **named)
