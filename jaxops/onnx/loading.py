"""Loading: from an ONNX file to a model."""

from jaxops.model import Model
from jaxops.onnx.bind import bind
from jaxops.onnx.read import Readable, read
from jaxops.tools.sharding import Rule


def load(model: Readable, *, sharding: Rule | None = None) -> Model:
    """Loads an ONNX model as a JAX function.

    It accepts what can mean one thing, although the opset forbids it: see `jaxops.onnx.tolerant`.

    model: the path of a file, its bytes, or a ModelProto. External data is looked for beside the file, checked
    now and read when `Model.params` is first used.
    sharding: a function of name, module path and shape of a parameter that gives its PartitionSpec on the current mesh
    (`jax.set_mesh`), or its NamedSharding; `jaxops.sharding` has two. Parameters are read shard by shard.
    Raises FileNotFoundError; ModelError for a file that is damaged, has a cycle, or whose external data is missing or
    outside its folder; UnsupportedError with a list of all operators that jaxops does not have; SignatureError
    and others for nodes that their opset does not allow; ShapeError and ArgumentError for a sharding that does not fit.
    """
    source = read(model)
    opsets = ", ".join(f"{domain or 'ai.onnx'} {n}" for domain, n in source.opsets.items())
    description = f"opset {opsets} · {source.producer}" if source.producer else f"opset {opsets}"
    return Model(bind(source), opsets=source.opsets, description=description, sharding=sharding)
