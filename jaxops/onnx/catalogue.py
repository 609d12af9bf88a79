"""A row for each operator of each domain that jaxops has."""

from jaxops.errors import UnsupportedError
from jaxops.frontend.catalogue import OperatorRow, operator_row
from jaxops.onnx.registry import DOMAINS, find
from jaxops.onnx.schemas import operators as names_of, versions


def operators() -> tuple[OperatorRow, ...]:
    """The operators that jaxops has, by domain and name."""
    rows = []
    for domain in DOMAINS:
        for name in names_of(domain):
            since_versions = tuple(since for since in versions(name, domain) if _has(name, domain, since))
            if since_versions:
                newest = find(name, domain, since_versions[-1])
                rows.append(operator_row(newest, domain or "ai.onnx", since_versions))
    return tuple(rows)


def _has(name: str, domain: str, since: int) -> bool:
    try:
        find(name, domain, since)
    except UnsupportedError:
        return False
    return True
