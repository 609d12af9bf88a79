"""Shows text that comes from a file: names, labels, metadata."""


def clean(text: object, *, keep: str = "") -> str:
    r"""Text from a file as it is shown: what does not print is written as Python writes it, so that no name controls a
    terminal, breaks an SVG, or looks like another one.

    These are control characters, marks of direction, separators of lines, halves of surrogate pairs. keep: characters
    that stay, such as the newlines of a text of several lines.

    >>> print(clean("conv\n\x1b[1m"), clean("批 × é"))
    conv\n\x1b[1m 批 × é
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in plain)


def one_line(text: str, longest: int) -> str:
    """Text from a file as a line of at most so many characters, control characters as Python writes them.

    >>> one_line("conv\\n\\x1b[1m", 99), one_line("encoder.layer.0", 8)
    ('conv\\\\n\\\\x1b[1m', 'encoder…')
    """
    line = clean(text[: longest + 1])
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
