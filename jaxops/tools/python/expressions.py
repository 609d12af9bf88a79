"""Python expressions, and their layout, which is that of `ruff format` and black at 88 columns."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

WIDTH = 88
INDENT = "    "
_SUBSCRIPTED = re.compile(r"""\w+(\["[^"\\]*"\])+(\.[\w.()]+)?""")


@dataclass(frozen=True)
class Ref:
    """A value of the model, by its name in the model."""

    name: str


@dataclass(frozen=True)
class Size:
    """A number computed from symbolic sizes: its text, and the symbols in it."""

    text: str
    symbols: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Data:
    """A static array that is too large to be written in place."""

    value: Any


@dataclass(frozen=True)
class Group:
    """Items between brackets: a call, a tuple, a list. labels: the keyword of each item, or ''."""

    opening: str
    items: "tuple[Expression, ...]"
    closing: str
    labels: tuple[str, ...] = field(default=())

    def labelled(self) -> "Iterator[tuple[str, Expression]]":
        """The items, each with its prefix."""
        labels = self.labels or ("",) * len(self.items)
        return ((f"{label}=" if label else "", item) for label, item in zip(labels, self.items, strict=True))


Expression: TypeAlias = str | Ref | Size | Data | Group


def call(function: str, items: Sequence[Expression], labels: Sequence[str] = ()) -> Group:
    """A call of a function."""
    return Group(f"{function}(", tuple(items), ")", tuple(labels))


def sequence(brackets: str, items: Sequence[Expression]) -> Group:
    """A tuple or a list. A comma makes a tuple of one."""
    one = brackets == "()" and len(items) == 1
    return Group(brackets[0], tuple(items), f",{brackets[1]}" if one else brackets[1])


def leaves(expression: Expression) -> Iterator[Expression]:
    """The leaves of an expression, from left to right."""
    if isinstance(expression, Group):
        for item in expression.items:
            yield from leaves(item)
    else:
        yield expression


def refs(expression: Expression) -> Iterator[str]:
    """The values that an expression reads."""
    return (leaf.name for leaf in leaves(expression) if isinstance(leaf, Ref))


def depth(expression: Expression) -> int:
    """The depth of nested groups; brackets around plain items do not count."""
    if not isinstance(expression, Group):
        return 0
    inner = max(map(depth, expression.items), default=0)
    return inner + (expression.opening not in "([")


def replaced(expression: Expression, by: Callable[[Expression], Expression]) -> Expression:
    """The expression with other leaves."""
    if isinstance(expression, Group):
        items = tuple(replaced(item, by) for item in expression.items)
        return Group(expression.opening, items, expression.closing, expression.labels)
    return by(expression)


def flat(expression: Expression) -> str:
    """An expression on one line; its leaves are text."""
    if isinstance(expression, Group):
        items = ", ".join(label + flat(item) for label, item in expression.labelled())
        return expression.opening + items + expression.closing
    assert isinstance(expression, str)
    return expression


def laid_out(before: str, expression: Expression, after: str = "", indent: str = "") -> list[str]:
    """The lines of a statement or an item; before and after: the text around it on its line."""
    line = f"{indent}{before}{flat(expression)}{after}"
    if len(line) > WIDTH and isinstance(expression, str) and not before.endswith(" "):
        return _subscripted(f"{indent}{before}", expression, after, indent)
    if len(line) <= WIDTH or not isinstance(expression, Group) or not expression.items:
        return [line]
    inner = indent + INDENT
    if before.endswith(" = ") and ", " in before and len(f"{indent}{before}(") > WIDTH:
        targets = [f"{inner}{target}," for target in before.removesuffix(" = ").split(", ")]
        return [f"{indent}(", *targets, *laid_out(") = ", expression, after, indent)]
    if before.endswith(" = ") and len(indent + before + expression.opening) > WIDTH:
        return [f"{indent}{before}(", *laid_out("", expression, "", inner), f"{indent})"]
    lines = [f"{indent}{before}{expression.opening}"]
    together = inner + flat(Group("", expression.items, "", expression.labels))
    closing = expression.closing.lstrip(",")
    if len(together) <= WIDTH and (expression.opening not in ("(", "[") or before.startswith("def ")):
        lines.append(together)
    else:
        for label, item in expression.labelled():
            lines += laid_out(label, item, ",", inner)
    return [*lines, f"{indent}{closing}{after}"]


def _subscripted(before: str, expression: str, after: str, indent: str) -> list[str]:
    """The lines of an item such as `params["a"]["b"]`: a subscript that does not fit is broken."""
    if not _SUBSCRIPTED.fullmatch(expression):
        return [before + expression + after]
    subscripts, bracket, call = expression.rpartition("].")
    if bracket and '"' not in call:  # such as `.view(jnp.bfloat16)`
        expression, after = f"{subscripts}]", f".{call}{after}"
    parts = re.split(r"(?=\[\")", expression)
    lines, line = [], before + parts[0]
    for k, part in enumerate(parts[1:], 1):
        if len(f"{line}{part}{'[' if k + 1 < len(parts) else after}") > WIDTH:
            lines += [f"{line}[", f"{indent}{INDENT}{part[1:-1]}"]
            line, part = indent, "]"
        line += part
    return [*lines, line + after]
