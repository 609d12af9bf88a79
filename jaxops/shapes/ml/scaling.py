"""Sizes of attributes with one value for all features, or one per feature."""

from jaxops.errors import ShapeError, amount, shape_text
from jaxops.static import Dim, Sizes


def per_feature(name: str, count: int, sizes: Sizes) -> None:
    """Raises ShapeError unless `count` values are one for all, or one for each element of the last axis."""
    features: Dim = sizes[-1] if sizes else 1
    if count != 1 and isinstance(features, int) and count != features:
        raise ShapeError(
            f"`{name}` has {amount(count, 'value')}, but x of {shape_text(sizes)} has "
            f"{amount(features, 'feature')} along its last axis; give one value, or {features}"
        )


def vector_or_matrix(sizes: Sizes) -> Sizes:
    """(rows, features) of [C], which is one row, or of [N, C]."""
    if len(sizes) not in (1, 2):
        raise ShapeError(f"x of {shape_text(sizes)} must be (rows, features), or (features,) for one row")
    return sizes if len(sizes) == 2 else (1, *sizes)
