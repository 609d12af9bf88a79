"""The operators of a namespace by family, as `help` shows them."""

import textwrap
from collections.abc import Mapping
from types import ModuleType

_WIDTH = 110


def families(namespace: ModuleType) -> dict[str, list[str]]:
    """Returns the names of operators by family: the folder, or the file, that holds them below the namespace.

    >>> from jaxops import ops
    >>> families(ops)["controlflow"]
    ['if_', 'loop', 'scan']
    """
    names: dict[str, list[str]] = {}
    depth = namespace.__name__.count(".") + 1
    for name in sorted(namespace.__all__):
        names.setdefault(getattr(namespace, name).__module__.split(".")[depth], []).append(name)
    return dict(sorted(names.items()))


def family_table(names: Mapping[str, list[str]]) -> str:
    """Returns a text with a paragraph for each family.

    >>> print(family_table({"controlflow": ["if_", "loop", "scan"], "text": ["string_concat"]}))
    controlflow  if_, loop, scan
    text         string_concat
    """
    column = max(map(len, names)) + 2
    return "\n".join(
        textwrap.fill(", ".join(listed), _WIDTH, initial_indent=family.ljust(column), subsequent_indent=" " * column)
        for family, listed in names.items()
    )
