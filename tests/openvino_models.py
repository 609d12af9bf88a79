"""Small IRs with bodies and with variables."""

import numpy as np
from openvino_files import File


def iterator(start, end, stride, part_size, axis=1):
    """x is read in slices; each is added to a running sum of its elements' size, and all sums are joined."""
    body = File()
    part = body.parameter([1, part_size, 2])
    total = body.parameter([1, part_size, 2])
    body.result(body.layer("Add", 1, [part, total]))
    slices = f'axis="{axis}" start="{start}" end="{end}" stride="{stride}" part_size="{part_size}"'
    maps = (
        f'<port_map><input external_port_id="0" internal_layer_id="0" {slices}/>'
        '<input external_port_id="1" internal_layer_id="1"/>'
        '<output external_port_id="2" internal_layer_id="3"/>'
        f'<output external_port_id="3" internal_layer_id="3" {slices}/></port_map>'
        f'<back_edges><edge from-layer="3" to-layer="1"/></back_edges><body>{body.net}</body>'
    )
    file = File()
    x = file.parameter([1, 6, 2], name="x")
    zero = file.constant(np.zeros((1, part_size, 2), "f4"))
    layer, port = file.layer("TensorIterator", 1, [x, zero], {}, 2, body=maps)
    file.result((layer, port))
    file.result((layer, port + 1))
    return file


def loop(trip_count, while_below=None, joined='axis="0" start="0" end="-1" stride="1" part_size="1"'):
    """Doubles x until the trip count, or until its first element reaches a bound; gives numbers of iterations too.

    joined: how the numbers are joined; empty for the last one alone.
    """
    body = File()
    number, state = body.parameter([1], "i8"), body.parameter([1])
    two = body.constant(np.array([2], "f4"))
    doubled = body.layer("Multiply", 1, [state, two])
    body.result(doubled)
    result = len(body.layers) - 1
    go_on = body.constant(np.array([True]))
    if while_below is not None:
        go_on = body.layer("Less", 1, [doubled, body.constant(np.array([while_below], "f4"))])
    body.result(go_on)
    condition = len(body.layers) - 1
    body.result(body.layer("Convert", 1, [number], {"destination_type": "f32"}))
    maps = (
        '<port_map><input external_port_id="-1" internal_layer_id="0" purpose="current_iteration"/>'
        f'<input external_port_id="2" internal_layer_id="1"/>'
        f'<output external_port_id="-1" internal_layer_id="{condition}" purpose="execution_condition"/>'
        f'<output external_port_id="3" internal_layer_id="{result}"/>'
        f'<output external_port_id="4" internal_layer_id="{len(body.layers) - 1}" {joined}/></port_map>'
        f'<back_edges><edge from-layer="{result}" to-layer="1"/></back_edges><body>{body.net}</body>'
    )
    file = File(weights=body.weights)
    count, go = file.constant(np.array([trip_count])), file.constant(np.array([True]))
    layer, port = file.layer("Loop", 5, [count, go, file.parameter([1], name="x")], {}, 2, body=maps)
    file.result((layer, port))
    file.result((layer, port + 1))
    return file


def variable(name, shape, dtype="f32"):
    return {"variable_id": name, "variable_shape": shape, "variable_type": dtype}


def counter(*, first=True, late=False):
    """y = before + x; the next value is 2 * y. late: the Assign stands before the ReadValue."""
    file = File("counter")
    x = file.parameter([2], name="x")
    start = [file.layer("Multiply", 1, [x, file.constant(np.float32(10))])] if first else []
    layers = [file.layer("ReadValue", 6, start, variable("count", "2"))]
    total = file.layer("Add", 1, [layers[0], x])
    file.layer("Assign", 6, [file.layer("Add", 1, [total, total])], variable("count", "2"))
    file.result(total)
    if late:
        file.layers.reverse()
    return file


def cache():
    """An empty cache of as many rows as x grows by what it is given, its rows in another order at each step."""
    file = File("cache")
    x, rows = file.parameter(["?", "?", 3], name="x"), file.parameter(["?"], "i4", name="beam_idx")
    size = file.layer("ShapeOf", 3, [x], {"output_type": "i64"})
    zero, axis = file.constant(np.array([0], "i8")), file.constant(np.int64(0))
    batch = file.layer("Gather", 8, [size, zero, axis], {"batch_dims": 0})
    none = file.layer("Subtract", 1, [batch, batch])  # with a constant, the plugin refuses what does not have size 0
    sizes = file.layer("Concat", 1, [batch, none, file.constant(np.array([3], "i8"))], {"axis": 0})
    empty = file.layer("Broadcast", 3, [file.constant(np.float32(0)), sizes], {"mode": "numpy"})
    before = file.layer("ReadValue", 6, [empty], variable("past", "?,?,3"))
    chosen = file.layer("Gather", 8, [before, rows, axis], {"batch_dims": 0})
    after = file.layer("Concat", 1, [chosen, x], {"axis": 1})
    file.layer("Assign", 6, [after], variable("past", "?,?,3"))
    file.result(file.layer("ReduceSum", 1, [after, file.constant(np.array([1], "i8"))], {"keep_dims": False}))
    return file


def branches() -> File:
    """Exp or a sum with a constant."""
    bodies = File(), File()
    for body in bodies:
        body.parameter([2], name="a")
    bodies[0].result(bodies[0].layer("Exp", 1, [(0, 0)]))
    bodies[1].result(bodies[1].layer("Add", 1, [(0, 0), bodies[1].constant(np.array([1, 2], "f4"))]))
    maps = "".join(
        f'<{name}_port_map><input external_port_id="1" internal_layer_id="0"/><output external_port_id="0" '
        f'internal_layer_id="{len(body.layers) - 1}"/></{name}_port_map><{name}_body>{body.net}</{name}_body>'
        for name, body in zip(("then", "else"), bodies, strict=True)
    )
    file = File(weights=bodies[1].weights)
    inputs = [file.parameter([], "?", name="condition"), file.parameter([2], name="x")]
    file.result(file.layer("If", 8, inputs, body=maps))
    return file


def perceptron() -> File:
    """A layer whose weight is decompressed, and one whose weight has four bits."""
    file = File()
    x = file.parameter(["?", 3], name="x")
    w = file.constant(np.arange(12).reshape(4, 3).astype("f2") / 4, name="self.fc.weight")
    rt = '<rt_info><attribute name="decompression" version="0"/></rt_info>'
    w = file.layer("Convert", 1, [w], {"destination_type": "f32"}, body=rt)
    flags = {"transpose_a": False, "transpose_b": True}
    y = file.layer("Relu", 1, [file.layer("MatMul", 1, [x, w], flags)])
    attributes = {"element_type": "u4", "shape": [2, 1, 4], "offset": len(file.weights), "size": 4}
    file.weights += bytes([0x21, 0x43, 0x65, 0x87])
    w = file.layer("Convert", 1, [file.layer("Const", 1, (), attributes)], {"destination_type": "f32"})
    w = file.layer("Multiply", 1, [w, file.constant(np.ones((2, 1, 1), "f4"))])
    w = file.layer("Reshape", 1, [w, file.constant(np.array([2, 4]))], {"special_zero": False})
    file.result(file.layer("MatMul", 1, [y, w], flags))
    return file
