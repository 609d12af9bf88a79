"""The mark of a constant that was chosen by measuring."""

from typing import NamedTuple


class Tuned(NamedTuple):
    """A mark: `_MANY_ROWS: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 100`.

    processor: on which one, and date: when half and twice the value were last measured beside it, and were no faster;
    "not recorded" where an older measurement left no record. `tests/benchmarks/thresholds.py` measures all of them
    again, and names those that should move.
    """

    processor: str
    date: str
