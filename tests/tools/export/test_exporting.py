"""`Model.export`, and `load(path, sizes=…)`: names, numbers and limits of sizes."""

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import onnxruntime
import pytest
from onnx import parser
from safetensors.numpy import save_file

import jaxops.onnx
from jaxops.errors import ArgumentError, ShapeError, SignatureError, SizeError, StaticError, UnsupportedError
from jaxops.tools.export import exporting

MODELS = sorted((Path(__file__).parents[2] / "models").glob("*.onnx"))
# The sizes at which each program runs; positions are limited to 32 in BERT and GPT-2.
SIZES = [
    {"batch": 1, "sequence": 5, "past_sequence": 3, "source": 4, "target": 2},
    {"batch": 3, "sequence": 1, "past_sequence": 7, "source": 9, "target": 1},
    {"batch": 2, "sequence": 8, "past_sequence": 1, "source": 1, "target": 5},
]


def made(model, sizes, seed=0):
    """Inputs of these sizes."""
    rng = np.random.default_rng(seed)
    sizes = {"total_sequence": sizes["sequence"] + sizes["past_sequence"], **sizes}
    found = []
    for value in model.inputs:
        shape = [d if isinstance(d, int) else sizes[d] for d in value.shape]
        if value.dtype.kind == "f":
            found.append(rng.standard_normal(shape).astype(value.dtype))
        else:
            found.append(
                (np.ones if "mask" in value.name else lambda s, t: rng.integers(0, 40, s, t))(shape, value.dtype)
            )
    return found


def agree(got, want, tolerance=1e-4):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.grid
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_each_model_is_one_program(path):
    """All sizes symbolic, serialized and read again; onnxruntime says what comes out."""
    model = jaxops.onnx.load(path)
    program = jax.export.deserialize(model.export().serialize())
    runtime = onnxruntime.InferenceSession(path)
    for sizes in SIZES:
        values = made(model, sizes)
        wanted = runtime.run(None, {v.name: x for v, x in zip(model.inputs, values, strict=True)})
        agree(program.call(model.params, *values), wanted)


def test_the_models_say_their_limits():
    """BERT has 32 positions; nothing but the model itself says so."""
    bert = next(path for path in MODELS if "bert" in path.name)
    program = jaxops.onnx.load(bert).export()
    assert str(program.in_avals[-1]) == "int32[batch,sequence]"
    model = jaxops.onnx.load(bert)
    ids = np.ones((1, 33), np.int64)
    with pytest.raises(ValueError, match="sequence"):
        program.call(model.params, ids, ids)


BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("onnx", "jaxops", "onnxruntime"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
import jax, numpy as np
from safetensors.numpy import load_file
folder, cases = sys.argv[1], int(sys.argv[2])
program = jax.export.deserialize(bytearray(open(folder + "/program", "rb").read()))
params = load_file(folder + "/params.safetensors")
for i in range(cases):
    arrays = np.load(f"{folder}/case{i}.npz")
    count = sum(name.startswith("in") for name in arrays)
    got = program.call(params, *(arrays[f"in{k}"] for k in range(count)))
    assert type(got) is tuple, type(got)
    for k, y in enumerate(got):
        np.testing.assert_allclose(y, arrays[f"out{k}"], rtol=1e-4, atol=1e-4)
assert not {"jaxops", "onnx"} & set(sys.modules)
print("done")
"""


def test_a_process_without_onnx_and_jaxops_runs_it(tmp_path):
    model = jaxops.onnx.load(next(path for path in MODELS if "gpt2.dynamo" in path.name))
    (tmp_path / "program").write_bytes(model.export().serialize())
    save_file({name: np.asarray(value) for name, value in model.params.items()}, tmp_path / "params.safetensors")
    for i, sizes in enumerate(SIZES[:2]):
        values = made(model, sizes)
        given = {f"in{k}": x for k, x in enumerate(values)}
        outputs = {f"out{k}": np.asarray(y) for k, y in enumerate(model(*values))}
        np.savez(tmp_path / f"case{i}.npz", **given, **outputs)
    command = [sys.executable, "-c", BLOCKED, str(tmp_path), "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "done", done.stderr[-2000:]


def model(head, body):
    return parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> g {head} {{ {body} }}')


PAIR = model("(float[batch,seq,4] x, float[batch,seq,4] z) => (float[batch,seq,4] y)", "y = Add(x, z)")
LEARNED = model(
    "(float[batch,seq,4] x, float[16,4] table) => (float[batch,seq,4] y)",
    """sh = Shape(x)  one = Constant<value_ints=[1]>()  two = Constant<value_ints=[2]>()
    zero = Constant<value_ints=[0]>()
    s = Slice(sh, one, two)  p = Slice(table, zero, s, zero)  y = Add(x, p)""",
)


def shapes(program):
    return [str(aval) for aval in program.in_avals]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (None, "batch,seq,4"),
        ({"batch": "b"}, "b,seq,4"),
        ({"batch": 3, "seq": "s"}, "3,s,4"),
        ({"batch": "8*b", "seq": "s >= 2, s <= 64"}, "8*b,s,4"),
        ({"batch": "b", "seq": "b + 1"}, "b,b + 1,4"),
        ({"seq": "max(s, 4)", "batch": "s < 9"}, "s,max(s, 4),4"),
    ],
)
def test_sizes_get_names_numbers_and_limits(sizes, expected):
    program = jaxops.onnx.load(PAIR).export(sizes=sizes)
    assert shapes(program) == [f"float32[{expected}]"] * 2


def test_a_limit_is_checked_when_the_program_is_called():
    program = jaxops.onnx.load(PAIR).export(sizes={"seq": "s <= 5, s > 2"})
    x = np.ones((2, 5, 4), np.float32)
    agree(program.call({}, x, x), x + x)
    for wrong in (2, 6):
        x = np.ones((2, wrong, 4), np.float32)
        with pytest.raises(ValueError, match="s"):
            program.call({}, x, x)


def test_a_size_without_a_name_gets_one():
    unnamed = model("(float[?,4,?] x) => (float[?,4,?] y)", "y = Relu(x)")
    for value in unnamed.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value"):
                dim.ClearField("dim_param")
    assert shapes(jaxops.onnx.load(unnamed).export()) == ["float32[x_0,4,x_2]"]
    assert shapes(jaxops.onnx.load(unnamed).export(sizes={"x_2": 7})) == ["float32[x_0,4,7]"]
    assert jaxops.onnx.load(unnamed, sizes={"x_0": 2}).inputs[0].shape == (2, 4, None)


def test_names_that_python_does_not_allow_and_sums():
    odd = model(
        "(float[a,b] x, float[c,b] z, float[d,b] w) => (float[d,b] y)", "t = Concat<axis=0>(x, z)  y = Add(t, w)"
    )
    names = {"a": "past-len", "c": "max", "d": "past-len + max"}
    for value in odd.graph.input:
        dim = value.type.tensor_type.shape.dim[0]
        dim.dim_param = names[dim.dim_param]
    assert shapes(jaxops.onnx.load(odd).export())[:2] == ["float32[past_len,b]", "float32[max_,b]"]
    for value in odd.graph.input:
        dim = value.type.tensor_type.shape.dim[0]
        dim.dim_param = dim.dim_param.replace("past-len", "past").replace("max", "new")
    loaded = jaxops.onnx.load(odd)
    assert shapes(loaded.export()) == ["float32[past,b]", "float32[new,b]", "float32[past + new,b]"]
    assert shapes(loaded.export(sizes={"past": 3, "new": "2*k"}))[2] == "float32[2*k + 3,b]"
    assert jaxops.onnx.load(odd, sizes={"past": 3, "new": 4}).inputs[2].shape == (7, "b")


def test_platforms():
    assert jaxops.onnx.load(PAIR).export(platforms=("cpu", "cuda")).platforms == ("cpu", "cuda")


def test_a_platform_that_jax_does_not_know():
    with pytest.raises(ArgumentError, match="export: unknown platform 'gpus'; name some of cpu, cuda, rocm, tpu"):
        jaxops.onnx.load(PAIR).export(platforms=("cpu", "gpus"))


def test_a_size_is_fixed_at_load():
    fixed = jaxops.onnx.load(PAIR, sizes={"seq": 3})
    assert [value.shape for value in (*fixed.inputs, *fixed.outputs)] == [("batch", 3, 4)] * 3
    assert shapes(fixed.export()) == ["float32[batch,3,4]"] * 2
    x = np.ones((2, 3, 4), np.float32)
    agree(fixed(x, x), x + x)
    with pytest.raises(ShapeError, match=r"expects x: float32\[batch, 3, 4\]"):
        fixed(np.ones((2, 4, 4), np.float32), np.ones((2, 4, 4), np.float32))


@pytest.mark.parametrize(
    ("call", "kind", "match"),
    [
        (
            lambda: jaxops.onnx.load(PAIR, sizes={"s": 3}),
            ArgumentError,
            r"size named 's'; .* 'batch', 'seq'",
        ),
        (lambda: jaxops.onnx.load(PAIR, sizes={"seq": "s"}), ArgumentError, r"'seq' is 's'; it must be an integer"),
        (lambda: jaxops.onnx.load(PAIR, sizes={"seq": -1}), ArgumentError, r"'seq' is -1; it must be an integer"),
        (lambda: jaxops.onnx.load(PAIR).export({"s": 3}), ArgumentError, r"no input has a size named 's'"),
        (lambda: jaxops.onnx.load(PAIR).export(["seq"]), SignatureError, r"is not a dictionary"),
        (lambda: jaxops.onnx.load(PAIR).export({"seq": 2.5}), ArgumentError, r"'seq' is 2.5; give a number, a name"),
        (lambda: jaxops.onnx.load(PAIR).export({"seq": "2 <= s <= 5"}), ArgumentError, r"one comparison at a time"),
        (lambda: jaxops.onnx.load(PAIR).export({"seq": -1}), ArgumentError, r"'seq' is -1; it must be an integer"),
        (lambda: jaxops.onnx.load(PAIR).export({"seq": "-1"}), ArgumentError, r"'seq' is -1; it must be an integer"),
        (lambda: jaxops.onnx.load(PAIR).export({"seq": "s +"}), ArgumentError, r"are not symbolic sizes: .*syntax"),
    ],
)
def test_errors(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


def test_what_the_model_needs_is_an_error_without_export():
    """`jax.export` itself has the limits it is given, so the error says which one is missing."""
    loaded = jaxops.onnx.load(LEARNED)
    specs = jax.export.symbolic_args_specs([np.zeros((1, 1, 4), "f4"), np.zeros((16, 4), "f4")], ["b, s, 4", "16, 4"])
    with pytest.raises(SizeError, match=r"(?s)must be equal.*sizes={'s': 's <= 16'}.*in node 'y' \(Add") as caught:
        jax.export.export(jax.jit(loaded.apply))(loaded.params, *specs)
    assert caught.value.needs == "s <= 16"
    constrained = jax.export.symbolic_args_specs(
        [np.zeros((1, 1, 4), "f4"), np.zeros((16, 4), "f4")], ["b, s, 4", "16, 4"], constraints=["s <= 16"]
    )
    jax.export.export(jax.jit(loaded.apply))(loaded.params, *constrained)
    loaded.export(sizes={"seq": "s <= 9"})


def test_limits_of_what_turns_out_to_be_a_number():
    """In this order JAX fails over them, with an AttributeError of its own."""
    limits = exporting.Limits(["s <= 64", "b*floordiv(s, 4) >= 1", "s >= 4", "s == 8"])
    sizes = limits.sizes({"sequence": "s", "batch": "b"})
    assert sizes["sequence"] == 8
    assert sizes["batch"] + 7 >= sizes["sequence"]


def test_two_names_of_one_size_are_found():
    """As torch's exporter writes them, for the batches of two inputs: an error of JAX's own before."""
    reshaped = """sh = Shape<end=1>(x)  rest = Constant<value_ints=[-1]>()  t = Concat<axis=0>(sh, rest)
        r = Reshape(z, t)  y = Add(x, r)"""
    program = jaxops.onnx.load(model("(float[a,s] x, float[b,t] z) => (float[a,s] y)", reshaped)).export()
    x, z = np.ones((2, 5), "f4"), np.arange(10, dtype="f4").reshape(2, 5)
    agree(program.call({}, x, z), x + z)
    with pytest.raises(ValueError, match="inconsistency between dimension size"):
        program.call({}, x, z.reshape(5, 2))
    limited = """sh = Shape(x)  one = Constant<value_ints=[1]>()  two = Constant<value_ints=[2]>()
        zero = Constant<value_ints=[0]>()  s = Slice(sh, one, two)  p = Slice(table, zero, s, zero)  m = Add(x, p)
        w = Transpose<perm=[0,2,1]>(m)  q = MatMul(m, w)  y = Add(q, z)"""
    head = "(float[b,s,4] x, float[c,r,t] z, float[16,4] table) => (float[b,s,s] y)"
    program = jaxops.onnx.load(model(head, limited)).export()
    given = [np.ones(shape, "f4") for shape in ((3, 7, 4), (3, 7, 7), (16, 4))]
    assert program.call({}, *given).shape == (3, 7, 7)


CONV = model("(float[n,1,t] x, float[2,1,8] w) => (float[n,2,u] y)", "a = Conv<strides=[4]>(x, w)  y = Relu(a)")


def test_a_window_fits_into_each_size_of_an_export():
    program = jaxops.onnx.load(CONV).export()
    assert str(program.out_avals[0].shape) == "(n, 2, floordiv(t, 4) - 1)"
    w = np.ones((2, 1, 8), "f4")
    assert program.call({}, np.ones((1, 1, 8), "f4"), w).shape == (1, 2, 1)
    with pytest.raises(ValueError, match="t >= 4"):
        program.call({}, np.ones((1, 1, 3), "f4"), w)


def test_where_no_limit_helps_sizes_have_none(monkeypatch):
    """What is only simpler under a limit is possible without one."""
    monkeypatch.setattr(exporting.Limits, "learn", lambda limits, error: False)
    program = jaxops.onnx.load(CONV).export()
    assert str(program.out_avals[0].shape) == "(n, 2, max(floordiv(t, 4) - 1, 0))"


def test_a_size_that_defeats_the_program_is_named():
    top = model("(float[n,seq] x) => (int64[n,m] y)", "y = NonZero(x)")
    with pytest.raises(StaticError, match=r"(?s)depends on `x`.*fix one: sizes={'n': 128}"):
        jaxops.onnx.load(top).export()
    pieces = model(
        "(float[n,seq] x) => (float[m,seq] y)",
        "s = SplitToSequence<axis=0,keepdims=1>(x)  t = SequenceErase(s)  y = ConcatFromSequence<axis=0>(t)",
    )
    with pytest.raises(ShapeError, match=r"(?s)sizes={'n': 128}.*in node 't' \(SequenceErase"):
        jaxops.onnx.load(pieces).export()
    jaxops.onnx.load(pieces).export(sizes={"n": 3})


def test_platforms_are_a_list():
    loaded = jaxops.onnx.load(model("(float[n,4] x) => (float[n,4] y)", "y = Relu(x)"))
    with pytest.raises(ArgumentError, match=r"export: `platforms` is 'cpu'; give a list, such as \['cpu'\]"):
        loaded.export(platforms="cpu")
    assert loaded.export(platforms=["cpu"]).platforms == ("cpu",)


def test_inputs_that_are_no_arguments():
    shape = model("(float[n,4] x, int64[2] shape) => (float[a,b] y)", "y = Reshape(x, shape)")
    with pytest.raises(
        StaticError, match=r"(?s)input 'shape' must be known.*values=\{'shape': value\}.*bounds=\{'shape': n"
    ):
        jaxops.onnx.load(shape).export()
    assert shapes(jaxops.onnx.load(shape, values={"shape": np.array([2, -1])}).export()) == ["float32[n,4]"]
    ranked = model("(float[n,4] x) => (float[a,b] y)", "y = Relu(x)")
    ranked.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedError, match=r"the model declares x: float32\[…\]"):
        jaxops.onnx.load(ranked).export()


def test_a_batch_that_the_model_fixes_is_a_number():
    fixed = model("(float[n,4] x) => (float[1,2,2] y)", "t = Constant<value_ints=[1,2,2]>()  y = Reshape(x, t)")
    assert shapes(jaxops.onnx.load(fixed).export()) == ["float32[1,4]"]


def counted(monkeypatch):
    """A list that grows with each trace of an export."""
    traces, specs = [], exporting._specs
    monkeypatch.setattr(exporting, "_specs", lambda *args: [traces.append(args), specs(*args)][1])
    return traces


def tables(lengths):
    """A model that reads a table of each length up to its sequence."""
    nodes = [f"p{k} = Slice(t{k}, zero, s, zero)  x{k + 1} = Add(x{k}, p{k})" for k in range(len(lengths))]
    head = "".join(f", float[{length},4] t{k}" for k, length in enumerate(lengths))
    return model(
        f"(float[batch,seq,4] x{head}) => (float[batch,seq,4] y)",
        "sh = Shape(x)  one = Constant<value_ints=[1]>()  two = Constant<value_ints=[2]>()"
        "  zero = Constant<value_ints=[0]>()  s = Slice(sh, one, two)  x0 = Identity(x) "
        + "  ".join(nodes)
        + f"  y = Relu(x{len(lengths)})",
    )


def test_many_limits_take_two_traces(monkeypatch):
    traces, lengths = counted(monkeypatch), range(12, 6, -1)
    loaded = jaxops.onnx.load(tables(lengths))
    program = loaded.export()
    assert len(traces) == 2
    x, ones = np.ones((2, 7, 4), np.float32), [np.ones((length, 4), np.float32) for length in lengths]
    agree(program.call({}, x, *ones), loaded(x, *ones))
    with pytest.raises(ValueError, match="seq"):
        program.call({}, np.ones((2, 8, 4), np.float32), *ones)


WINDOWS = """zero = Constant<value_ints=[0]>()  one = Constant<value_ints=[1]>()  two = Constant<value_ints=[2]>()
    three = Constant<value_ints=[3]>()  four = Constant<value_ints=[4]>()  six = Constant<value_ints=[6]>()
    sh = Shape(x)  n = Slice(sh, zero, one)  h = Slice(sh, one, two)  w = Slice(sh, two, three)
    hh = Div(h, two)  ww = Div(w, two)  t = Concat<axis=0>(n, hh, two, ww, two, three)  a = Reshape(x, t)
    b = Transpose<perm=[0,1,3,2,4,5]>(a)  c = Constant<value_ints=[12]>()  u = Concat<axis=0>(n, hh, ww, c)
    m = Reshape(b, u)  hw = Div(hh, four)  wv = Div(ww, four)
    v = Concat<axis=0>(n, hw, four, wv, four, c)  d = Reshape(m, v)  y = Relu(d)"""


def test_factors_of_factors_take_few_traces(monkeypatch):
    """Windows of 4 after a merge of 2 × 2, as in a Swin transformer: images in multiples of 8."""
    traces = counted(monkeypatch)
    loaded = jaxops.onnx.load(model("(float[n,h,w,3] x) => (float[n,a,4,b,4,12] y)", WINDOWS))
    program = loaded.export()
    assert shapes(program) == ["float32[n,8*h,8*w,3]"]
    assert len(traces) <= 3
    x = np.arange(2 * 8 * 16 * 3, dtype=np.float32).reshape(2, 8, 16, 3)
    agree(program.call({}, x), loaded(x))


def test_what_a_branch_needs_is_no_limit():
    """The branch that reads the table runs for sequences that fit it; the export says which size to fix."""
    body = """sh = Shape(x)  one = Constant<value_ints=[1]>()  two = Constant<value_ints=[2]>()
    zero = Constant<value_ints=[0]>()  s = Slice(sh, one, two)  eight = Constant<value_ints=[8]>()
    c0 = LessOrEqual(s, eight)  c = Squeeze(c0)  y = If(c) <then_branch = a () => (float[n,s,4] p) {
    r = Slice(table, zero, s, zero)  p = Add(x, r) }, else_branch = b () => (float[n,s,4] q) { q = Neg(x) }>"""
    loaded = jaxops.onnx.load(model("(float[n,s,4] x, float[8,4] table) => (float[n,s,4] y)", body))
    with pytest.raises(SizeError, match=r"if_: `cond` must be static.*"):
        loaded.export()


def test_an_equation_is_divided_by_what_all_terms_have():
    """Two sequences of one length, for any batch."""
    loaded = jaxops.onnx.load(
        model(
            "(float[n,s,8] x, float[n,t,4] z) => (float[n,t,8] y)",
            """sh = Shape<end=2>(z)  c = Constant<value_ints=[8]>()  u = Concat<axis=0>(sh, c)  y = Reshape(x, u)""",
        )
    )
    assert shapes(loaded.export()) == ["float32[n,s,8]", "float32[n,s,4]"]
