"""Counts the collectives of a call: `python collectives.py FILE ... [--devices 2 4 8] [--platform tpu]`.

Splits each model by `tensor_parallel`, under Auto and under Explicit axes, and compiles `apply` for so many devices of
this processor, or for the chips of a TPU that need not be there (`pip install libtpu`). Free sizes are 2 for the batch,
and 128. Prints the collectives by kind, all of them per layer, and the bytes of parameters a device in units of
bytes/n, fused projections aside, which `apply` keeps whole. With --prepared, it compiles `run` of `model.specialize`
for devices of this processor; the bytes are then those of all that `prepare` gives.
"""

import argparse
import os
import re
from collections import Counter
from pathlib import Path

KINDS = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
TOPOLOGIES = {2: "2x1", 4: "2x2", 8: "2x4", 16: "4x4"}


def devices_of(platform, count):
    import jax

    if platform == "cpu":
        return jax.devices()[:count]
    from jax.experimental import topologies

    sizes = [int(size) for size in TOPOLOGIES[count].split("x")]
    name = f"v5e:{TOPOLOGIES[count]}"
    return topologies.get_topology_desc(platform="tpu", topology_name=name, chips_per_host_bounds=[*sizes, 1]).devices


def collectives(text):
    """Returns how often each kind of collective is in the text of a compiled program.

    A TPU's program writes one that runs beside other work in several parts, of one channel.
    """
    found = re.findall(rf" ({'|'.join(KINDS)})(?:-start)?\(.*?, channel_id=(\d+)", text)
    return Counter(kind for kind, _ in set(found))


def measured_prepared(path, count, kind):
    import jax
    import numpy as np
    from jax.sharding import Mesh

    import jaxops.onnx
    from jaxops.sharding import explain, tensor_parallel

    with jax.set_mesh(Mesh(np.array(jax.devices()[:count]), ("model",), axis_types=(kind,))):
        model = jaxops.onnx.load(path, sharding=tensor_parallel("model"))
        inputs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in sizes_of(model)]
        prepare, run = model.specialize(*inputs)
        prepared, table = prepare(model.params), explain(model)
        found = collectives(jax.jit(run).lower(prepared, *inputs).compile().as_text())
    arrays = jax.tree.leaves(prepared)
    share = sum(x.addressable_shards[0].data.nbytes for x in arrays) * count / table.total
    return found, share, sum(row.role == "fused" for row in table.rows)


def sizes_of(model):
    """Returns the shape and dtype of each input."""
    import jax

    for value in model.inputs:
        free = iter((2, 128, 128, 128))
        shape = tuple(size if isinstance(size, int) else next(free) for size in value.shape)
        yield shape, jax.dtypes.canonicalize_dtype(value.dtype)


def measured(path, platform, count, kind):
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    import jaxops.onnx
    from jaxops.sharding import explain, tensor_parallel

    here = Mesh(np.array(jax.devices()[:count]), ("model",), axis_types=(kind,))
    with jax.set_mesh(here):
        model = jaxops.onnx.load(path, sharding=tensor_parallel("model"))
    mesh = Mesh(np.array(devices_of(platform, count)), ("model",), axis_types=(kind,))

    def spec(shape, dtype, parts):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, parts))

    params = {name: spec(x.shape, x.dtype, x.sharding.spec) for name, x in model.params.items()}
    inputs = [spec(shape, dtype, P()) for shape, dtype in sizes_of(model)]
    with jax.set_mesh(mesh):
        lowered = jax.jit(model.apply).trace(params, *inputs).lower(lowering_platforms=(platform,))
    found = collectives(lowered.compile().as_text())
    rows = explain(model).rows
    split = [row for row in rows if row.role != "fused"]
    every = sum(model.params[row.name].nbytes for row in split)
    return found, sum(row.bytes for row in split) * count / every, sum(row.role == "fused" for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--devices", type=int, nargs="+", choices=TOPOLOGIES, default=[4])
    parser.add_argument("--platform", choices=("cpu", "tpu"), default="cpu")
    parser.add_argument("--prepared", action="store_true")
    parser.add_argument("--layers", type=int, default=12)
    given = parser.parse_args()
    if given.prepared and given.platform != "cpu":
        parser.error("--prepared: weights are prepared on devices that are here")
    os.environ |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=16", "JAX_PLATFORMS": "cpu"}
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    from jax.sharding import AxisType

    print(f"{'':40}{''.join(f'{kind:>20}' for kind in KINDS)}{'a layer':>9}{'bytes':>7}{'fused':>6}")
    for path in given.files:
        for count in given.devices:
            for kind in (AxisType.Auto, AxisType.Explicit):
                if given.prepared:
                    found, share, fused = measured_prepared(path, count, kind)
                else:
                    found, share, fused = measured(path, given.platform, count, kind)
                counts = "".join(f"{found[name]:>20}" for name in KINDS)
                label = f"{path.stem}, {count} {given.platform}, {kind.name}"
                print(f"{label:40}{counts}{found.total() / given.layers:>9.1f}{share:>7.2f}{fused:>6}", flush=True)


if __name__ == "__main__":
    main()
