"""The interface to the file that a model was loaded from."""

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from jaxops.graph.nodes import Graph


class Origin(Protocol):
    """The file of a model. Each front end implements it for `Model.save` and `Model.compare`."""

    suffix: ClassVar[str]  # of a path for `save`

    def tensors(self, inputs: Mapping[str, Any], dtypes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns each tensor that has a name, computed by the format's own runtime. dtypes: the inputs' types in the
        file.

        Raises ModuleNotFoundError, which names the package to install, if the runtime is missing; UnsupportedError for
        a model that the runtime does not run.
        """
        ...

    def save(
        self,
        path: str | os.PathLike[str],
        graph: Graph,
        weights: Mapping[str, Any],
        dtypes: Mapping[str, np.dtype],
        original: Mapping[str, Any],
    ) -> "Origin":
        """Writes the file with other weights.

        graph: maps names of parameters to places in the file. weights: by name, of any type. dtypes: their types in the
        file, to which they are converted. original: the weights of the file that are known. Returns the origin that the
        new file is.
        """
        ...
