"""Small language models of the nodes, names and declared sizes that onnxruntime-genai's builder writes."""

import numpy as np
from graphs import build, info, node, tensor
from onnx import TensorProto, helper

VOCABULARY, WIDTH, HEADS, GROUPS, HEAD, HIDDEN, POSITIONS = 48, 32, 4, 2, 16, 64, 64
# What the builder calls the sizes of a cache: one that keeps all, and a sliding one.
KEEPS, SLIDES = ("past_sequence_length", "total_sequence_length"), ("past_sliding_length", "total_sliding_length")


def language_model(
    windows=(0, 0), *, half=False, four_bits=False, norms=False, softcap=0.0, sinks=False, few=0, state=False
):
    """A decoder of one layer for each of `windows`, 0 for one that sees all tokens.

    half: in float16. four_bits: weights in MatMulNBits. norms: queries and keys are normalized, as in Qwen3; "joined":
    one product makes them. softcap, sinks: as in Gemma2 and gpt-oss. few: for so many tokens there are tables of their
    own, as in Phi-3 (LongRoPE). state: before its layers is a causal convolution, as in LFM2.
    """
    return _Writer(half, four_bits, norms, softcap, sinks, few, state).model(windows)


class _Writer:
    def __init__(self, half, four_bits, norms, softcap, sinks, few, state):
        self.dtype, self.four_bits, self.norms = (np.float16 if half else np.float32), four_bits, norms
        self.softcap, self.sinks, self.few, self.state = softcap, sinks, few, state
        self.rng, self.nodes, self.weights = np.random.default_rng(0), [], []

    def add(self, op, inputs, outputs, **attributes):
        self.nodes.append(node(op, inputs, outputs, node_name=outputs[0], **attributes))
        return outputs[0]

    def weight(self, name, values):
        self.weights.append(tensor(values, name))
        return name

    def floats(self, name, *shape, scale=0.3, offset=0.0):
        return self.weight(name, (self.rng.normal(size=shape) * scale + offset).astype(self.dtype))

    def product(self, name, x, rows, columns):
        """x · weights, the weights (rows, columns) as they are, or in 4 bits."""
        if not self.four_bits:
            return self.add("MatMul", [x, self.floats(f"{name}.MatMul.weight", rows, columns)], [f"/{name}/MatMul"])
        packed = self.rng.integers(0, 256, (columns, rows // 32, 16)).astype(np.uint8)
        inputs = [x, self.weight(f"{name}.MatMul.weight_Q4", packed)]
        scales = (self.rng.uniform(0.02, 0.08, (columns, rows // 32))).astype(self.dtype)
        inputs.append(self.weight(f"{name}.MatMul.weight_scales", scales))
        sizes = {"K": rows, "N": columns, "bits": 4, "block_size": 32, "accuracy_level": 0}
        return self.add("MatMulNBits", inputs, [f"/{name}/MatMul"], domain="com.microsoft", **sizes)

    def normalized(self, name, x, width, skip=None):
        weight = self.floats(f"{name}.weight", width, scale=0.2, offset=1.0)
        if skip is None:
            attributes = {"axis": -1, "stash_type": 1, "epsilon": 1e-6}
            return self.add("SimplifiedLayerNormalization", [x, weight], [f"/{name}"], **attributes)
        outputs = [f"/{name}", "", "", f"/{name}/sum"]
        self.add("SkipSimplifiedLayerNormalization", [skip, x, weight], outputs, domain="com.microsoft", epsilon=1e-6)
        return f"/{name}"

    def attention(self, layer, x, window):
        name = f"model.layers.{layer}.attn"
        if self.norms:
            parts, apart = [], []
            if self.norms == "joined":
                joined = self.product(f"{name}.qkv_proj", x, WIDTH, (HEADS + 2 * GROUPS) * HEAD)
                sizes = self.weight("qkv_sizes", np.array([HEADS * HEAD, GROUPS * HEAD, GROUPS * HEAD]))
                apart = [f"/{name}/Split/{k}" for k in range(3)]
                self.add("Split", [joined, sizes], apart, axis=-1)
            for part, heads in (("q", HEADS), ("k", GROUPS), ("v", GROUPS)):
                y = apart.pop(0) if apart else self.product(f"{name}.{part}_proj", x, WIDTH, heads * HEAD)
                if part != "v":
                    y = self.add("Reshape", [y, "heads"], [f"/{name}/{part}/1"])
                    y = self.normalized(f"{name}.{part}_norm", y, HEAD)
                    y = self.add("Reshape", [y, f"{part}_width"], [f"/{name}/{part}/2"])
                parts.append(y)
        else:
            parts = [self.product(f"{name}.qkv_proj", x, WIDTH, (HEADS + 2 * GROUPS) * HEAD), "", ""]
        past, present = (
            [f"{side}.{layer}.{kind}" for kind in ("key", "value")] for side in ("past_key_values", "present")
        )
        inputs = [*parts, *past, "lengths", "total", "cos_cache", "sin_cache", "", ""]
        inputs.append(self.floats(f"{name}.sinks", HEADS) if self.sinks else "")
        attributes = {"num_heads": HEADS, "kv_num_heads": GROUPS, "scale": HEAD**-0.5, "softcap": self.softcap}
        attributes |= {"local_window_size": window or -1, "do_rotary": 1, "rotary_interleaved": 0}
        attributes |= {"sliding_window_cache": 1} if window else {}
        outputs = [f"/{name}/GroupQueryAttention", *present]
        return self.add("GroupQueryAttention", inputs, outputs, domain="com.microsoft", **attributes)

    def layer(self, layer, x, skip, window):
        """The states behind a layer: (its own result, what it is added to)."""
        name = f"model.layers.{layer}"
        x = self.normalized(f"{name}.input_layernorm", x, WIDTH, skip)
        skip = skip and f"/{name}.input_layernorm/sum"
        y = self.product(f"{name}.attn.o_proj", self.attention(layer, x, window), HEADS * HEAD, WIDTH)
        x = self.normalized(f"{name}.post_attention_layernorm", y, WIDTH, skip or "embedded")
        gate = self.product(f"{name}.mlp.gate_proj", x, WIDTH, HIDDEN)
        up = self.product(f"{name}.mlp.up_proj", x, WIDTH, HIDDEN)
        open_ = self.add("Sigmoid", [gate], [f"/{name}/mlp/Sigmoid"])
        gated = self.add("Mul", [self.add("Mul", [gate, open_], [f"/{name}/mlp/silu"]), up], [f"/{name}/mlp/Mul"])
        return self.product(f"{name}.mlp.down_proj", gated, HIDDEN, WIDTH), f"/{name}.post_attention_layernorm/sum"

    def tables(self):
        """Cosines and sines of positions; two pairs, and an If between them, if there are some for few tokens."""
        angles = np.arange(POSITIONS)[:, None] / 10.0 ** (np.arange(HEAD // 2) / 2)
        waves = {"cos_cache": np.cos(angles).astype(self.dtype), "sin_cache": np.sin(angles).astype(self.dtype)}
        if not self.few:
            return [self.weight(name, values) for name, values in waves.items()]
        kind, branches = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype)), {}
        for branch, rows, factor in (("then_branch", POSITIONS, 1), ("else_branch", self.few, 2)):
            made = {f"{name}_{rows}": values[::factor][:rows] for name, values in waves.items()}
            nodes = [node("Constant", [], [name], value=tensor(values, name)) for name, values in made.items()]
            infos = [info(name, values.shape, kind) for name, values in made.items()]
            branches[branch] = helper.make_graph(nodes, branch, [], infos)
        self.weight("few", np.array(self.few))
        self.add("Greater", ["width", "few"], ["many"])
        self.nodes.append(node("If", ["many"], list(waves), **branches))
        return list(waves)

    def model(self, windows):
        constants = {"axes": [1], "one": 1, "heads": [0, 0, -1, HEAD]}
        constants |= {"q_width": [0, 0, HEADS * HEAD], "k_width": [0, 0, GROUPS * HEAD]}
        for name, values in constants.items():
            self.weight(name, np.array(values))
        summed = self.add("ReduceSum", ["attention_mask", "axes"], ["summed"], keepdims=0)
        before = self.add("Sub", [summed, "one"], ["before"])
        self.add("Cast", [before], ["lengths"], to=TensorProto.INT32)
        width = self.add("Gather", [self.add("Shape", ["attention_mask"], ["sizes"]), "one"], ["width"], axis=0)
        self.add("Cast", [width], ["total"], to=TensorProto.INT32)
        self.tables()
        embedding = self.floats("model.embed_tokens.weight", VOCABULARY, WIDTH, scale=1.0)
        x, skip = self.add("Gather", [embedding, "input_ids"], ["embedded"]), None
        if self.state:
            turned, weight = self.add("Transpose", [x], ["turned"], perm=[0, 2, 1]), self.floats("conv", WIDTH, 1, 3)
            outputs, kind = ["/conv", "present.0.conv"], {"domain": "com.microsoft", "ndim": 1}
            self.add("CausalConvWithState", [turned, weight, "", "past.0.conv"], outputs, activation="none", **kind)
            x = self.add("Transpose", ["/conv"], ["convolved"], perm=[0, 2, 1])
        for layer, window in enumerate(windows):
            x, skip = self.layer(layer, x, skip, window)
        x = self.normalized("model.norm", x, WIDTH, skip)
        logits = self.product("lm_head", x, WIDTH, VOCABULARY)
        self.add("Identity", [logits], ["logits"])
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        inputs = [info("input_ids", ["batch_size", "sequence_length"], TensorProto.INT64)]
        inputs += [info("attention_mask", ["batch_size", "total_sequence_length"], TensorProto.INT64)]
        outputs = [info("logits", ["batch_size", "sequence_length", VOCABULARY], kind)]
        for layer, window in enumerate(windows):
            past, total = SLIDES if window else KEEPS
            for part in ("key", "value"):
                shape = ["batch_size", GROUPS, past, "kv_cache_dim"]
                inputs.append(info(f"past_key_values.{layer}.{part}", shape, kind))
                shape = ["batch_size", GROUPS, total, "kv_cache_dim"]
                outputs.append(info(f"present.{layer}.{part}", shape, kind))
        if self.state:
            inputs.append(info("past.0.conv", ["batch_size", WIDTH, 2], kind))
            outputs.append(info("present.0.conv", ["batch_size", WIDTH, 2], kind))
        used = {name for n in self.nodes for name in n.input}
        weights = [w for w in self.weights if w.name in used]
        opsets = (("", 21), ("com.microsoft", 1))
        return build(*self.nodes, inputs=inputs, outputs=outputs, initializers=weights, opsets=opsets)
