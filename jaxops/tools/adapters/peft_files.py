"""Reads and writes adapters as the package peft does: `adapter_config.json` and `adapter_model.safetensors`."""

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxops.dtypes import as_traced
from jaxops.errors import ModelError, PathError, ShapeError, UnsupportedError
from jaxops.file_replacement import replacing
from jaxops.graph.nodes import Adapter, Piece
from jaxops.ops.text.regular_expressions import compiled, encoded

_CONFIG, _WEIGHTS, _PREFIX = "adapter_config.json", "adapter_model.safetensors", "base_model.model."
_KEY = re.compile(rf"{re.escape(_PREFIX)}(?P<module>.+)\.lora_(?P<which>[AB])\.weight")
_BASE = re.compile(r"(.+)\.base_layer\.(?:weight|bias)")
# Settings of peft with which an adapter adds something else than alpha / rank · x · aᵀ · bᵀ.
_OTHER_MEANING = ("use_dora", "use_qalora", "use_bdlora", "lora_bias", "layer_replication", "alora_invocation_tokens")


@dataclass(frozen=True, eq=False)
class Saved:
    """The adapter of a module. a, b: of shapes (rank, inputs) and (outputs, rank)."""

    alpha: float
    a: np.ndarray
    b: np.ndarray

    @property
    def rank(self) -> int:
        """The rank."""
        return self.a.shape[0]


@dataclass(frozen=True, eq=False)
class AdapterFile:
    """The adapters of a folder. by_module: those of each module, by its path in the file."""

    folder: Path
    by_module: Mapping[str, Saved]

    def modules_in(self, modules: Collection[str]) -> dict[str, str] | None:
        """Returns the module of a model for each module of the file; None if there is no such module, or a choice.

        All paths may begin differently, as when a model was exported inside of another module; and `attn` may stand for
        `self_attn`, as in files of onnxruntime-genai's builder.
        """
        found = list[dict[str, str]]()
        for spelled in (str, _as_builder_writes):
            known = {spelled(module): module for module in modules}
            paths = {name: spelled(name) for name in self.by_module}
            if all(path in known for path in paths.values()):
                return {name: known[path] for name, path in paths.items()}
            for start, removed in _beginnings(next(iter(paths.values())), known):
                mapped = {
                    name: known.get(start + path.removeprefix(removed))
                    for name, path in paths.items()
                    if path.startswith(removed)
                }
                complete = {name: module for name, module in mapped.items() if module is not None}
                if len(complete) == len(paths) and complete not in found:
                    found.append(complete)
        return found[0] if len(found) == 1 else None

    def check(self, name: str, sizes: tuple[int, int]) -> None:
        """Raises ShapeError if the adapter of a module does not have these numbers of inputs and outputs."""
        saved = self.by_module[name]
        if (saved.a.shape[1], saved.b.shape[0]) != sizes:
            raise ShapeError(
                f"`adapters`: '{self.folder}' has lora_A {saved.a.shape} and lora_B {saved.b.shape} for '{name}', but "
                f"the module of this model has {sizes[0]} inputs and {sizes[1]} outputs"
            )


def _as_builder_writes(path: str) -> str:
    return re.sub(r"\bself_attn\b", "attn", path)


