"""Cleans text that comes from a file before it is shown, so that a name cannot control a terminal or break an SVG."""


def clean(text: object, *, keep: str = "") -> str:
    r"""Text without characters that do not print: each of them becomes its escape sequence.

    Such are control characters, marks that reorder a line, separators of lines, and halves of surrogate pairs. keep:
    characters that stay, such as the newlines of a text of several lines.

    >>> clean("a\x1b[2Jb\n")
    'a\\x1b[2Jb\\n'
    >>> clean("批 × é")
    '批 × é'
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in plain)
