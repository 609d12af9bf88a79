"""Operations in the text of a compiled program."""

import re
from collections import Counter

_OPERATION = re.compile(r"^\s*(?:ROOT )?%?[\w.-]+ = (?:\([^=]*?\)|\S+) ([a-z][\w-]*)\(", re.MULTILINE)


def operations(compiled, outer=False):
    """Counts the operations of a compiled program by name. outer: only those outside of fusions, loops and calls."""
    text = compiled.as_text()
    found = Counter(_OPERATION.findall(text[text.index("\nENTRY") :] if outer else text))
    assert found
    return found
