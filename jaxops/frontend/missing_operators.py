"""Collects the operators of a model that jaxops does not have, and raises one error for all of them."""

from jaxops.errors import UnsupportedError

# The largest number of nodes that an error names for each reason, and of operators in its hint.
_MOST_NODES, _MOST_KEYS = 3, 4


class MissingOperators:
    """Collects the nodes for which a front end has no operator. reasons: reason → the labels of the nodes."""

    def __init__(self) -> None:
        self.reasons: dict[str, list[str]] = {}
        self._keys: dict[tuple[str, str], None] = {}

    def add(self, reason: str, label: str, key: tuple[str, str] | None = None) -> None:
        """Adds a node. key: the (domain, name) under which a caller can pass a function to `load`."""
        self.reasons.setdefault(reason, []).append(label)
        if key is not None:
            self._keys[key] = None

    def report(self, model: str = "the model", noun: str = "node") -> None:
        """Raises UnsupportedError if an operator is missing. model, noun: what messages call the model and a node."""
        if not self.reasons:
            return
        lines = [f"  {reason}  ({noun} {_some(labels)})" for reason, labels in sorted(self.reasons.items())]
        keys = ", ".join(f"{key}: fn" for key in list(self._keys)[:_MOST_KEYS])
        hint = f"\n  hint    give a function for each: load(path, operators={{{keys}}})" if keys else ""
        raise UnsupportedError(f"{model} uses operators that jaxops does not have:\n" + "\n".join(lines) + hint)


def _some(labels: list[str]) -> str:
    more = len(labels) - _MOST_NODES
    return ", ".join(f"'{label}'" for label in labels[:_MOST_NODES]) + (f" and {more} more" if more > 0 else "")
