"""Defaults of `generate` from a file beside a model: the `genai_config.json` of onnxruntime-genai's builder, or the
`generation_config.json` of transformers, which optimum writes, too."""

import json
import re
from collections.abc import Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

from jaxops.errors import ModelError, UnsupportedError
from jaxops.graph.nodes import Value

# Options that change the tokens, with the value at which they do nothing; null does nothing either.
_UNSUPPORTED = {
    "num_beams": 1, "num_return_sequences": 1, "min_length": 0, "min_new_tokens": 0, "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0, "encoder_repetition_penalty": 1, "typical_p": 1, "epsilon_cutoff": 0,
    "eta_cutoff": 0, "penalty_alpha": 0, "guidance_scale": 1, "forced_bos_token_id": None, "forced_eos_token_id": None,
    "sequence_bias": None, "exponential_decay_length_penalty": None, "stop_strings": None,
}  # fmt: skip
# The effect of leaving an option out, for those that nearly every file of a family has.
_WITHOUT = {
    "forced_bos_token_id": "; let each prompt have this token after its first one (decoder_start_token_id)",
    "forced_eos_token_id": "; a row that reaches max_tokens then ends without this token",
}
# The `top_k` of transformers where its file says none; the builder writes it into its own file.
_TOP_K = 50


class Defaults(NamedTuple):
    """The defaults of a file for generation. A number of 0 gives none.

    file: its name. stop: the tokens that end a row. room: the largest number of tokens, prompt included. max_length:
    where a row ends, prompt included. max_tokens: the largest number of new tokens; it precedes `max_length`.
    """

    file: str = ""
    stop: tuple[int, ...] = ()
    pad: int = 0
    room: int = 0
    max_length: int = 0
    max_tokens: int = 0
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()


def read_defaults(folder: Path | None, inputs: Sequence[Value], vocabulary: Any) -> Defaults:
    """Returns the defaults of a model from its folder; those of `Defaults` if there is no file.

    If both files are there, that of onnxruntime-genai counts. inputs: of the model. vocabulary: the number of tokens,
    if it is an integer.
    Raises ModelError for a file of another model, or one that is damaged, and UnsupportedError for a search by beams
    and other options that `generate` does not have.
    """
    for name, read, program in _FILES:
        if folder is None or not (path := folder / name).is_file():
            continue
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            found, search = read(path, said, {v.name for v in inputs}, vocabulary)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, ModelError):
                raise
            raise ModelError(f"{path} is not a configuration of {program}: {error!r:.200}") from error
        _check(path, found, search, vocabulary)
        return found
    return Defaults()


def model_type(folder: Path | None) -> str:
    """Returns the type of a model that the file of onnxruntime-genai names, such as 'phi3'; '' if none does."""
    try:
        said = json.loads((folder / _FILES[0][0]).read_text(encoding="utf-8")) if folder is not None else {}
        return str(said["model"]["type"])
    except (OSError, ValueError, TypeError, KeyError):  # `generate` says what is wrong with the file
        return ""


def _of_genai(
    path: Path, said: Mapping[str, Any], names: set[str], vocabulary: Any
) -> tuple[Defaults, Mapping[str, Any]]:
    """Returns the defaults of a `genai_config.json`, and its options of a search."""
    model, search = said["model"], said.get("search", {})
    _check_model(path, model, names, vocabulary)
    room = _count(model, "context_length", 0)
    return _defaults(path, model, search)._replace(
        room=room, max_length=_count(search, "max_length", 0) or room, top_k=_count(search, "top_k", 0)
    ), search


def _of_transformers(
    path: Path, said: Mapping[str, Any], names: set[str], vocabulary: Any
) -> tuple[Defaults, Mapping[str, Any]]:
    """Returns the defaults of a `generation_config.json`, and its options of a search.

    Rows are padded with a token that ends them unless the file has another one.
    """
    found = _defaults(path, said, said)
    return found._replace(
        pad=found.pad if said.get("pad_token_id") is not None else [*found.stop, 0][0],
        max_length=_count(said, "max_length", 0),
        max_tokens=_count(said, "max_new_tokens", 0),
        top_k=_count(said, "top_k", _TOP_K),
    ), said


