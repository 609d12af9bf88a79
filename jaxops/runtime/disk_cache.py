"""A folder of compiled programs, so that a later process need not trace, lower and compile them again.

JAX's persistent compilation cache finds a program after it was traced and lowered, which takes most of the time of such
a start. So the programs of `model(…)`, and how their weights are prepared, have files of their own. Their key is known
before tracing: the nodes of the model, the types of its inputs and parameters, the code of this package, the settings
of JAX, and the processor. All other programs go into JAX's cache.

A file that is damaged, belongs to another key, or cannot be read costs a compilation, a line of the logger "jaxops",
and is replaced; it is never an error.
"""

import contextlib
import functools
import hashlib
import logging
import math
import os
import pickle
import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import jax
from jax.experimental.serialize_executable import deserialize_and_load, serialize

from jaxops.compiler.fingerprint import digest, fingerprint
from jaxops.compiler.run.prepare_weights import WeightProgram
from jaxops.compiler.run.segments import LoweredSegments, SegmentedProgram
from jaxops.compiler.run.specialized import Specialized, most_bytes
from jaxops.errors import ArgumentError
from jaxops.file_replacement import replacing
from jaxops.graph.nodes import Graph
from jaxops.host import cores, processor_features
from jaxops.jax_internals import JaxRuntimeError
from jaxops.runtime.model_pytree import graph_texts

_LOGGER = logging.getLogger("jaxops")
_SIZE = 20  # bytes of a checksum
_PACKAGES = "jaxops", "jax", "jaxlib", "numpy", "ml_dtypes", "onnx"


def keep_programs(folder: str | os.PathLike[str]) -> "DiskCache":
    """Turns on JAX's compilation cache in a folder, for all programs of this process, however small they are.

    Returns the cache of the models' programs in the same folder.
    Raises ArgumentError if JAX's cache has another folder already, since a process has only one.
    """
    path = Path(folder).expanduser().absolute()
    _JAX_CACHE.turn_on(path)
    return DiskCache(path)


