"""Small models of text: decoders like GPT-2 as graphs, and searches over them."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, HEADS, HEAD_SIZE, LAYERS, PLACES = 23, 2, 4, 2, 64
HIDDEN = HEADS * HEAD_SIZE
INT, FLOAT = TensorProto.INT32, TensorProto.FLOAT
_SHAPES = {
    "GreedySearch": [["b", "length"]],
    "Sampling": [["b", "length"], ["b", "v"]],
    "BeamSearch": [["b", "r", "length"], ["b", "r"], ["t", "b", "k", "v"]],
    "WhisperBeamSearch": [["b", "r", "length"], ["b", "r"], ["t", "b", "k", "v"], list("brhtf"), ["b"]],
}
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]


def gpt(seed=0, sharp=3.0):
    """A decoder: tokens, places, a mask and caches in, logits and longer caches out. sharp: how sure it is."""
    rng = np.random.default_rng(seed)
    weights, nodes = {}, []

    def weight(name, *shape, scale=1.0):
        weights[name] = (scale * rng.normal(size=shape)).astype(np.float32)
        return name

    def node(op, inputs, outputs, **attributes):
        nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return outputs[0]

    node("Gather", [weight("wte", VOCABULARY, HIDDEN), "input_ids"], ["tokens"])
    node("Gather", [weight("wpe", PLACES, HIDDEN), "position_ids"], ["places"])
    x = node("Add", ["tokens", "places"], ["x"])
    for k in range(LAYERS):
        operands = [weight(f"qkv_{k}", HIDDEN, 3 * HIDDEN, scale=0.5), weight(f"bias_{k}", 3 * HIDDEN, scale=0.1)]
        operands = [x, *operands, "attention_mask", f"past_{k}"]
        outputs = [f"a_{k}", f"present_{k}"]
        attention = {"num_heads": HEADS, "unidirectional": 1, "domain": "com.microsoft"}
        x = node("Add", [x, node("Attention", operands, outputs, **attention)], [f"b_{k}"])
        h = node("MatMul", [x, weight(f"up_{k}", HIDDEN, HIDDEN, scale=0.5)], [f"c_{k}"])
        x = node("Add", [x, node("Tanh", [h], [f"d_{k}"])], [f"e_{k}"])
    node("MatMul", [x, weight("head", HIDDEN, VOCABULARY, scale=sharp / HIDDEN)], ["logits"])
    value = helper.make_tensor_value_info
    caches = [2, "batch", HEADS, "past", HEAD_SIZE], [2, "batch", HEADS, "total", HEAD_SIZE]
    return helper.make_graph(
        nodes,
        "gpt",
        [
            *(value(name, INT, ["batch", "new"]) for name in ("input_ids", "position_ids")),
            value("attention_mask", INT, ["batch", "total"]),
            *(value(f"past_{k}", FLOAT, caches[0]) for k in range(LAYERS)),
        ],
        [
            value("logits", FLOAT, ["batch", "new", VOCABULARY]),
            *(value(f"present_{k}", FLOAT, caches[1]) for k in range(LAYERS)),
        ],
        [numpy_helper.from_array(x, name) for name, x in weights.items()],
    )


def model_of_search(op, inputs, outputs=1, **attributes):
    """A model of one search. inputs: values by name, in order; None is left out. outputs: how many, or which."""
    values = {name: x for name, x in inputs.items() if x is not None}
    names = [name if name in values else "" for name in inputs]
    places = range(outputs) if isinstance(outputs, int) else outputs
    written = [f"y{k}" if k in places else "" for k in range(max(places) + 1)]
    node = helper.make_node(op, names, written, domain="com.microsoft", **attributes)
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape if x.size == 1 else [None] * x.ndim
        )
        for name, x in values.items()
    ]
    ends = [helper.make_tensor_value_info(f"y{k}", FLOAT if k else INT, _SHAPES[op][k]) for k in places]
    model = helper.make_model(helper.make_graph([node], "search", infos, ends), opset_imports=OPSETS, ir_version=8)
    return model, values


def runtime(model, values):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, values)


def logits(decoder, ids):
    """The logits of onnxruntime behind one prompt."""
    model = helper.make_model(decoder, opset_imports=OPSETS, ir_version=8)
    places = np.arange(ids.shape[1], dtype=np.int32)[None]
    given = {"input_ids": ids, "position_ids": places, "attention_mask": np.ones_like(ids)}
    given |= {f"past_{k}": np.zeros((2, 1, HEADS, 0, HEAD_SIZE), np.float32) for k in range(LAYERS)}
    return runtime(model, given)[0][0, -1]


def with_encoder(seed=0, *, old=True, whole=False, sharp=1.0, bands=0, states=True, vocabulary=VOCABULARY):
    """A decoder that reads an encoder's caches, as T5 does, and the encoder.

    old: the encoder computes the first logits, and gives its states. whole: the decoder takes all tokens each time, of
    which it reads the last one. bands: of the sound that the encoder reads without a mask, as Whisper does; 0 for
    tokens. states: whether the decoder takes those of an old encoder.
    """
    rng = np.random.default_rng(seed)
    shapes = {"wte": (vocabulary, HIDDEN), "head": (HIDDEN, vocabulary)}
    shapes |= dict.fromkeys(("q", "k", "v", "cross_q", "cross_k", "cross_v"), (HIDDEN, HIDDEN))
    shapes |= {"bands": (bands, HIDDEN)} if bands else {}
    weights = {name: (rng.normal(size=s) / np.sqrt(HIDDEN)).astype(np.float32) for name, s in shapes.items()}
    weights["wte"] *= 3
    weights["head"] *= 3 * sharp
    constants = {
        "heads": np.array([0, -1, HEADS, HEAD_SIZE]),
        "merged": np.array([0, -1, HIDDEN]),
        "axes": np.array([1, 2]),
        "one": np.float32(1),
        "small": np.float32(0.05),
        "far": np.float32(-1e4),
        "last": np.array([-1]),
        "end": np.array([2**62]),
        "axis": np.array([1]),
    }
    initializers = [numpy_helper.from_array(np.asarray(x), name) for name, x in (weights | constants).items()]
    value = helper.make_tensor_value_info
    cache = lambda name, size: value(name, FLOAT, ["b", HEADS, size, HEAD_SIZE])  # noqa: E731
    ids, masks = value("encoder_input_ids", INT, ["b", "s"]), [value("encoder_attention_mask", INT, ["b", "s"])]
    if bands:
        ids, masks = value("encoder_input_ids", FLOAT, ["b", bands, "s"]), []
    crossed = [cache(f"present_{name}_cross_0", "s") for name in ("key", "value")]
    grown = [cache(f"present_{name}_self_0", "total") for name in ("key", "value")]
    logits = value("logits", FLOAT, ["b", "new" if bands else 1, vocabulary])

    class Nodes(list):
        def add(self, op, operands, result=None, **attributes):
            result = result or f"v{len(self)}"
            self.append(helper.make_node(op, operands, [result], **attributes))
            return result

        def split(self, x, weight, result=None):
            rows = self.add("Reshape", [self.add("MatMul", [x, weight]), "heads"])
            return self.add(
                "Transpose",
                [
                    rows,
                ],
                result,
                perm=[0, 2, 1, 3],
            )

        def attention(self, q, k, v, mask=None):
            scores = self.add("MatMul", [q, self.add("Transpose", [k], perm=[0, 1, 3, 2])])
            if mask is not None:
                scores = self.add("Add", [scores, mask])
            found = self.add("MatMul", [self.add("Softmax", [scores], axis=-1), v])
            return self.add("Reshape", [self.add("Transpose", [found], perm=[0, 2, 1, 3]), "merged"])

        def encoded(self):
            if bands:
                x = self.add("MatMul", [self.add("Transpose", ["encoder_input_ids"], perm=[0, 2, 1]), "bands"])
            else:
                x = self.add("Gather", ["wte", "encoder_input_ids"])
            if old:
                x = self.add("Tanh", [x], "encoder_hidden_states")
            for name in ("key", "value"):
                self.split(x, f"cross_{name[0]}", f"present_{name}_cross_0")

        def decoded(self, tokens, past, crossed):
            if whole and past:
                tokens = self.add("Slice", [tokens, "last", "end", "axis"])
            x = self.add("Gather", ["wte", tokens])
            caches = []
            for k, name in enumerate(("key", "value")):
                result = f"present_{name}_self_0"
                new = self.split(x, name[0], None if past else result)
                caches.append(self.add("Concat", [past[k], new], result, axis=2) if past else new)
            x = self.add("Add", [x, self.attention(self.split(x, "q"), *caches)])
            mask = None
            if not bands:
                mask = self.add("Cast", ["encoder_attention_mask"], to=FLOAT)
                mask = self.add("Mul", [self.add("Sub", ["one", mask]), "far"])
                mask = self.add("Unsqueeze", [mask, "axes"])
            x = self.add("Add", [x, self.attention(self.split(x, "cross_q"), *crossed, mask)])
            if old and states and past and bands:  # onnxruntime gives such a decoder their shape alone
                sizes = self.add("Cast", [self.add("Shape", ["encoder_hidden_states"])], to=FLOAT)
                mean = self.add("ReduceMean", [sizes], axes=[0], keepdims=0)
                x = self.add("Add", [x, self.add("Mul", [mean, "small"])])
            elif old and states and past:
                x = self.add("Add", [x, self.add("ReduceMean", ["encoder_hidden_states"], axes=[1], keepdims=1)])
            self.add("MatMul", [x, "head"], "logits")

    nodes = Nodes()
    nodes.encoded()
    takes, gives, read = [ids, *masks], [*crossed], []
    if old:
        nodes.decoded("decoder_input_ids", [], [v.name for v in crossed])
        hidden = value("encoder_hidden_states", FLOAT, ["b", "s", HIDDEN])
        takes += [value("decoder_input_ids", INT, ["b", "new" if bands else 1])]
        gives, read = [logits, hidden, *grown, *crossed], [hidden] if states else []
    encoder = helper.make_graph(nodes, "encoder", takes, gives, initializers)
    nodes = Nodes()
    pasts = [cache(f"past_{name}_self_0", "past") for name in ("key", "value")]
    others = [cache(f"past_{name}_cross_0", "s") for name in ("key", "value")]
    nodes.decoded("input_ids", [v.name for v in pasts], [v.name for v in others])
    takes = [value("input_ids", INT, ["b", "new" if whole else 1]), *masks, *read, *pasts, *others]
    decoder = helper.make_graph(nodes, "decoder", takes, [logits, *grown], initializers)
    return {"model_type": 2 if bands else 1, "encoder": encoder, "decoder": decoder, "decoder_start_token_id": 2}
