"""The operators of a model that jaxops does not have, told in one error."""

from jaxops.errors import UnsupportedError

# So many nodes are named for a reason, and so many operators in the hint.
_MOST_NODES, _MOST_KEYS = 3, 4


class MissingOperators:
    """Collects what a front end misses while it binds nodes. reasons: why → the labels of the nodes."""

    def __init__(self) -> None:
        self.reasons: dict[str, list[str]] = {}
        self._keys: dict[tuple[str, str], None] = {}

    def add(self, reason: str, label: str, key: tuple[str, str] | None = None) -> None:
        """Notes a node. key: of a function that a caller may give `load` for its operator."""
        self.reasons.setdefault(reason, []).append(label)
        if key is not None:
            self._keys[key] = None

    def report(self, model: str = "the model", noun: str = "node") -> None:
        """Raises UnsupportedError if anything is missing. model, noun: what messages call the model and a node."""
        if not self.reasons:
            return
        lines = [f"  {reason}  ({noun} {_some(labels)})" for reason, labels in sorted(self.reasons.items())]
        keys = ", ".join(f"{key}: fn" for key in list(self._keys)[:_MOST_KEYS])
        hint = f"\n  hint    give a function for each: load(path, operators={{{keys}}})" if keys else ""
        raise UnsupportedError(f"{model} uses operators that jaxops does not have:\n" + "\n".join(lines) + hint)


def _some(labels: list[str]) -> str:
    more = len(labels) - _MOST_NODES
    return ", ".join(f"'{label}'" for label in labels[:_MOST_NODES]) + (f" and {more} more" if more > 0 else "")
