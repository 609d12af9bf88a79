"""The functions of operators by name, and adapters for versions of an operator with another meaning or signature."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

Function = Callable[..., Any]


class Versions:
    """The adapters of a front end: functions for operators from a version on, in the modules of one package.

    The modules register adapters with `version`. They are imported when an adapter is first looked up.
    """

    def __init__(self, package: str) -> None:
        """package: the name of the package whose modules hold the adapters."""
        self.package = package
        self.table: dict[tuple[str, str], dict[int, Function]] = {}
        self._imported = False

    def version(self, op_type: str, since: int, domain: str = "") -> Callable[[Function], Function]:
        """Registers a function for an operator from version `since` on, with that version's signature."""

        def register(fn: Function) -> Function:
            self.table.setdefault((domain, op_type), {})[since] = fn
            return fn

        return register

    def adapters(self) -> Mapping[tuple[str, str], Mapping[int, Function]]:
        """All adapters: (domain, operator) → since → function."""
        if not self._imported:  # modules look up no adapters while they are imported
            for module in pkgutil.iter_modules(importlib.import_module(self.package).__path__):
                importlib.import_module(f"{self.package}.{module.name}")
            self._imported = True
        return self.table


def newest(registered: Mapping[int, Function], version: int) -> Function | None:
    """The adapter of the newest version up to `version`; None if there is none."""
    return registered.get(max((since for since in registered if since <= version), default=0))


def by_type(module: ModuleType) -> dict[str, Function]:
    """The functions of a module by name without underscores: the name of an operator in lower case."""
    return {name.replace("_", ""): getattr(module, name) for name in module.__all__}
