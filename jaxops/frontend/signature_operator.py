"""What the signature of a function says about the operator that it computes."""

from typing import Any, Literal, get_args, get_origin

# Parameters that are neither inputs nor attributes: what the node asks for and what the model was given.
RESERVED = {"n_outputs", "rng"}


def marks(annotation: Any) -> tuple[Any, ...]:
    """What `Annotated` carries, also inside a union with None."""
    found = tuple(getattr(annotation, "__metadata__", ()))
    for part in get_args(annotation):
        found += tuple(getattr(part, "__metadata__", ()))
    return found


def choices(annotation: Any) -> tuple[Any, ...]:
    """What a `Literal`, also inside a union with None, allows; empty for another annotation."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next((get_args(part) for part in get_args(annotation) if get_origin(part) is Literal), ())
