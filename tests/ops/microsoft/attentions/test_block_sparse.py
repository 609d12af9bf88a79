"""Attention with a block mask, beside onnxruntime, which wants the caches of past and present to be one buffer."""

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from microsoft_peer import compare, ours
from onnx import helper

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, ShapeError, SizeError

RNG = np.random.default_rng(46)
BLOCK, BATCH, HEADS, GROUPS, SIZE, ROWS = 16, 2, 4, 2, 16, 64
HOW = {"num_heads": HEADS, "kv_num_heads": GROUPS, "sparse_block_size": BLOCK}


def f32(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def i32(*values):
    return np.array(values, np.int32)


def runtime(inputs, **attributes):
    names = ["" if x is None else f"x{k}" for k, x in enumerate(inputs)]
    given = {n: x.copy() for n, x in zip(names, inputs, strict=True) if n}
    node = helper.make_node("SparseAttention", names, ["y", "k", "v"], domain="com.microsoft", **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in given.items()
    ]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(n) for n in "ykv"])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    binding, values = session.io_binding(), {n: onnxruntime.OrtValue.ortvalue_from_numpy(x) for n, x in given.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y")
    binding.bind_ortvalue_output("k", values["x3"])
    binding.bind_ortvalue_output("v", values["x4"])
    session.run_with_iobinding(binding)
    return [x.numpy().copy() for x in binding.get_outputs()]


def masks(*layouts):
    """Row and column indices of block masks."""
    rows = [np.cumsum([0, *(int(sum(row)) for row in layout)]) for layout in layouts]
    columns = [[c for row in layout for c in np.flatnonzero(row)] for layout in layouts]
    widest = max(map(len, columns))
    return i32(*rows), i32(*(c + [-1] * (widest - len(c)) for c in columns))


LOCAL = np.tril(np.ones((4, 4), int)) - np.tril(np.ones((4, 4), int), -2)
MIXED = np.tril(RNG.integers(0, 2, (4, 4)), -1) + np.eye(4, dtype=int)
MASK = masks(LOCAL, MIXED)


def operands(new, total, lengths, batch=BATCH):
    q, k, v = f32(batch, new, HEADS * SIZE), f32(batch, new, GROUPS * SIZE), f32(batch, new, GROUPS * SIZE)
    caches = f32(batch, GROUPS, ROWS, SIZE), f32(batch, GROUPS, ROWS, SIZE)
    return [q, k, v, *caches, *MASK, i32(total), i32(*lengths)]


def check(given, rtol=1e-4, **more):
    compare(ours("SparseAttention", given, 3, **HOW, **more), runtime(given, **HOW, **more), rtol, rtol)
    free = [k for k, x in enumerate(given) if x is not None and k != 7]
    for total in (given[7], None):  # also a traced one

        def fn(*values, total=total):
            found = dict(zip(free, values, strict=False))
            found[7] = values[-1] if total is None else total
            return ours("SparseAttention", [found.get(k) for k in range(len(given))], 3, **HOW, **more)

        compare(jax.jit(fn)(*(given[k] for k in free), given[7]), runtime(given, **HOW, **more), rtol, rtol)


@pytest.mark.parametrize(("new", "total"), [(20, 20), (1, 50), (3, 50), (40, 40), (1, 1), (20, 33)])
def test_attention(new, total):
    given = operands(new, total, [total] * BATCH)
    check(given)
    if total > 1:  # for a single token onnxruntime reads positions that nothing has written
        tables = [f32(ROWS, SIZE // 2), f32(ROWS, SIZE // 2)]
        check([*given, *tables], do_rotary=1, rotary_interleaved=1, scale=0.3)
        packed = np.concatenate(given[:3], 2)
        check([packed, None, None, *given[3:], *tables], do_rotary=1)
    half = [x.astype(np.float16) if x.dtype == np.float32 else x for x in given]
    check(half, 5e-3)


@pytest.mark.parametrize(("new", "lengths"), [(20, (20, 13)), (1, (50, 40)), (3, (50, 17))])
def test_samples_of_different_lengths(new, lengths):
    """Each is what it is alone; onnxruntime mixes them up."""
    given = operands(new, max(lengths), lengths)
    y, keys, values = ours("SparseAttention", given, 3, **HOW)
    for k, length in enumerate(lengths):
        count = min(new, length)
        one = [x[k : k + 1, :count] if j < 3 else x[k : k + 1] if j < 5 else x for j, x in enumerate(given)]
        one[7:] = i32(length), i32(length)
        alone = runtime(one, **HOW)
        compare([y[k : k + 1, :count]], alone[:1], 1e-4, 1e-4)
        compare(
            [keys[k : k + 1, :, :length], values[k : k + 1, :, :length]], [x[:, :, :length] for x in alone[1:]], 0, 0
        )


def test_gradients_vmap_symbolic_sizes_and_a_full_buffer():
    given = operands(3, 50, (50, 40))

    def fn(q, k, v, old_k, old_v, lengths, total=50):
        return ms.sparse_attention(q, k, v, old_k, old_v, *MASK, total, lengths, **HOW)

    moving, lengths = given[:5], given[8]
    check_grads(jax.jit(lambda *x: fn(*x, lengths)[0]), moving, order=1, modes=["rev"], rtol=3e-2, atol=3e-2)
    expected = [np.asarray(y) for y in fn(*moving, lengths)]
    specs = ["b, s, 64", "b, s, 32", "b, s, 32", *["b, 2, m, 16"] * 2, "b", ""]
    total = np.int32(50)
    with pytest.raises(SizeError, match="the s new tokens do not fit into the m rows of `past_key`") as caught:
        export(jax.jit(fn))(*symbolic_args_specs([*moving, lengths, total], specs))
    assert caught.value.needs == "s <= m"
    made = export(jax.jit(fn))(*symbolic_args_specs([*moving, lengths, total], specs, constraints=["s <= m"]))
    compare(made.call(*moving, lengths, total), expected, 1e-4, 1e-5)
    mapped = jax.vmap(fn)(*(jnp.stack([x, 2 * x]) for x in moving), jnp.stack([lengths, lengths]))
    compare([y[0] for y in mapped], expected, 1e-4, 1e-5)
    full = fn(*moving, i32(70, 40))[0]
    assert np.isnan(full[0]).all()
    compare([full[1]], [expected[0][1]], 1e-5, 1e-5)


GIVEN = operands(3, 50, (50, 40))


def call(**changed):
    names = ("query", "key", "value", "past_key", "past_value", "block_row_indices", "block_col_indices")
    names += ("total_sequence_length", "key_total_sequence_lengths")
    given = dict(zip(names, GIVEN, strict=True)) | HOW
    return ms.sparse_attention(**(given | changed))


ERRORS = [
    ({"sparse_block_size": 0}, ArgumentError, "`sparse_block_size` is 0; it must be at least 1"),
    ({"block_row_indices": MASK[0][0]}, ShapeError, r"`block_row_indices` of \(5,\) must be \(layouts, blocks \+ 1\)"),
    ({"block_row_indices": MASK[0][[0, 0, 0]]}, ShapeError, "the 3 layouts of `block_row_indices` must divide the 4"),
    ({"block_col_indices": MASK[1][:1]}, ShapeError, r"`block_col_indices` of \(1, \d+\) must be \(2, n\)"),
    ({"key_total_sequence_lengths": i32(5)}, ShapeError, r"`key_total_sequence_lengths` of \(1,\) must be \(2,\)"),
    ({"total_sequence_length": i32(5, 6)}, ArgumentError, "`total_sequence_length` must be one integer, got int32"),
    ({"total_sequence_length": 65}, ArgumentError, "`total_sequence_length` is 65; it must be at least 3, the new tok"),
    ({"total_sequence_length": 2}, ArgumentError, "is 2; it must be at least 3, .* and at most 64, the rows of `past"),
    ({"do_rotary": 1}, ArgumentError, "`do_rotary` is 1, so `cos_cache` and `sin_cache` must be given"),
    ({"past_value": GIVEN[4][:1]}, ShapeError, "sparse_attention: .*past_value"),
    (
        {"past_key": GIVEN[3][:, :, :2], "past_value": GIVEN[4][:, :, :2]},
        ShapeError,
        "the 3 new tokens do not fit into",
    ),
    ({"key": GIVEN[1][:, :2]}, ShapeError, "sparse_attention: .*key"),
]


@pytest.mark.parametrize(("changed", "kind", "match"), ERRORS, ids=[m[:40] for *_, m in ERRORS])
def test_error(changed, kind, match):
    with pytest.raises(kind, match=match):
        call(**changed)
