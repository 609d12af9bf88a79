"""The functions of operators, by name, and where the meaning differs between versions, by version."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

Function = Callable[..., Any]


class Versions:
    """The adapters of a front end: functions for operators from a version on, in the modules of one package.

    Its modules register them by `version`; they are imported at the first question.
    """

    def __init__(self, package: str) -> None:
        """package: the name of the package whose modules hold the adapters."""
        self.package = package
        self.table: dict[tuple[str, str], dict[int, Function]] = {}
        self._imported = False

    def version(self, op_type: str, since: int, domain: str = "") -> Callable[[Function], Function]:
        """Registers a function for an operator from version `since` on; its signature is that version's signature."""

        def register(fn: Function) -> Function:
            self.table.setdefault((domain, op_type), {})[since] = fn
            return fn

        return register

    def adapters(self) -> Mapping[tuple[str, str], Mapping[int, Function]]:
        """All adapters: (domain, operator) → since → function."""
        if not self._imported:  # modules that are being imported ask nothing
            for module in pkgutil.iter_modules(importlib.import_module(self.package).__path__):
                importlib.import_module(f"{self.package}.{module.name}")
            self._imported = True
        return self.table


def newest(registered: Mapping[int, Function], version: int) -> Function | None:
    """The adapter of the newest version not above `version`."""
    return registered.get(max((since for since in registered if since <= version), default=0))


def by_type(module: ModuleType) -> dict[str, Function]:
    """The functions of a module under their names without underscores, as an operator's type in lower case."""
    return {name.replace("_", ""): getattr(module, name) for name in module.__all__}
