"""Sizes of mixtures of experts."""

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import must_agree, sizes_fit
from jaxops.shapes.microsoft.quantized.block_quantization import packed
from jaxops.static import Dim, Sizes


def routing(op: str, x: Sizes, router: Sizes, k: int) -> tuple[Dim, Dim]:
    """(tokens, experts); ShapeError unless the router has a row for each token, and k experts at least."""
    if len(x) not in (2, 3):
        raise ShapeError(f"{op}: `input` of {shape_text(x)} must be (tokens, hidden) or (batch, steps, hidden)")
    tokens = x[0] if len(x) == 2 else x[0] * x[1]
    problem = f"{op}: `router_probs` of {shape_text(router)} must be ({tokens}, experts)"
    if not sizes_fit(problem, router, (tokens, None)):
        raise ShapeError(problem)
    if not 1 <= k <= router[1]:
        raise ArgumentError(f"{op}: `k` is {k}; it must be from 1 to the number of experts, {router[1]}")
    return tokens, router[1]


def weights(op: str, names: Sizes, operands: dict[str, Sizes | None], experts: Dim, rows: Dim, columns: Dim) -> None:
    """ShapeError unless the weights of a layer are (experts, rows, columns) and its bias (experts, rows)."""
    for name, expected in zip(names, ((experts, rows, columns), (experts, rows)), strict=True):
        sizes = operands[name]
        if sizes is not None and sizes != expected:
            must_agree(f"{op}: `{name}` of {shape_text(sizes)} must be {shape_text(expected)}", sizes, expected)


def scales(op: str, name: str, w: Sizes, scales: Sizes, zeros: Sizes | None, bits: int, block_size: int) -> None:
    """ShapeError unless packed weights (experts, rows, bytes) have a scale for each row, or each block of it."""
    experts, rows, width = w
    blocks = -(-width * (8 // bits) // block_size) if block_size else None
    scale_sizes = (experts, rows) if blocks is None else (experts, rows, blocks)
    if scales != scale_sizes:
        must_agree(
            f"{op}: `{name}_scales` of {shape_text(scales)} must be {shape_text(scale_sizes)}", scales, scale_sizes
        )
    expected = (*scale_sizes[:-1], packed(scale_sizes[-1], bits))
    if zeros is not None and zeros != expected:
        must_agree(f"{op}: `{name}_zero_points` of {shape_text(zeros)} must be {shape_text(expected)}", zeros, expected)
