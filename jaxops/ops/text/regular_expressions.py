"""Regular expressions in the notation of RE2, which onnxruntime runs: matching takes time linear in the text."""

from typing import Any

from jaxops.errors import ArgumentError, UnsupportedError, install


def compiled(attribute: str, pattern: str, *, longest: bool = False) -> Any:
    """A compiled pattern of `re2`, for text from `encoded`. Its matches have no groups, which may take gigabytes.

    longest: takes the longest of the matches at one position.

    Raises ArgumentError for a malformed pattern and for what RE2 lacks (backreferences, lookaround, possessive
    quantifiers), UnsupportedError without `google-re2`.
    """
    try:
        import re2
    except ImportError as error:
        raise UnsupportedError(f"regular expressions need google-re2; {install('onnx')}") from error
    options = re2.Options()
    options.log_errors, options.longest_match, options.never_capture = False, longest, True
    try:
        return re2.compile(encoded(pattern), options)
    except re2.error as error:
        problem = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error.args[0]
        raise ArgumentError(f"`{attribute}` {pattern!r} is not valid in RE2's notation: {problem}") from error


def encoded(text: str) -> bytes:
    """A string as bytes, as RE2 reads it; a string with lone surrogates raises no error."""
    return text.encode(errors="surrogatepass")