def _defaults(path: Path, model: Mapping[str, Any], search: Mapping[str, Any]) -> Defaults:
    """Returns what both files say under the same names. model: has the tokens. search: has the options."""
    stop = _tokens(model, "eos_token_id")
    # As in transformers, a bad word does not keep a row from its end.
    bad_words = [index(word[0]) for word in _said(search, "bad_words_ids", []) if len(word) == 1]
    return Defaults(
        file=path.name,
        stop=stop,
        pad=index(_said(model, "pad_token_id", 0)),
        do_sample=bool(_said(search, "do_sample", False)),
        temperature=float(_said(search, "temperature", 1.0)),
        top_p=float(_said(search, "top_p", 0.0)),
        min_p=float(_said(search, "min_p", 0.0)),
        repetition_penalty=float(_said(search, "repetition_penalty", 1.0)),
        suppress_tokens=(*_tokens(search, "suppress_tokens"), *(word for word in bad_words if word not in stop)),
        begin_suppress_tokens=_tokens(search, "begin_suppress_tokens"),
    )


_FILES = (
    ("genai_config.json", _of_genai, "onnxruntime-genai"),
    ("generation_config.json", _of_transformers, "transformers"),
)


def _said(mapping: Mapping[str, Any], name: str, default: Any) -> Any:
    """Returns the value of a name; the default if it is missing or null."""
    value = mapping.get(name)
    return default if value is None else value


def _tokens(mapping: Mapping[str, Any], name: str) -> tuple[int, ...]:
    found = _said(mapping, name, [])
    return tuple(map(index, found if isinstance(found, list) else [found]))


def _count(mapping: Mapping[str, Any], name: str, default: int) -> int:
    count = index(_said(mapping, name, default))
    if count < 0:
        raise ValueError(f"{name} is {count}")
    return count


def _check(path: Path, found: Defaults, search: Mapping[str, Any], vocabulary: Any) -> None:
    """Raises UnsupportedError for options that `generate` does not have, and ModelError for tokens of another model."""
    for name, neutral in _UNSUPPORTED.items():
        if _said(search, name, neutral) != neutral:
            raise UnsupportedError(
                f"{path} asks for {name} {search[name]!r:.80}, which generate does not have\n"
                f'  hint    set "{name}" to {json.dumps(neutral)} there{_WITHOUT.get(name, "")}'
            )
    if any(len(word) != 1 for word in _said(search, "bad_words_ids", [])):
        raise UnsupportedError(
            f"{path} asks for bad_words_ids {search['bad_words_ids']!r:.80}, but generate suppresses no words of "
            "several tokens\n  hint    leave the words of one token there"
        )
    said = {
        "eos_token_id": found.stop,
        "suppress_tokens or bad_words_ids": found.suppress_tokens,
        "begin_suppress_tokens": found.begin_suppress_tokens,
    }
    for name, tokens in said.items() if isinstance(vocabulary, int) else ():
        if beyond := [token for token in tokens if not 0 <= token < vocabulary]:
            raise ModelError(
                f"{path} is of another model: it has the token {beyond[0]} ({name}), but this model has {vocabulary} "
                "tokens\n  hint    move the file, or correct it"
            )


def _check_model(path: Path, model: Mapping[str, Any], names: set[str], vocabulary: Any) -> None:
    """Raises ModelError if the file of onnxruntime-genai describes another model."""
    size = _count(model, "vocab_size", 0)
    if size and isinstance(vocabulary, int) and size != vocabulary:
        raise ModelError(
            f"{path} is of another model: it has {size} tokens (vocab_size), but this model has {vocabulary}\n"
            "  hint    move the file, or correct it"
        )
    inputs = model.get("decoder", {}).get("inputs", {})
    for kind, default in (("input_ids", "input_ids"), ("past_key_names", ""), ("past_value_names", "")):
        name = str(inputs.get(kind, default))
        if name and not any(re.fullmatch(re.escape(name).replace("%d", r"\d+"), known) for known in names):
            first = name.replace("%d", "0")
            raise ModelError(
                f"{path} is of another model: it names an input '{first}' ({kind}), but this model has "
                f"{', '.join(sorted(names))}\n  hint    move the file, or correct it"
            )
