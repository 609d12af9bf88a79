"""Sizes of Fourier transforms and of the frames of a signal."""

from jaxops.errors import ShapeError, SizeError, shape_text
from jaxops.shapes.arithmetic import at_least, floored, must_fit, sizes_fit
from jaxops.static import Dim, Sizes, is_symbolic

# The matrix of a transform of this many points takes 2 GB, or half of that for real numbers.
MOST_POINTS = 2**14


def is_complex(name: str, sizes: Sizes) -> bool:
    """Returns True if the last axis holds a real and an imaginary part, False if it holds a real part alone."""
    problem = (
        f"`{name}` of {shape_text(sizes)} must have at least 2 axes, the last one of size 1 for real numbers "
        f"or 2 for complex ones"
    )
    if len(sizes) < 2 or not sizes_fit(problem, sizes[-1:], (1,), (2,)):
        raise ShapeError(problem)
    return sizes[-1] == 2


def transform_length(size: Dim, dft_length: Dim | None, from_onesided: bool) -> Dim:
    """The number of points of a transform along an axis of this size; a symbolic one is at most `MOST_POINTS`."""
    length = dft_length if dft_length is not None else 2 * (size - 1) if from_onesided else size
    problem = f"a transform of {length} points; there must be at least 1"
    if not at_least(problem, length, 1):
        raise ShapeError(problem)
    if is_symbolic(length):
        problem = f"a transform of the symbolic size {length} may have at most {MOST_POINTS} points"
        if not at_least(problem, MOST_POINTS, length):
            raise ShapeError(problem)
    return length


def frames(length: Dim, frame_step: int, window: Sizes | None, frame_length: int | None) -> tuple[Dim, int]:
    """Returns the number of frames within a signal, and their length."""
    reason = "" if frame_length is None else ", as `frame_length` says"
    must_fit("window", window, ("length" if frame_length is None else frame_length,), reason=reason)
    each = frame_length if frame_length is not None else window[0] if window is not None else length
    if is_symbolic(each):
        raise SizeError(f"a frame has the symbolic size {each}; it needs a size that is a number", each)
    each = transform_length(each, None, False)
    problem = f"a frame of {each} samples is longer than the signal of {length}"
    if not at_least(problem, length, each):
        raise ShapeError(problem)
    return floored(length - each, frame_step) + 1, each
