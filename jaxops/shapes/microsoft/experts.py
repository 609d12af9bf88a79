"""Sizes of mixtures of experts."""

from jaxops.errors import ArgumentError
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.microsoft.quantized.block_quantization import packed
from jaxops.static import Dim, Sizes


def routing(op: str, x: Sizes, router: Sizes, k: int) -> tuple[Dim, Dim]:
    """(tokens, experts); ShapeError unless the router has a row for each token, and k experts at least."""
    must_fit(op, "input", x, ("tokens", "hidden"), ("batch", "steps", "hidden"))
    tokens = x[0] if len(x) == 2 else x[0] * x[1]
    must_fit(op, "router_probs", router, (tokens, "experts"))
    if not 1 <= k <= router[1]:
        raise ArgumentError(f"{op}: `k` is {k}; it must be from 1 to the number of experts, {router[1]}")
    return tokens, router[1]


def weights(op: str, names: Sizes, operands: dict[str, Sizes | None], experts: Dim, rows: Dim, columns: Dim) -> None:
    """ShapeError unless the weights of a layer are (experts, rows, columns) and its bias (experts, rows)."""
    for name, expected in zip(names, ((experts, rows, columns), (experts, rows)), strict=True):
        must_fit(op, name, operands[name], expected)


def scales(op: str, name: str, w: Sizes, scales: Sizes, zeros: Sizes | None, bits: int, block_size: int) -> None:
    """ShapeError unless packed weights (experts, rows, bytes) have a scale for each row, or each block of it."""
    experts, rows, width = w
    blocks = -(-width * (8 // bits) // block_size) if block_size else None
    scale_sizes = (experts, rows) if blocks is None else (experts, rows, blocks)
    must_fit(op, f"{name}_scales", scales, scale_sizes)
    must_fit(op, f"{name}_zero_points", zeros, (*scale_sizes[:-1], packed(scale_sizes[-1], bits)))
