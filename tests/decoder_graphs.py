"""Decoders of one layer in the ways in which models write them: where masks and positions come from, how caches lie.

All have 40 tokens, a width of 16, two heads of 8, and random weights. Names of caches follow the exporters.
"""

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

VOCABULARY, WIDTH, POSITIONS = 40, 16, 64
_BATCH_FIRST = "N, 2, {}, 8"


def decoder(body, inputs="", caches=None, *, shape=_BATCH_FIRST, sizes=("P", "T"), opset=17):
    """A model of `body`, which makes `logits` and the present caches from `x`, the embedded tokens.

    inputs: declarations beside tokens and caches. caches: input → output. shape, sizes: of a cache, past and present.
    """
    caches = caches or {"past_k": "present_k", "past_v": "present_v"}
    taken = [f"float[{shape.format(sizes[0])}] {name}" for name in caches]
    made = [f"float[{shape.format(sizes[1])}] {name}" for name in caches.values()]
    heads = ", ".join(["int64[N, S] input_ids", *filter(None, [inputs]), *taken])
    text = f"""
    <ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>
    decoder ({heads}) => ({", ".join(["float[N, S, 40] logits", *made])}) {{
        x = Gather(embedding, input_ids)
        {body}
    }}"""
    model = parser.parse_model(text)
    weights = _weights()
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(numpy_helper.from_array(weights[name], name) for name in weights if name in used)
    return model


def _weights():
    rng = np.random.default_rng(0)
    floats = {
        "embedding": (VOCABULARY, WIDTH),
        "positions": (POSITIONS, WIDTH),
        "wq": (WIDTH, WIDTH),
        "wk": (WIDTH, WIDTH),
        "wv": (WIDTH, WIDTH),
        "wo": (WIDTH, VOCABULARY),
        "wqkv": (WIDTH, 3 * WIDTH),
        "bqkv": (3 * WIDTH,),
        # Two heads of 16 that share their keys and values, as onnxruntime's kernel wants that width.
        "wide_q": (WIDTH, 32),
        "wide_k": (WIDTH, 16),
        "wide_v": (WIDTH, 16),
        "wide_o": (32, VOCABULARY),
    }
    found = {name: rng.normal(size=size).astype(np.float32) * 0.6 for name, size in floats.items()}
    angle = np.arange(POSITIONS)[:, None] / 10.0 ** (np.arange(8) / 2)
    found |= {"cos": np.cos(angle).astype(np.float32), "sin": np.sin(angle).astype(np.float32)}
    found["tril"] = np.tril(np.ones((1, 1, POSITIONS, POSITIONS), bool))
    integers = {
        "split": [0, 0, -1, 8], "joined": [0, 0, -1], "zero": 0, "one": 1, "two": 2, "window": 4,
        "at_0": [0], "at_2": [2], "at_3": [3], "axes_1": [1], "axes_12": [1, 2],
        "axes_01": [0, 1], "two_heads": [1, 2, 1, 1],
    }  # fmt: skip
    found |= {name: np.array(value, np.int64) for name, value in integers.items()}
    found |= {"scale": np.float32(8**-0.5), "never": np.float32(-1e9), "nothing": np.float32(0)}
    return found


HEADS_APART = """
        q = Transpose<perm = [0, 2, 1, 3]>(q4)  k = Transpose<perm = [0, 2, 1, 3]>(k4)
        v = Transpose<perm = [0, 2, 1, 3]>(v4)
"""
PROJECTED = """
        q3 = MatMul(x, wq)  k3 = MatMul(x, wk)  v3 = MatMul(x, wv)
        q4 = Reshape(q3, split)  k4 = Reshape(k3, split)  v4 = Reshape(v3, split)
"""
ATTENDED = """
        kt = Transpose<perm = [0, 1, 3, 2]>(keys)
        products = MatMul(q, kt)  scaled = Mul(products, scale)
        seen = Where(mask, scaled, never)
        weights = Softmax<axis = -1>(seen)
        y4 = MatMul(weights, values)  y5 = Transpose<perm = [0, 2, 1, 3]>(y4)  y = Reshape(y5, joined)
        sum = Add(x, y)  logits = MatMul(sum, wo)
"""
GROWN = """
        present_k = Concat<axis = 2>(past_k, k)  present_v = Concat<axis = 2>(past_v, v)
        keys = Identity(present_k)  values = Identity(present_v)
"""
SIZES = """
        ids_shape = Shape(input_ids)  n = Gather(ids_shape, one)
        past_shape = Shape(past_k)  p = Gather(past_shape, two)  t = Add(p, n)
        places = Range(p, t, one)  columns = Range(zero, t, one)
        rows = Unsqueeze(places, axes_1)
"""
CAUSAL = "mask = LessOrEqual(columns, rows)"


def no_mask(more="", mask=CAUSAL, **options):
    """Positions and the causal mask come from sizes alone."""
    embedded = f"{SIZES} at = Gather(positions, places) "
    body = embedded.replace("x = ", "e = ") + " x2 = Add(x, at) " + PROJECTED.replace("(x,", "(x2,")
    return decoder(body + HEADS_APART + more + GROWN + mask + ATTENDED, **options)


