"""The interface of the file that a model was loaded from."""

import os
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from jaxops.graph.nodes import Graph


class Origin(Protocol):
    """The file of a model, as each front end keeps it: `Model.save` and `Model.compare` ask it."""

    def tensors(self, inputs: Mapping[str, Any], dtypes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Computes by the runtime of the format each tensor that has a name. dtypes: the inputs' types in the file.

        Raises ModuleNotFoundError, which says what to install, without that runtime; UnsupportedError for a model that
        it does not run.
        """
        ...

    def save(
        self,
        path: str | os.PathLike[str],
        graph: Graph,
        weights: Mapping[str, Any],
        dtypes: Mapping[str, np.dtype],
        original: Mapping[str, Any],
    ) -> None:
        """Writes the file with other weights.

        graph: says where each belongs. weights: by name, of any type. dtypes: their types in the file, in which they
        are written. original: the weights that the file has.
        """
        ...
