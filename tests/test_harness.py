"""The harness itself: wrong operators must be caught, each by the property that it breaks."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import WAYS, Case, data

X = data(2, 3)


def right(x):
    return x.reshape(x.shape)


def swapped(x):
    return x[::-1].reshape(2, 3)


def other_dtype(x):
    return x.astype(np.float16)


def other_shape(x):
    return x.reshape(1, 2, 3)


def always_traced(x):
    return jnp.asarray(x)


def only_the_case(x):
    return x if isinstance(x, np.ndarray) else jnp.asarray(X)


def no_gradient(x):
    return x if isinstance(x, np.ndarray) else jax.lax.stop_gradient(x)


@jax.custom_vjp
def _wrong_transpose(x):
    return x * 1


_wrong_transpose.defvjp(lambda x: (x * 1, None), lambda _, ct: (ct[::-1],))


def baked_size(x):
    return x.reshape(2, 3)


def batch_seen(x):
    # Moves elements between the instances of a batch: what a leak of the batch axis would do.
    return (
        x
        if isinstance(x, np.ndarray)
        else jax.pure_callback(lambda v: np.roll(v, 1, axis=0), x, x, vmap_method="expand_dims")
    )


@pytest.mark.parametrize("way", WAYS)
def test_right_passes(way):
    WAYS[way](Case("right", right, (X,), X, ("b, 3",)))


@pytest.mark.parametrize("way", ["static", "eager", "jitted", "vmapped", "sharded", "exported", "differentiated"])
@pytest.mark.parametrize("wrong", [swapped, other_dtype, other_shape])
def test_wrong_values(wrong, way):
    with pytest.raises((AssertionError, TypeError, ValueError)):
        WAYS[way](Case("wrong", wrong, (X,), X, ("b, 3",)))


@pytest.mark.parametrize(
    ("way", "wrong"),
    [
        ("static", always_traced),
        ("vmapped", only_the_case),
        ("vmapped", batch_seen),
        ("sharded", only_the_case),
        ("exported", baked_size),
        ("differentiated", no_gradient),
    ],
)
def test_wrong_property(way, wrong):
    with pytest.raises((AssertionError, TypeError, ValueError)):
        WAYS[way](Case("wrong", wrong, (X,), X, ("b, 3",)))


def test_wrong_transpose(monkeypatch):
    # A custom_vjp has no jvp; hand the harness a linear one, so that only the transpose is wrong.
    monkeypatch.setattr(jax, "jvp", lambda fn, xs, ts: (fn(*xs), fn(*ts)))
    with pytest.raises(AssertionError, match="<ct, J t>"):
        WAYS["differentiated"](
            Case("wrong", lambda x: x if isinstance(x, np.ndarray) else _wrong_transpose(x), (X,), X)
        )


def test_modules_without_tests_run_once(request):
    """Collected as tests, they would run once more: tables would get everything twice, a seed make another model."""
    ignores = request.config.hook.pytest_ignore_collect
    for path in Path(__file__).parent.rglob("*.py"):
        ignored = bool(ignores(collection_path=path, config=request.config))
        assert ignored != path.name.startswith("test_"), path