def _beginnings(path: str, modules: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yields, for each module whose path ends like this one, what to add to its beginning, and what to remove."""
    for module in modules:
        if module.endswith(f".{path}"):
            yield module.removesuffix(path), ""
        elif path.endswith(f".{module}"):
            yield "", path.removesuffix(module)


def read(folder: str | os.PathLike[str]) -> AdapterFile:
    """Reads the adapters of a folder.

    Raises PathError for a folder without them, ModelError for damaged files, and UnsupportedError for anything else
    than plain LoRA of matrices.
    """
    path = Path(folder)
    config, tensors = _config(path), _tensors(path)
    by_module: dict[str, dict[str, np.ndarray]] = {}
    for key, value in tensors.items():
        found = _KEY.fullmatch(key)
        base = _BASE.fullmatch(key)
        if base is not None and f"{base[1]}.lora_A.weight" in tensors:
            continue  # peft adds the weights of an adapted `lm_head`, which are those of the model
        if found is None or value.ndim != 2:
            raise UnsupportedError(
                f"`adapters`: '{path}' has '{key}' of shape {value.shape}; only lora_A and lora_B of matrices are "
                "supported, without biases, embeddings, convolutions and modules that are saved whole"
            )
        by_module.setdefault(found["module"], {})[found["which"]] = value
    if not by_module:
        raise ModelError(f"`adapters`: '{path / _WEIGHTS}' has no adapters")
    return AdapterFile(path, {module: _saved(path, module, pair, config) for module, pair in by_module.items()})


def _saved(path: Path, module: str, pair: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> Saved:
    if len(pair) < 2 or pair["A"].shape[0] != pair["B"].shape[1]:
        shapes = ", ".join(f"lora_{which} {value.shape}" for which, value in sorted(pair.items()))
        raise ModelError(f"`adapters`: '{path}' has {shapes} for '{module}'; it must have both, with one rank")
    rank = pair["A"].shape[0]
    try:
        patterns = (config.get("alpha_pattern") or {}).items()
        # Python's own expressions may take exponential time, and these come from a file.
        own = [value for pattern, value in patterns if _names(rf"(.*\.)?({pattern})", module)]
        alpha = float(own[0] if own else config.get("lora_alpha", 8))
    except (AttributeError, TypeError, ValueError) as error:
        raise ModelError(
            f"`adapters`: '{path / _CONFIG}' has no usable lora_alpha or alpha_pattern: {error}"
        ) from error
    return Saved(alpha * rank**0.5 if config.get("use_rslora") else alpha, pair["A"], pair["B"])


def _names(pattern: str, module: str) -> bool:
    return compiled("alpha_pattern", pattern).fullmatch(encoded(module)) is not None


def _config(folder: Path) -> Mapping[str, Any]:
    try:
        config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise PathError(
            f"`adapters`: there is no '{folder / _CONFIG}'; give a folder that peft or jaxops saved"
        ) from error
    except ValueError as error:
        raise ModelError(f"`adapters`: '{folder / _CONFIG}' is damaged: {error}") from error
    kind = config.get("peft_type") if isinstance(config, dict) else None
    if kind != "LORA":
        raise UnsupportedError(
            f"`adapters`: '{folder / _CONFIG}' has the peft_type {kind!r:.80}; only 'LORA' is supported"
        )
    if other := [name for name in _OTHER_MEANING if config.get(name)]:
        raise UnsupportedError(
            f"`adapters`: '{folder / _CONFIG}' has {other[0]}={config[other[0]]!r:.80}, which is not LoRA"
        )
    return config


def _tensors(folder: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.flax import load_file

    file = folder / _WEIGHTS
    if not file.is_file():
        old = (
            "; it has adapter_model.bin: save it again as safetensors"
            if (folder / "adapter_model.bin").exists()
            else ""
        )
        raise PathError(f"`adapters`: there is no '{file}'{old}")
    try:
        return {name: np.asarray(value) for name, value in load_file(file).items()}
    except SafetensorError as error:
        raise ModelError(f"`adapters`: '{file}' is damaged: {error}") from error


def write(folder: str | os.PathLike[str], adapters: Sequence[Adapter], params: Mapping[str, Any]) -> None:
    """Writes adapters to a folder, which is made if its own folder exists; files of an earlier call are replaced.

    One whose product makes queries, keys and values is written as three, as peft has it, unless it adds to fewer; some
    that were read from one of a joined module (`qkv_proj`, `gate_up_proj`) are written as that one.
    Raises PathError for a folder that cannot be made.
    """
    from safetensors.flax import save_file

    path = Path(folder)
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise PathError(f"save_adapters: the folder '{path}' cannot be made: {error.strerror}") from error
    parts = defaultdict[str, list[tuple[Piece, Saved]]](list)
    for adapter in adapters:
        for piece, one in _taken_apart(adapter, *(np.asarray(params[name]) for name in (adapter.a, adapter.b))):
            parts[piece.name].append((piece._replace(start=piece.first), one))
    written = {name: joined(given, given[0][0].total or given[0][0].size) for name, given in parts.items()}
    rank, alpha = Counter((one.rank, one.alpha) for one in written.values()).most_common(1)[0][0]
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": _number(alpha),
        "target_modules": list(written),
        "rank_pattern": {name: one.rank for name, one in written.items() if one.rank != rank},
        "alpha_pattern": {name: _number(one.alpha) for name, one in written.items() if one.alpha != alpha},
        "lora_dropout": 0.0,
        "bias": "none",
        "base_model_name_or_path": None,
        "inference_mode": True,
    }
    tensors = {}
    for name, one in written.items():
        for which, values in (("A", one.a), ("B", one.b)):
            dtype = parts[name][0][1].a.dtype
            tensors[f"{_PREFIX}{name}.lora_{which}.weight"] = as_traced(values.astype(dtype))
    with replacing(path / _WEIGHTS, "save_adapters") as weights, replacing(path / _CONFIG, "save_adapters") as text:
        save_file(tensors, weights)
        text.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _taken_apart(adapter: Adapter, a: np.ndarray, b: np.ndarray) -> Iterator[tuple[Piece, Saved]]:
    """Yields an adapter for each piece of a module, which do the same together. One that adds nothing is left out.

    A piece takes those rows of `a` that its outputs read.
    """
    for piece in adapter.pieces:
        part = b[piece.start : piece.start + piece.size]
        read = (part != 0).any(0)
        if len(adapter.pieces) == 1 or not (b != 0).any():
            read[:] = True
        if read.any():
            alpha = adapter.alpha if read.all() else adapter.alpha * int(read.sum()) / adapter.rank
            yield piece, Saved(alpha, a[read], part[:, read])


def _number(x: float) -> int | float:
    return int(x) if x.is_integer() else x


def joined(given: Sequence[tuple[Piece, Saved]], outputs: int) -> Saved:
    """Returns one adapter with the outputs of several, and zeros for all other outputs.

    Its rank is the sum of their ranks, but adapters with the same `a` share it, as those do that `write` made of one.
    Their factors alpha / rank may differ; b then takes what is left of a factor.
    """
    (piece, first), *others = given
    if not others and piece.size == outputs:
        return first
    rows: list[tuple[np.ndarray, int]] = []
    for _, one in given:
        if not any(np.array_equal(one.a, a) for a, _ in rows):
            rows.append((one.a, sum(a.shape[0] for a, _ in rows)))
    rank, unit = sum(a.shape[0] for a, _ in rows), next((one for _, one in given if one.alpha), first)
    b = np.zeros((outputs, rank))
    for piece, one in given:
        at = next(start for a, start in rows if np.array_equal(one.a, a))
        share = one.alpha * unit.rank / (unit.alpha * one.rank) if unit.alpha else 1.0
        b[piece.start : piece.start + piece.size, at : at + one.rank] += one.b.astype(np.float64) * share
    return Saved(unit.alpha * rank / unit.rank, np.concatenate([a.astype(np.float64) for a, _ in rows]), b)