class _JaxCache:
    """JAX's compilation cache. Its settings belong to the process, so one thread at a time changes them."""

    _FOLDER, _LEAST_SECONDS = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pauses, self._least_seconds = 0, 0.0

    def turn_on(self, path: Path) -> None:
        """Lets JAX keep all programs in a folder, however small they are."""
        with self._lock:
            present = getattr(jax.config, self._FOLDER)
            if present is not None and Path(present).absolute() != path:
                raise ArgumentError(
                    f"cache {os.fspath(path)!r}: JAX keeps compiled programs in {present!r} already, and a process has "
                    "one such folder; give that one, or None"
                )
            jax.config.update(self._FOLDER, os.fspath(path))
            self._least_seconds = 0.0
            if not self._pauses:
                jax.config.update(self._LEAST_SECONDS, 0.0)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Lets JAX write no program into its cache until the last of the threads in here has left."""
        with self._lock:
            if not self._pauses:
                self._least_seconds = getattr(jax.config, self._LEAST_SECONDS)
                jax.config.update(self._LEAST_SECONDS, math.inf)
            self._pauses += 1
        try:
            yield
        finally:
            with self._lock:
                self._pauses -= 1
                if not self._pauses:
                    jax.config.update(self._LEAST_SECONDS, self._least_seconds)


_JAX_CACHE = _JaxCache()


@dataclass(frozen=True)
class DiskCache:
    """The programs of models in a folder."""

    folder: Path

    def entry(self, graph: Graph, start: int, end: int, cut: bool, inputs: Any, *settings: Any) -> "DiskEntry | None":
        """Returns the entry for a program; its key has all arguments. Returns None if programs are not stored.

        They are stored for one CPU device, if the features of its processor are known, and if JAX does not look for
        NaNs, which a stored program would not do.
        """
        config = cast(Any, jax.config)
        if config.jax_debug_nans or config.jax_debug_infs:
            return None
        if jax.default_backend() != "cpu" or jax.device_count() > 1 or not processor_features():
            return None
        types = jax.tree.map(lambda x: repr(jax.typeof(x)), inputs)
        of_jax = sorted((name, str(value)) for name, value in config.values.items() if "cache" not in name)
        text = fingerprint((graph, start, end, cut, types, settings, of_jax, *_process()), graph_texts(pickle.dumps))
        return DiskEntry(self.folder / f"{digest(text.encode())}-program", end)


@dataclass(frozen=True)
class DiskEntry:
    """The file of one program. end: the number of nodes of its model."""

    path: Path
    end: int

    def read(self) -> tuple[WeightProgram, tuple[int, ...], Any, Callable[[], Any]] | None:
        """Returns the function that prepares weights, the positions of the weights that the program reads, the tree of
        its results, and a function that waits for the program, which another thread loads.

        Returns None if there is no file, or if it is not the one that was written for this key; then it is replaced.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            _LOGGER.warning("cache: '%s' cannot be read, so the model is compiled: %s", self.path, error)
            return None
        content = memoryview(data)[_SIZE:]
        if self._checksum(content) != data[:_SIZE]:
            _LOGGER.warning(
                "cache: '%s' is damaged or was written for another program, so the model is compiled", self.path
            )
            return None
        prepare, read, results, wiring, programs = pickle.loads(content)
        executor = ThreadPoolExecutor(1)
        run = executor.submit(_loaded, wiring, programs)
        executor.shutdown(wait=False)

        def wait() -> Any:
            try:
                return run.result()
            except JaxRuntimeError as error:
                _LOGGER.warning("cache: '%s' cannot be loaded, so the model is compiled: %s", self.path, error)
                return None

        return prepare, read, jax.tree.structure(results), wait

    def write(self, specialized: Specialized, tree: Any, lowered: Any, check: Callable[[int], None]) -> Any:
        """Compiles the program, checks it and writes it; returns None if it cannot be written.

        tree: of its results. check: of the bytes that a call takes; it raises if they are too many.

        It cannot be written if the model is cut into pieces, if XLA prepares its weights, or if it calls functions
        whose addresses JAX inserts when it lowers the program, such as those of LAPACK.
        """
        prepare, results = specialized.prepare.portable(), _structure(tree)
        if prepare is None or results[0].value != self.end or "custom_call" in lowered.as_text():
            return None
        # XLA serializes a program that it read from JAX's cache without some of its functions (jaxlib 0.10 and 0.12),
        # and calls of what was loaded from that fail. So JAX must not write this program into its cache. It does not
        # find it there either, as no other program has its name.
        with _JAX_CACHE.paused():
            compiled = lowered.compile()
        check(most_bytes(lowered, compiled))
        wiring, runs = (lowered.wiring, compiled) if isinstance(lowered, LoweredSegments) else (None, [compiled])
        programs = [(program, *map(_structure, trees)) for program, *trees in map(serialize, runs)]
        content = pickle.dumps((prepare, specialized.read, results, wiring, programs))
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.path, "cache") as file:
                file.write_bytes(self._checksum(content) + content)
        except OSError as error:
            _LOGGER.warning("cache: '%s' cannot be written: %s", self.path, error)
        return _joined(wiring, runs)

    def _checksum(self, content: Any) -> bytes:
        """Returns the digest of the content and of the key, which is the name of the file."""
        return hashlib.blake2b(content, digest_size=_SIZE, key=self.path.name.encode()).digest()


def _loaded(wiring: SegmentedProgram | None, programs: Iterable[tuple[bytes, Any, Any]]) -> Any:
    device = jax.devices()[:1]
    runs = [
        deserialize_and_load(program, *map(jax.tree.structure, trees), execution_devices=device)
        for program, *trees in programs
    ]
    return _joined(wiring, runs)


def _joined(wiring: SegmentedProgram | None, runs: Sequence[Any]) -> Any:
    """Returns the only one of `runs`, or the program whose segments have positions in `runs`."""
    return runs[0] if wiring is None else wiring.with_runs([runs[segment.run] for segment in wiring.segments])


def _structure(tree: Any) -> Any:
    """Returns the structure of a tree as a tree of numbers, since JAX's own cannot be pickled."""
    return jax.tree.unflatten(tree, range(tree.num_leaves))


@functools.cache
def _process() -> tuple[Any, ...]:
    """Returns the part of keys that is the same in a process: code, versions, and the processor."""
    package = os.fspath(Path(__file__).parents[1])
    # `Path.rglob` takes ten times as long.
    folders = os.walk(package)
    paths = sorted(os.path.join(folder, name) for folder, _, names in folders for name in names if name.endswith(".py"))
    stamps = tuple((path[len(package) :], (stat := os.stat(path)).st_size, stat.st_mtime_ns) for path in paths)
    versions = tuple(map(_version, _PACKAGES))
    processor = platform.machine(), cores(), tuple(sorted(processor_features()))
    return stamps, versions, platform.python_version(), os.environ.get("XLA_FLAGS"), processor


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
