"""Compiles a model that fits on no chip for 4 and 16 chips of a TPU that need not be there: `python large_model.py`.

Writes a decoder of the sizes of Llama-2-13B in bfloat16, whose weights are a hole in a file, splits it by
`tensor_parallel`, and by `fsdp` over it on a mesh of two axes, and compiles `apply` for 1,024 tokens. Needs `pip
install libtpu`. Prints the bytes that a chip holds: of parameters, by the table of `explain`; and of arguments and
temporary values, by the compiler. A v5e has 16 GB.
"""

import argparse
import os
import tempfile
from math import prod
from pathlib import Path

import onnx
from onnx import TensorProto

WIDTH, HEADS, INNER, LAYERS, VOCABULARY = 5120, 40, 13824, 40, 32000
LAYER = """
    n# = RMSNormalization(h#, norm_1_#)
    q# = MatMul(n#, query_#) k# = MatMul(n#, key_#) v# = MatMul(n#, value_#)
    a# = Attention<is_causal = 1, q_num_heads = HEADS, kv_num_heads = HEADS>(q#, k#, v#)
    o# = MatMul(a#, output_#) r# = Add(h#, o#)
    m# = RMSNormalization(r#, norm_2_#)
    g# = MatMul(m#, gate_#) s# = Sigmoid(g#) w# = Mul(g#, s#) u# = MatMul(m#, up_#)
    x# = Mul(w#, u#) d# = MatMul(x#, down_#) h@ = Add(r#, d#)
"""


def write(folder: Path) -> Path:
    shapes = {"table": (VOCABULARY, WIDTH)}
    for k in range(LAYERS):
        shapes |= {f"{name}_{k}": (WIDTH, WIDTH) for name in ("query", "key", "value", "output")}
        shapes |= {f"gate_{k}": (WIDTH, INNER), f"up_{k}": (WIDTH, INNER), f"down_{k}": (INNER, WIDTH)}
        shapes |= {f"norm_1_{k}": (WIDTH,), f"norm_2_{k}": (WIDTH,)}
    shapes |= {"norm": (WIDTH,), "head": (WIDTH, VOCABULARY)}
    layer = LAYER.replace("HEADS", str(HEADS))
    layers = "".join(layer.replace("#", str(k)).replace("@", str(k + 1)) for k in range(LAYERS))
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 23]>
        large (int32[B, T] tokens) => (bfloat16[B, T, {VOCABULARY}] logits) {{
            h0 = Gather(table, tokens) {layers}
            n = RMSNormalization(h{LAYERS}, norm) logits = MatMul(n, head) }}"""
    )
    offset = 0
    for name, shape in shapes.items():
        size = 2 * prod(shape)
        tensor = TensorProto(name=name, data_type=TensorProto.BFLOAT16, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "weights.bin"), ("offset", offset), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        model.graph.initializer.append(tensor)
        offset += -(-size // 4096) * 4096
    (folder / "weights.bin").touch()
    os.truncate(folder / "weights.bin", offset)
    onnx.save(model, folder / "large.onnx")
    return folder / "large.onnx"


def measure(path: Path, chips: int, data: int) -> None:
    """data: by how many chips the batch is split."""
    import jax
    import numpy as np
    from collectives import collectives, devices_of
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    import jaxops.onnx
    from jaxops.sharding import explain, fsdp, tensor_parallel

    mesh = Mesh(np.array(devices_of("tpu", chips)).reshape(data, chips // data), ("data", "model"))
    rule = tensor_parallel("model", mesh)
    model = jaxops.onnx.load(path, sharding=rule if data == 1 else fsdp("data", rule, mesh))
    table = explain(model)
    params = {row.name: row.type for row in table.rows}
    tokens = jax.ShapeDtypeStruct((data, 1024), "int32", sharding=NamedSharding(mesh, P("data")))
    with jax.set_mesh(mesh):
        lowered = jax.jit(model.apply).trace(params, tokens).lower(lowering_platforms=("tpu",))
    compiled = lowered.compile()
    memory, counts = compiled.memory_analysis(), collectives(compiled.as_text())
    arguments, temporary = memory.argument_size_in_bytes / 1e9, memory.temp_size_in_bytes / 1e9
    print(f"{chips:3} chips, {data} × {chips // data}: {table.total / 1e9:.1f} GB of parameters; a chip holds", end=" ")
    print(f"{table.bytes / 1e9:.2f} of them, arguments {arguments:.2f}, temporary {temporary:.2f}; {dict(counts)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chips", type=int, nargs="+", choices=(4, 16), default=[4, 16])
    given = parser.parse_args()
    os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder))
        for chips in given.chips:
            measure(path, chips, 1)
            if chips > 4:
                measure(path, chips, 4)


if __name__ == "__main__":
    main()
