"""Strings that traced numbers choose, moved and compared under `jit` and `export`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, model, node, tensor
from onnx import TensorProto, helper

import jaxops as jo
import jaxops.onnx
from jaxops.errors import BoundsError, ShapeError, StaticError
from jaxops.ml import label_encoder
from jaxops.opaque import ChosenStrings, ZippedMaps
from jaxops.static import StaticValue

LABELS = np.array(["cat", "dog", "eel", "dog"], object)
POSITIONS = np.array([[2, 0, 1], [3, 1, 0]], np.int32)
MORE = np.array([["dog", "fox", "dog"]], object)
# A function of chosen strings.
MOVES = {
    "identity": jo.identity,
    "reshape": lambda s: jo.reshape(s, (3, -1)),
    "squeeze": lambda s: jo.squeeze(jo.unsqueeze(s, (0,))),
    "flatten": lambda s: jo.flatten(s, axis=0),
    "transpose": jo.transpose,
    "expand": lambda s: jo.expand(s, (2, 2, 3)),
    "tile": lambda s: jo.tile(s, (1, 2)),
    "slice": lambda s: jo.slice(s, (1,), (3,), (1,)),
    "split": lambda s: jo.split(s, (1, 2), axis=1)[1],
    "gather": lambda s: jo.gather(s, np.array([1, -1]), axis=1),
    "gather_elements": lambda s: jo.gather_elements(s, np.array([[2, 1]]), axis=1),
    "gather_nd": lambda s: jo.gather_nd(s, np.array([[1, 0]])),
    "reverse_sequence": lambda s: jo.reverse_sequence(s, np.array([2, 1, 2])),
    "concat": lambda s: jo.concat([s, MORE, s], axis=0),
    "where": lambda s: jo.where(np.array([True, False, True]), s, MORE),
    "pad": lambda s: jo.pad(s, (0, 1, 1, 2), "fox"),
    "pad with empty strings": lambda s: jo.pad(s, (0, -1, 1, 0)),
    "pad one axis": lambda s: jo.pad(s, (1, 1), np.array("dog", object), (-1,)),
    "pad by reflection": lambda s: jo.pad(s, (0, 2, 0, 1), mode="reflect"),
    "compress": lambda s: jo.compress(s, np.array([True, False, True]), axis=1),
    "compress flat": lambda s: jo.compress(s, np.array([False, True])),
    "string_normalizer": lambda s: jo.string_normalizer(
        s[:1] if type(s) is np.ndarray else jo.slice(s, (0,), (1,)), case_change_action="UPPER"
    ),
    "cast": lambda s: jo.cast(s, to=str),
    "equal": lambda s: jo.equal(s, np.array("dog", object)),
    "equal to chosen": lambda s: jo.equal(jo.transpose(jo.transpose(s)), jo.reverse_sequence(s, np.array([2, 1, 2]))),
    "shape": lambda s: np.asarray(jo.shape(s)),
    "label_encoder to integers": lambda s: label_encoder(s, keys_strings=["dog", "cat"], values_int64s=[5, 6]),
    "label_encoder to floats": lambda s: label_encoder(s, keys_strings=["eel"], values_floats=[0.5], default_float=-2),
    "label_encoder to strings": lambda s: label_encoder(s, keys_strings=["dog", "cat"], values_strings=["d", "c"]),
    "if_": lambda s: jo.if_(jo.shape(s)[0] > 1, lambda: [s], lambda: [MORE])[0],
}


@pytest.mark.parametrize("name", MOVES)
def test_moves(name):
    fn = MOVES[name]
    expected = fn(LABELS[POSITIONS])
    found = jax.jit(lambda p: fn(ChosenStrings(p, StaticValue(LABELS))))(POSITIONS)
    assert isinstance(found, ChosenStrings) is (expected.dtype == object)
    assert np.asarray(found).tolist() == expected.tolist()


@pytest.mark.parametrize("position", [-1, 4, 2**31 - 1, -(2**31)])
def test_a_position_out_of_range_stays_one(position):
    """No string is invented for it, after a table of more strings either."""
    positions = np.array([0, position], np.int32)

    def joined(p):
        strings = ChosenStrings(p, StaticValue(LABELS))
        return jo.concat([strings, MORE[0]], axis=0), jo.equal(strings, np.array("cat", object))

    strings, same = jax.jit(joined)(positions)
    assert same.tolist() == [True, False]
    keys = {"keys_strings": ["cat"]}
    for values, expected in ({"values_int64s": [7]}, [7, -1]), ({"values_floats": [7]}, [7, np.nan]):
        run = jax.jit(lambda p, values=values: label_encoder(ChosenStrings(p, StaticValue(LABELS)), **keys, **values))
        np.testing.assert_array_equal(run(positions), expected)
    with pytest.raises(BoundsError, match=r"an index that chooses one of 4 strings is out of range"):
        np.asarray(strings)


def test_traced_conditions_of_strings():
    """With a size, they are padded with empty strings; without one, the error is that of any other data."""
    condition = np.array([True, False, True])
    for strings in (lambda p: ChosenStrings(p, StaticValue(LABELS)), lambda p: LABELS[:3]):
        found = jax.jit(lambda p, c, strings=strings: jo.compress(strings(p), c, size=4))(POSITIONS[0], condition)
        expected = [*np.asarray(strings(POSITIONS[0]))[condition], "", ""]
        assert np.asarray(found).tolist() == expected
    with pytest.raises(StaticError, match="the size of the result depends on `condition`, which is traced"):
        jax.jit(lambda p, c: jo.compress(ChosenStrings(p, StaticValue(LABELS)), c))(POSITIONS[0], condition)


def test_padded_strings_are_those_of_python():
    for fill in (None, "none", np.array("none", object), np.array("none")):
        assert set(map(type, jo.pad(LABELS, (1, 0), fill))) == {str}


@pytest.mark.parametrize("options", [{"stopwords": ["cat"]}, {"stopwords": ["cat"], "is_case_sensitive": 1}])
def test_stop_words_are_refused_under_jit(options):
    with pytest.raises(StaticError, match=r"strings that depend on traced numbers cannot be used under jit"):
        jax.jit(lambda p: jo.string_normalizer(ChosenStrings(p, StaticValue(LABELS)), **options))(POSITIONS[0])
    with pytest.raises(ShapeError, match=r"x of \(2, 3\) must be \(C,\) or \(1, C\)"):
        jax.jit(lambda p: jo.string_normalizer(ChosenStrings(p, StaticValue(LABELS)), **options))(POSITIONS)


def test_what_reads_strings_is_refused_under_jit():
    with pytest.raises(StaticError, match=r"strings that depend on traced numbers cannot be used under jit"):
        jax.jit(lambda p: jo.string_split(ChosenStrings(p, StaticValue(LABELS))))(POSITIONS)


def test_pairs_of_strings():
    """A position out of range has no string, nor has its pair with another."""
    joined = jax.jit(lambda p: jo.string_concat(ChosenStrings(p, StaticValue(LABELS)), np.array(["s", "t"], object)))
    assert np.asarray(joined(jnp.array([1, 0]))).tolist() == [f"{LABELS[1]}s", f"{LABELS[0]}t"]
    for place in (-1, len(LABELS)):
        with pytest.raises(BoundsError, match="out of range"):
            np.asarray(joined(jnp.array([place, 0])))


@pytest.mark.parametrize("test", [True, False])
@pytest.mark.parametrize("position", [0, 3, 4])
def test_branches_give_strings(test, position):
    """Chosen and static ones; a position out of range in one branch chooses no string of the other."""

    def run(test, p):
        strings = ChosenStrings(p, StaticValue(LABELS))
        return jo.if_(test, lambda: [strings, p], lambda: [np.array("fox", object), p + 1])

    strings, number = jax.jit(run)(test, np.int32(position))
    assert number == (position if test else position + 1)
    if test and position == 4:
        with pytest.raises(BoundsError, match=r"one of 5 strings is out of range"):
            np.asarray(strings)
    else:
        assert np.asarray(strings).tolist() == (LABELS[position] if test else "fox")


def test_branches_with_other_strings_are_refused():
    def run(other):
        return jax.jit(lambda test: jo.if_(test, lambda: [LABELS], lambda: [other]))(True)

    for other, shown in (LABELS[:2], r"object\[2\]"), (np.arange(4), r"int32\[4\]"):
        with pytest.raises(
            ShapeError, match=rf"(?s)both branches must give outputs of one type .*else_branch  {shown}"
        ):
            run(other)


def test_a_file_with_strings_in_branches():
    proto = model(
        """main (float x, float[n] z) => (string y, int64[k] code) {
            zero = Constant<value = float {0}>() c = Greater(x, zero)
            y = If(c) <then_branch = t () => (string a) { a = Constant<value_string = "above">() },
                       else_branch = e () => (string b) { b = Constant<value_string = "below">() }>
            names = Constant<value_strings = ["u", "v", "w"]>() one = Constant<value_ints = [1]>()
            largest, place = TopK(z, one) label = Gather(names, place)
            code = ai.onnx.ml.LabelEncoder<keys_strings = ["u", "w"], values_int64s = [5, 7]>(label) }"""
    )
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    net = jaxops.onnx.load(proto)
    z = np.float32([1, 2, 3])
    program = net.export()
    again = jax.export.deserialize(program.serialize())
    for x, expected in (np.float32(2), "above"), (np.float32(-1), "below"), (np.float32(np.nan), "below"):
        for run in (net.apply, jax.jit(net.apply), program.call, again.call):
            y, code = run(net.params, x, z)
            assert np.asarray(y).tolist() == expected
            assert np.asarray(code).tolist() == [7]
    assert not net.cuts


def labelled():
    """A classifier as scikit-learn's converter writes it."""
    classes = {"nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0] * 3}
    classes |= {"nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.0] * 3}
    classes |= {"nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0]}
    classes |= {"class_treeids": [0] * 2, "class_nodeids": [1, 2], "class_ids": [0, 1], "class_weights": [1.0, 1.0]}
    return build(
        node("TreeEnsembleClassifier", ["x"], ["l", "p"], domain="ai.onnx.ml", classlabels_strings=["no", "yes"],
             post_transform="NONE", **classes),
        node("Identity", ["l"], ["m"]),
        node("Reshape", ["m", "sizes"], ["y"]),
        inputs=[info("x", ["n", 1])],
        outputs=[info("y", ["n", 1], TensorProto.STRING)],
        initializers=[tensor([-1, 1], "sizes")],
        opsets=[("", 18), ("ai.onnx.ml", 3)],
    )  # fmt: skip


def test_labels_of_a_classifier():
    model = jaxops.onnx.load(labelled())
    x = np.array([[1.0], [-1.0], [np.nan]], np.float32)
    expected = [["yes"], ["no"], ["yes"]]
    assert model(x).tolist() == expected
    assert np.asarray(jax.jit(model.apply)(model.params, x)).tolist() == expected
    exported = model.export()
    again = jax.export.deserialize(exported.serialize())
    for program in (exported, again):
        assert np.asarray(program.call(model.params, x)).tolist() == expected


def test_a_file_keeps_keys_of_each_type():
    """In the file of an exported program."""
    for keys in (np.array([3, -(2**40)]), np.array(["ä", ""], object)):
        exported = jax.export.export(jax.jit(lambda x, keys=keys: ZippedMaps(x, StaticValue(keys))))(np.ones((1, 2)))
        (found,) = jax.export.deserialize(exported.serialize()).call(np.ones((1, 2)))
        assert list(found.items()) == [(key, 1.0) for key in keys.tolist()]


def test_numbers_that_become_strings_cut_a_call():
    """As scikit-learn's converter encodes columns of numbers: Cast, then OneHotEncoder."""
    proto = build(
        node("Mul", ["x", "x"], ["z"]),
        node("Cast", ["z"], ["s"], to=TensorProto.STRING),
        node("OneHotEncoder", ["s"], ["y"], domain="ai.onnx.ml", cats_strings=["4", "9", "NaN"]),
        inputs=[info("x", ["n"])],
        outputs=[info("y", ["n", 3])],
        opsets=[("", 18), ("ai.onnx.ml", 3)],
    )
    model = jaxops.onnx.load(proto)
    x = np.array([3, -2, np.nan, np.inf], np.float32)
    assert model(x).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert model.apply(model.params, x).tolist() == model(x).tolist()
    assert jo.cast(jnp.array([1.5]), to=str).tolist() == jo.cast_like(jnp.array([1.5]), LABELS).tolist() == ["1.5"]
    with pytest.raises(StaticError, match=r"cast: `input` must be known while tracing"):
        jax.jit(model.apply)(model.params, x)


def test_a_file_that_selects_labels():
    """Without a bound an error that names one; with it, the surplus labels are empty strings."""
    proto = model(
        """main (float[n,k] x) => (string[m] y, int64[m] code) {
            place = ArgMax<axis = 1, keepdims = 0>(x) one = Constant<value_int = 1>()
            label = ai.onnx.ml.LabelEncoder<keys_int64s = [0, 1], values_strings = ["cat", "dog"]>(place)
            kept = Equal(place, one) y = Compress(label, kept)
            code = ai.onnx.ml.LabelEncoder<keys_strings = ["dog"], values_int64s = [7]>(y) }"""
    )
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    x = np.float32([[1, 2], [2, 1], [3, 4]])
    net = jaxops.onnx.load(proto)
    assert [y.tolist() for y in net(x)] == [["dog", "dog"], [7, 7]]
    for run in (lambda: jax.jit(net.apply)(net.params, x), net.export):
        with pytest.raises(StaticError, match=r"the size of the result depends on `condition`.*(?s:.)*bounds={'y': n}"):
            run()
    bounded = jaxops.onnx.load(proto, bounds={"y": 3})
    for run in (bounded, lambda x: jax.jit(bounded.apply)({}, x), lambda x: bounded.export().call({}, x)):
        assert [np.asarray(y).tolist() for y in run(x)] == [["dog", "dog", ""], [7, 7, -1]]
