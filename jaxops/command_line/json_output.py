"""The output of `--json`: one JSON object, the same for each command that has the option.

command    the name of the command
jaxops     the version of jaxops
model      MODEL as it was given; null for `operators`
succeeded  false where the exit code is 1: an operator is missing (`check`), or a tensor differs (`compare`)
rows       a list of objects

The fields of a row are those of the report in Python:

check      operator, domain, version (null: none), count, status ("function", "body", "local", "missing"), hint
summary    module, level, nodes, output, parameters, flops (null: unknown), seconds (null without --time)
compare    node, operator, output, absolute, relative, agrees, note; a row for each tensor, in order
operators  name, domain, versions, static, differentiable

A number that is not finite is the string "nan", "inf" or "-inf", as JSON has none. All characters but those of ASCII
are escaped. An error prints nothing here; its message goes to stderr, and the exit code is 1.
"""

import argparse
import dataclasses
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

from jaxops import __version__
from jaxops.command_line.shared import show


def takes_json(parser: argparse.ArgumentParser) -> None:
    """Adds the option."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object; `jaxops.command_line.json_output` describes it"
    )


def show_or_dump(
    options: argparse.Namespace, rows: Iterable[Any], text: Callable[[], Any], *, succeeded: bool = True
) -> int:
    """Prints a report, as JSON if `--json` asks for it; returns the exit code.

    rows: dataclasses. text: returns what is printed without `--json`.
    """
    if options.json:
        document = {
            "command": options.command,
            "jaxops": __version__,
            "model": getattr(options, "model", None),
            "succeeded": succeeded,
            "rows": [{name: _value(x) for name, x in dataclasses.asdict(row).items()} for row in rows],
        }
        print(json.dumps(document, indent=1, allow_nan=False))
    else:
        show(text())
    return 0 if succeeded else 1


def _value(x: Any) -> Any:
    return str(float(x)) if isinstance(x, float) and not math.isfinite(x) else x