def renamed(model, **names):
    """The model with other names for its inputs and outputs."""
    for values in (model.graph.input, model.graph.output):
        for value in values:
            value.name = names.get(value.name, value.name)
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    return model


def sliced_table():
    """The mask is cut out of a table, as GPT-2 did it: rows p to t, columns up to t."""
    mask = """
        p1 = Unsqueeze(p, at_0)  t1 = Unsqueeze(t, at_0)
        some = Slice(tril, p1, t1, at_2)  mask = Slice(some, at_0, t1, at_3)
    """
    return no_mask(mask=mask)


def square_mask():
    """A mask of the new tokens alone, expanded to all: fits a prompt after no tokens, or one token at a time.

    As onnxruntime-genai's builder writes it for com.microsoft.MultiHeadAttention.
    """
    body = """
        ids_shape = Shape(input_ids)  n = Gather(ids_shape, one)  n1 = Unsqueeze(n, at_0)
        past_shape = Shape(past_k)  p = Gather(past_shape, two)  t = Add(p, n)  t1 = Unsqueeze(t, at_0)
        at = Gather(positions, position_ids)  x2 = Add(x, at)
        q = MatMul(x2, wq)  k = MatMul(x2, wk)  v = MatMul(x2, wv)
        columns = Range(zero, n, one)  rows = Unsqueeze(columns, axes_1)  seen = LessOrEqual(columns, rows)
        square = Where(seen, nothing, never)  square4 = Unsqueeze(square, axes_01)
        one1 = Unsqueeze(one, at_0)  sizes = Concat<axis = 0>(one1, one1, n1, t1)  causal = Expand(square4, sizes)
        kept = Cast<to = 9>(attention_mask)  wide = Unsqueeze(kept, axes_12)  padding = Where(wide, nothing, never)
        bias1 = Add(causal, padding)  bias = Tile(bias1, two_heads)
        y, present_k, present_v = com.microsoft.MultiHeadAttention<num_heads = 2>
            (q, k, v, , , bias, past_k, past_v)
        logits = MatMul(y, wo)
    """
    return decoder(body, "int64[N, T] attention_mask, int64[N, S] position_ids")


def window():
    """A token sees the last four."""
    return no_mask(
        mask=CAUSAL.replace("mask", "causal")
        + "  first = Sub(rows, window)  near = Greater(columns, first)  mask = And(causal, near)"
    )


def stacked():
    """Keys and values in one cache of five axes, `past_0` and `present_0`."""
    grown = """
        one_k = Unsqueeze(k, at_0)  one_v = Unsqueeze(v, at_0)  new = Concat<axis = 0>(one_k, one_v)
        present_0 = Concat<axis = 3>(past_0, new)
        keys = Gather<axis = 0>(present_0, zero)  values = Gather<axis = 0>(present_0, one)
    """
    sizes = SIZES.replace("Shape(past_k)", "Shape<start = 1>(past_0)")
    body = sizes + PROJECTED + HEADS_APART + grown + CAUSAL + ATTENDED
    return decoder(body, caches={"past_0": "present_0"}, shape="2, N, 2, {}, 8")


def tokens_before_heads():
    """Caches (batch, tokens, heads, width), a mask and position ids given."""
    body = """
        at = Gather(positions, position_ids)  x2 = Add(x, at)
    """ + PROJECTED.replace("(x,", "(x2,")
    body += """
        present_k_0 = Concat<axis = 1>(past_k_0, k4)  present_v_0 = Concat<axis = 1>(past_v_0, v4)
        q = Transpose<perm = [0, 2, 1, 3]>(q4)  keys = Transpose<perm = [0, 2, 1, 3]>(present_k_0)
        values = Transpose<perm = [0, 2, 1, 3]>(present_v_0)
        ids_shape = Shape(input_ids)  n = Gather(ids_shape, one)  mask_shape = Shape(attention_mask)
        t = Gather(mask_shape, one)  p = Sub(t, n)
        places = Range(p, t, one)  columns = Range(zero, t, one)  rows = Unsqueeze(places, axes_1)
        causal = LessOrEqual(columns, rows)  kept = Cast<to = 9>(attention_mask)  wide = Unsqueeze(kept, axes_12)
        mask = And(causal, wide)
    """
    return decoder(
        body + ATTENDED,
        "int64[N, T] attention_mask, int64[N, S] position_ids",
        {"past_k_0": "present_k_0", "past_v_0": "present_v_0"},
        shape="N, {}, 2, 8",
    )


