"""Decoders of models that keep their caches in variables."""

from jaxops.errors import ModelError
from jaxops.model import Model
from jaxops.signature_errors import explained
from jaxops.tools.generate.decoder import Decoder
from jaxops.tools.generate.generation import generate
from jaxops.tools.generate.model_with_variables import WithVariables
from jaxops.tools.generate.speculative import speculative

__all__ = ["decoder", "generate", "speculative"]


@explained
def decoder(model: Model, *, length: int = 256) -> Decoder:
    """Turns a decoder whose caches are variables into a step of fixed shapes.

    The step is called as `step(params, state, tokens)` and returns (state, logits).

    model: its variables are caches to which each call adds the keys or values of its tokens. `beam_idx` (B,) may be
    given by name at each step; without it, rows keep their order. The rest is as for `jaxops.onnx.decoder`.
    length: the largest number of tokens, prompt included.
    The caches begin without tokens. If the model begins with some, use `step.init(past=model.init(params, *inputs))`.
    Raises ModelError for a model without variables, and for a variable that does not grow.

    >>> import jax.numpy as jnp, jaxops.openvino
    >>> model = jaxops.openvino.load("notebooks/tiny_decoder.xml")
    >>> step = jaxops.openvino.decoder(model, length=64)
    >>> state, logits = step(model.params, step.init(batch=1), jnp.array([[3, 1, 4]]))  # a prompt
    >>> state, logits = step(model.params, state, logits[:, -1].argmax(-1))  # (1,) → (1, V)
    >>> logits.shape
    (1, 11)
    """
    if not model.graph.variables:
        raise ModelError(
            "decoder: the model has no variables; jaxops.onnx.decoder takes one whose caches are inputs and outputs"
        )
    with_variables = WithVariables(model)
    return Decoder(with_variables, with_variables.caches, length)
