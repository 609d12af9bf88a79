"""Defaults of `generate` from the `genai_config.json` that onnxruntime-genai's builder writes beside a model."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxops.errors import ModelError, UnsupportedError
from jaxops.graph.nodes import Value

NAME = "genai_config.json"
# Options that change the tokens, with the value at which they do nothing.
_UNSUPPORTED = {"num_beams": 1, "num_return_sequences": 1, "min_length": 0, "no_repeat_ngram_size": 0}


class Defaults(NamedTuple):
    """The defaults of a file for generation. A number of 0 gives none.

    stop: the tokens that end a row. room: the largest number of tokens, prompt included. max_length: where a row ends,
    prompt included.
    """

    stop: tuple[int, ...] = ()
    pad: int = 0
    room: int = 0
    max_length: int = 0
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0
    repetition_penalty: float = 1.0


def read_defaults(folder: Path | None, inputs: Sequence[Value], vocabulary: Any) -> Defaults:
    """Returns the defaults of a model from its folder; those of `Defaults` if there is no file.

    inputs: of the model. vocabulary: the number of tokens, if it is an integer.
    Raises ModelError for a file of another model, or one that is damaged, and UnsupportedError for a search by beams
    and other options that `generate` does not have.
    """
    if folder is None or not (path := folder / NAME).is_file():
        return Defaults()
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        model, search = said["model"], said.get("search", {})
        stop = model.get("eos_token_id", ())
        found = Defaults(
            stop=tuple(map(int, stop)) if isinstance(stop, list) else () if stop == () else (int(stop),),
            pad=int(model.get("pad_token_id", 0)),
            room=int(model.get("context_length", 0)),
            max_length=int(search.get("max_length", 0)) or int(model.get("context_length", 0)),
            do_sample=bool(search.get("do_sample", False)),
            temperature=float(search.get("temperature", 1.0)),
            top_k=int(search.get("top_k", 0)),
            top_p=float(search.get("top_p", 0.0)),
            repetition_penalty=float(search.get("repetition_penalty", 1.0)),
        )
        _check_model(path, model, {v.name for v in inputs}, vocabulary)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path} is not a configuration of onnxruntime-genai: {error!r:.200}") from error
    for name, neutral in _UNSUPPORTED.items():
        if search.get(name, neutral) != neutral:
            raise UnsupportedError(
                f"{path} asks for {name} {search[name]!r}, which generate does not have\n"
                f'  hint    set "{name}" to {neutral} there'
            )
    return found


def _check_model(path: Path, model: Mapping[str, Any], names: set[str], vocabulary: Any) -> None:
    """Raises ModelError if the file describes another model."""
    size = int(model.get("vocab_size", 0))
    if size and isinstance(vocabulary, int) and size != vocabulary:
        raise ModelError(
            f"{path} is of another model: it has {size} tokens (vocab_size), but this model has {vocabulary}\n"
            "  hint    move the file, or correct it"
        )
    inputs = model.get("decoder", {}).get("inputs", {})
    for kind, default in (("input_ids", "input_ids"), ("past_key_names", ""), ("past_value_names", "")):
        name = str(inputs.get(kind, default)).replace("%d", "0")
        if name and name not in names:
            raise ModelError(
                f"{path} is of another model: it names an input '{name}' ({kind}), but this model has "
                f"{', '.join(sorted(names))}\n  hint    move the file, or correct it"
            )
