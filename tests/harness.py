"""One table of cases, many properties: what every operator that moves data must satisfy.

A case says what comes out for NumPy inputs; each way runs the same case differently, and compares bit for bit.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.export import export, symbolic_args_specs
from jax.sharding import Mesh, PartitionSpec


class Case(NamedTuple):
    """`fn(*inputs)` must be `expected`, an array or a tuple of arrays."""

    name: str
    fn: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    expected: Any
    symbolic: tuple[str, ...] | None = None  # shapes of the inputs for `jax.export`, such as "b, 2*c, 3"

    def __str__(self) -> str:
        return self.name


def data(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Distinct numbers, so that no two elements can change places unseen."""
    return np.arange(1, np.prod(shape, dtype=int) + 1).astype(dtype).reshape(shape)


def same(got: Any, expected: Any) -> None:
    """Asserts equal structure, shapes, element types and bytes."""
    if isinstance(expected, tuple):
        assert isinstance(got, tuple)
        assert len(got) == len(expected)
        for g, e in zip(got, expected, strict=True):
            same(g, e)
        return
    values = np.asarray(got)
    assert values.shape == expected.shape, f"shape {values.shape}, expected {expected.shape}"
    assert values.dtype == expected.dtype, f"dtype {values.dtype}, expected {expected.dtype}"
    if expected.dtype.kind in "OUST":
        assert values.tolist() == expected.tolist()
    else:
        assert values.tobytes() == expected.tobytes(), f"got\n{values}\nexpected\n{expected}"


def _traced(case: Case) -> list[jax.Array]:
    return [jnp.asarray(x) for x in case.inputs]


def _tree(fn: Callable[..., Any], *trees: Any) -> Any:
    return jax.tree.map(fn, *trees)


def _batch(case: Case) -> tuple[list[np.ndarray], Any]:
    """Two different instances of the case on a new leading axis, and what comes out for both."""
    instances = [[np.flip(x) * 2 if x.dtype.kind == "f" else x for x in case.inputs], list(case.inputs)]
    results = [_tree(np.asarray, case.fn(*instance)) for instance in instances]
    same(results[1], case.expected)
    return [np.stack(xs) for xs in zip(*instances, strict=True)], _tree(lambda *ys: np.stack(ys), *results)


def static(case: Case) -> None:
    """Static operands: computed by NumPy, and static again."""
    result = case.fn(*case.inputs)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(result)), "a static result was traced"
    same(result, case.expected)


def eager(case: Case) -> None:
    result = case.fn(*_traced(case))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(result))
    same(result, case.expected)


def jitted(case: Case) -> None:
    """Compiled, and traced for the first call only."""
    chex.clear_trace_counter()  # it counts functions with the same source as one
    run = jax.jit(chex.assert_max_traces(lambda *xs: case.fn(*xs), n=1))
    for _ in range(2):
        same(run(*_traced(case)), case.expected)


def vmapped(case: Case) -> None:
    xs, expected = _batch(case)
    same(jax.jit(jax.vmap(case.fn))(*xs), expected)


def sharded(case: Case) -> None:
    """An instance of the case on each of two devices."""
    xs, expected = _batch(case)
    assert len(jax.devices()) >= 2, "XLA_FLAGS must ask for two host devices"
    mesh, spec = Mesh(np.array(jax.devices()[:2]), ("i",)), PartitionSpec("i")
    run = jax.shard_map(jax.vmap(case.fn), mesh=mesh, in_specs=(spec,) * len(xs), out_specs=spec)
    same(jax.jit(run)(*xs), expected)


def differentiated(case: Case) -> None:
    """These operators are linear: the derivative is the operator itself, and its transpose must fit it."""
    moving = [i for i, x in enumerate(case.inputs) if x.dtype.kind == "f"]

    def fn(*xs: Any) -> Any:
        inputs = list(case.inputs)
        for i, x in zip(moving, xs, strict=True):
            inputs[i] = x
        return case.fn(*inputs)

    xs = [jnp.asarray(case.inputs[i]) for i in moving]
    tangents = [x[::-1] if x.ndim else x for x in xs]
    out, tangent = jax.jvp(fn, xs, tangents)
    same(out, case.expected)
    same(tangent, _tree(np.asarray, fn(*map(np.asarray, tangents))))
    _, pullback = jax.vjp(fn, *xs)
    cotangent = _tree(lambda y: y + 1, out)
    there = sum(float(jnp.vdot(a, b)) for a, b in zip(*map(jax.tree.leaves, (cotangent, tangent)), strict=True))
    back = sum(float(jnp.vdot(a, b)) for a, b in zip(pullback(cotangent), tangents, strict=True))
    assert there == back, f"<ct, J t> is {there}, <Jᵀ ct, t> is {back}"


def exported(case: Case) -> None:
    """Exported once with symbolic sizes, called at the sizes of the case and at larger ones."""
    assert case.symbolic is not None
    known: dict[str, int] = {}
    for spec, x in zip(case.symbolic, case.inputs, strict=True):
        for dim, size in zip(filter(None, map(str.strip, spec.split(","))), x.shape, strict=True):
            if found := re.fullmatch(r"(?:(\d+)\*)?([a-z]\w*)", dim):
                known[found[2]] = size // int(found[1] or 1)
    larger = []
    for spec in case.symbolic:
        dims = filter(None, map(str.strip, spec.split(",")))
        larger.append(tuple(eval(dim, {}, {name: size + 2 for name, size in known.items()}) for dim in dims))
    program = export(jax.jit(case.fn))(*symbolic_args_specs(list(_traced(case)), list(case.symbolic)))
    same(_tree(np.asarray, program.call(*_traced(case))), case.expected)
    others = [data(*shape, dtype=x.dtype) for shape, x in zip(larger, case.inputs, strict=True)]
    same(_tree(np.asarray, program.call(*others)), _tree(np.asarray, case.fn(*others)))


WAYS = {way.__name__: way for way in (static, eager, jitted, vmapped, sharded, differentiated, exported)}


def table(cases: list[Case], *ways: str) -> list[Any]:
    """(way, case) for each way (all without any) that the case can go."""
    return [
        (WAYS[name], case)
        for case in cases
        for name in (ways or WAYS)
        if (name != "exported" or case.symbolic is not None)
        and (name != "differentiated" or any(x.dtype.kind == "f" for x in case.inputs))
    ]


def name(value: Any) -> str:
    """The identifier of a parameter: `pytest.mark.parametrize(..., ids=name)`."""
    return getattr(value, "__name__", None) or str(value)


def program(fn: Callable[..., Any], *shapes: tuple[int, ...]) -> str:
    """The compiled HLO of `fn` on float32 operands."""
    return jax.jit(fn).lower(*(jax.ShapeDtypeStruct(s, np.float32) for s in shapes)).compile().as_text()


def equations(fn: Callable[..., Any], *inputs: Any) -> int:
    return len(jax.make_jaxpr(fn)(*inputs).jaxpr.eqns)
