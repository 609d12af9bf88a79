"""The command that lists the operators of jaxops."""

import argparse
from collections.abc import Sequence
from typing import Any

from jaxops.command_line.json_output import show_or_dump, takes_json
from jaxops.command_line.shared import command
from jaxops.errors import ArgumentError, amount
from jaxops.frontend.catalogue import OperatorRow
from jaxops.tools.inspect.tables import Table


def add(commands: Any) -> None:
    """Adds the command."""
    parser = command(commands, _operators, "--domain com.microsoft --grep Matmul", model=False)
    takes_json(parser)
    parser.add_argument("--domain", help="only this domain: ai.onnx, com.microsoft, openvino, …")
    parser.add_argument("--grep", default="", metavar="TEXT", help="only names that contain this, in any case")


def _operators(options: argparse.Namespace) -> int:
    """Lists the operators of jaxops: versions, operands that must be static, whether they have a derivative."""
    if options.domain == "openvino":
        from jaxops.openvino.catalogue import operators
    else:
        from jaxops.onnx.catalogue import operators

    catalogue = operators()
    domains = sorted({"openvino", *(row.domain for row in catalogue)})
    if options.domain is not None and options.domain not in domains:
        raise ArgumentError(f"--domain {options.domain}: jaxops has {', '.join(domains)}")
    rows = [
        row for row in catalogue if options.domain in (None, row.domain) and options.grep.lower() in row.name.lower()
    ]
    return show_or_dump(options, rows, lambda: _table(rows))


def _table(rows: Sequence[OperatorRow]) -> Table:
    columns = ("operator", "domain", "versions", "static operands", "differentiable")
    cells = [
        (
            row.name,
            row.domain,
            ", ".join(map(str, row.versions)),
            ", ".join(row.static),
            "yes" if row.differentiable else "",
        )
        for row in rows
    ]
    return Table([amount(len(rows), "operator")], columns, cells)