def group_query(given=False):
    """com.microsoft.GroupQueryAttention with rotary positions; the lengths follow from a mask, or are inputs."""
    body = "q = MatMul(x, wide_q)  k = MatMul(x, wide_k)  v = MatMul(x, wide_v)"
    if given:
        inputs = "int32[N] seqlens_k, int32[1] total_sequence_length"
    else:
        inputs = "int64[N, T] attention_mask"
        body += """
        summed = ReduceSum<keepdims = 0>(attention_mask, axes_1)  before = Sub(summed, one)
        seqlens_k = Cast<to = 6>(before)
        mask_shape = Shape(attention_mask)  t = Gather(mask_shape, one)  total_sequence_length = Cast<to = 6>(t)
        """
    body += """
        y, present_k, present_v = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 1, do_rotary = 1>
            (q, k, v, past_k, past_v, seqlens_k, total_sequence_length, cos, sin)
        logits = MatMul(y, wide_o)
    """
    return decoder(body, inputs, shape="N, 1, {}, 16")


def attention_23():
    """The standard's own Attention, with past and present."""
    body = PROJECTED + HEADS_APART
    body += """
        y4, present_k, present_v = Attention<is_causal = 1>(q, k, v, , past_k, past_v)
        y5 = Transpose<perm = [0, 2, 1, 3]>(y4)  y = Reshape(y5, joined)
        sum = Add(x, y)  logits = MatMul(sum, wo)
    """
    return decoder(body, opset=23)


def in_place(room="M", attention=False, mode="linear"):
    """TensorScatter writes into caches of fixed size; the mask, or Attention itself, leaves out what is behind."""
    body = """
        starts = Unsqueeze(write_indices, axes_1)  ids_shape = Shape(input_ids)  n = Gather(ids_shape, one)
        steps = Range(zero, n, one)  places = Add(starts, steps)  at = Gather(positions, places)  x2 = Add(x, at)
    """ + PROJECTED.replace("(x,", "(x2,")
    body += (
        HEADS_APART
        + """
        present_k = TensorScatter<MODE>(past_k, k, write_indices)
        present_v = TensorScatter<MODE>(past_v, v, write_indices)
        keys = Identity(present_k)  values = Identity(present_v)  past_shape = Shape(past_k)
        t = Gather(past_shape, two)  columns = Range(zero, t, one)  axes_13 = Constant<value_ints = [1, 3]>()
        rows = Unsqueeze(places, axes_13)  mask = LessOrEqual(columns, rows)
    """.replace("MODE", f'mode = "{mode}"')
    )
    inputs = "int64[N] write_indices"
    if attention:
        inputs += ", int64[N] nonpad_kv_seqlen"
        body += """
            y4 = Attention(q, keys, values, mask, , , nonpad_kv_seqlen)
            y5 = Transpose<perm = [0, 2, 1, 3]>(y4)  y = Reshape(y5, joined)
            sum = Add(x, y)  logits = MatMul(sum, wo)
        """
    return decoder(body + ("" if attention else ATTENDED), inputs, sizes=(room, room), opset=24)


def fused_attention():
    """com.microsoft.Attention: one weight for queries, keys and values, and one cache for both."""
    body = """
        y, present_0 = com.microsoft.Attention<num_heads = 2, unidirectional = 1>(x, wqkv, bqkv, , past_0)
        sum = Add(x, y)  logits = MatMul(sum, wo)
    """
    return decoder(body, caches={"past_0": "present_0"}, shape="2, N, 2, {}, 8")


def merged(first, later):
    """Decoders of the first and of later tokens in one file, as optimum makes it: If on `use_cache_branch`."""
    branches = []
    for model, prefix in ((later, "later/"), (first, "first/")):
        inputs = {v.name for v in model.graph.input}
        nodes = []
        for node in model.graph.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = prefix + node.name
            copy.input[:] = [name if name in inputs or not name else prefix + name for name in node.input]
            copy.output[:] = [prefix + name if name else "" for name in node.output]
            nodes.append(copy)
        weights = []
        for tensor in model.graph.initializer:
            copy = onnx.TensorProto()
            copy.CopyFrom(tensor)
            copy.name = prefix + tensor.name
            weights.append(copy)
        made = {v.name: v for v in model.graph.output}
        outputs = []
        for value in first.graph.output:
            if value.name in made:
                copy = onnx.ValueInfoProto()
                copy.CopyFrom(value)
                copy.name = prefix + value.name
                copy.type.tensor_type.ClearField("shape")
                outputs.append(copy)
            else:  # keys and values of the encoder's output, which the other branch does not make
                nodes.append(helper.make_node("Constant", [], [prefix + value.name], value=_nothing()))
                outputs.append(helper.make_tensor_value_info(prefix + value.name, onnx.TensorProto.FLOAT, [0, 2, 1, 8]))
        branches.append(helper.make_graph(nodes, prefix + "graph", [], outputs, weights))
    choice = helper.make_tensor_value_info("use_cache_branch", onnx.TensorProto.BOOL, [1])
    inputs = {v.name: v for model in (first, later) for v in model.graph.input}
    node = helper.make_node(
        "If",
        ["use_cache_branch"],
        [v.name for v in first.graph.output],
        then_branch=branches[0],
        else_branch=branches[1],
    )
    graph = helper.make_graph([node], "merged", [*inputs.values(), choice], list(first.graph.output))
    return helper.make_model(graph, opset_imports=list(first.opset_import), ir_version=8)


def _nothing():
    return numpy_helper.from_array(np.zeros((0, 2, 1, 8), np.float32))
