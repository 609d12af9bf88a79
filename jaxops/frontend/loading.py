"""Makes a model of a file that a front end reads, with the options that are the same for every file format."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from jaxops import memory
from jaxops.errors import ArgumentError, near
from jaxops.frontend.adapters import adapting
from jaxops.frontend.extraction import Extraction
from jaxops.frontend.needs_x64 import needs_x64
from jaxops.frontend.options import DEFAULTS, Operators, Options
from jaxops.frontend.signature_operator import SignatureOperator
from jaxops.frontend.straight_through import with_straight_through
from jaxops.frontend.swapped_axes import with_swapped_axes
from jaxops.frontend.training import with_training
from jaxops.garbage import garbage_later
from jaxops.graph.blocks import with_blocks
from jaxops.graph.bounds import with_bounds
from jaxops.graph.declared_sizes import fixed, with_buckets
from jaxops.graph.nodes import Graph
from jaxops.graph.origin import Origin
from jaxops.model import Model
from jaxops.progress import progress
from jaxops.runtime.compiled_pieces import GraphRunner
from jaxops.runtime.disk_cache import keep_programs
from jaxops.runtime.fixed_inputs import with_values
from jaxops.tools.convert.tied_parameters import Tied, untied


def _value(x: Any) -> Any:
    """Returns the value of an input."""
    return x


_INPUT = SignatureOperator("Input", _value)


@dataclass(frozen=True)
class BoundModel:
    """A file after a front end has read it and bound its nodes.

    graph: its nodes have their operators. opsets: the version of each set of operators. description: facts about the
    file for a person. without_training: what `training=True` says if no operator trains. origin: a function from the
    fixed values of inputs (the option `values`) to the `Origin` for `Model.save` and `Model.compare`; None if these are
    not possible.
    """

    graph: Graph
    opsets: Mapping[str, int]
    description: str
    without_training: str
    origin: Callable[[Mapping[str, Any]], Origin | None]


def load_model(source: Any, bind: Callable[[Operators, Extraction], BoundModel], options: Options) -> Model:
    """Returns the model of a file.

    source: the file as the caller passed it, which progress messages name. bind: reads the file and binds its nodes; it
    takes the caller's operators, and the part that must be extracted before nodes are bound.

    Raises ArgumentError for an option that does not fit the model, and what `bind` and `Model` raise.
    """
    for name in options.keys() - DEFAULTS.keys():
        raise TypeError(f"load() got an unexpected keyword argument '{name}'{near(name, DEFAULTS)}")
    chosen = {**DEFAULTS, **options}
    x64, limit, operators = chosen["x64"], chosen["max_bytes"], chosen["operators"]
    if x64 != "auto" and not isinstance(x64, bool):
        raise ArgumentError(f"`x64` is {x64!r:.80}; it must be 'auto', True or False")
    tied = cast(Tied | None, chosen["tied"])
    if chosen["remat"] not in (None, "block"):
        raise ArgumentError(f"`remat` is {chosen['remat']!r:.80}; it must be 'block' or None")
    for name in ("training", "straight_through"):
        if not isinstance(chosen[name], bool):
            raise ArgumentError(f"`{name}` is {chosen[name]!r:.80}; it must be True or False")
    if tied not in (None, True, False) and not callable(tied):
        raise ArgumentError(f"`tied` is {tied!r:.80}; it must be True, False or a function of module paths")
    programs = None if chosen["cache"] is None else keep_programs(chosen["cache"])
    path = Path(source) if isinstance(source, str | os.PathLike) else None
    name = "a model" if path is None else f"'{path.name}'"
    limit = memory.LIMIT.get() if limit is None else limit
    with progress(f"loading {name}"), memory.max_bytes(limit), garbage_later():
        bound = bind({} if operators is None else operators, Extraction(chosen["inputs"], chosen["outputs"]))
        graph = fixed(bound.graph, {} if chosen["sizes"] is None else chosen["sizes"])
        buckets = {} if chosen["buckets"] is None else chosen["buckets"]
        graph = with_buckets(graph, buckets)
        bounds = {} if chosen["bounds"] is None else chosen["bounds"]
        graph = with_bounds(graph, bounds, _INPUT)
        values = {} if chosen["values"] is None else chosen["values"]
        graph = with_swapped_axes(untied(with_values(graph, values), tied))
        graph = with_training(graph, bound.without_training) if chosen["training"] else graph
        graph = with_straight_through(graph) if chosen["straight_through"] else graph
        return Model(
            with_blocks(graph) if chosen["remat"] else graph,
            opsets=bound.opsets,
            description=bound.description,
            # The key of a stored program would not differ between two functions of a caller.
            runner=GraphRunner(memory.LIMIT.get(), chosen["precision"], None if operators else programs, dict(buckets)),
            origin=bound.origin(values),
            static=chosen["static"],
            trainable=chosen["trainable"],
            sharding=chosen["sharding"],
            names=chosen["names"],
            adapting=None if chosen["adapters"] is None else adapting(chosen["adapters"], path and path.parent),
            x64=needs_x64 if x64 == "auto" else x64,
        )
