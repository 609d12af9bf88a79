"""Small models of a number of rows that data decide, for counts of 0 and 1: sizes that are computed from the count."""

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from random_sized_models import RandomModel

Build = Callable[[RandomModel, str], str]


def ints(m: RandomModel, *values: int) -> str:
    return m.constant(list(values))


def floats(m: RandomModel, *values: float) -> str:
    return m.constant(list(values), np.float32)


def count(m: RandomModel, v: str) -> str:
    """Returns the number of rows, an int64 of shape (1,)."""
    return m.add("Shape", v, start=0, end=1)


def less(m: RandomModel, v: str, number: int = 1) -> str:
    return m.add("Sub", count(m, v), ints(m, number))


def rest(m: RandomModel, v: str) -> str:
    """Returns max(n - 1, 0)."""
    return m.add("Max", less(m, v), ints(m, 0))


def scalar(m: RandomModel, x: str) -> str:
    return m.add("Squeeze", x, ints(m, 0))


def signal(m: RandomModel, v: str) -> str:
    """Returns the rows as (1, 2, n)."""
    return m.add("Unsqueeze", m.add("Transpose", v), ints(m, 0))


def filled(m: RandomModel, size: str) -> str:
    return m.add("Expand", floats(m, 2), size)


def both(m: RandomModel, size: str) -> str:
    return m.add("Concat", size, ints(m, 2), axis=0)


def sliced(m: RandomModel, v: str, start: Any, end: Any, step: int = 1) -> str:
    start, end = (x if isinstance(x, str) else ints(m, x) for x in (start, end))
    return m.add("Slice", v, start, end, ints(m, 0), ints(m, step))


def branch(m: RandomModel, v: str, condition: str) -> str:
    def graph(name: str, value: float) -> Any:
        tensor = helper.make_tensor("value", TensorProto.FLOAT, [1], [value])
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])
        return helper.make_graph([helper.make_node("Constant", [], [name], value=tensor)], name, [], [info])

    return m.add("If", scalar(m, condition), then_branch=graph("then", 1), else_branch=graph("else", 2))


def loop(m: RandomModel, v: str) -> str:
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["sum", "sum"], ["twice"])],
        "body",
        [info("i", 7, []), info("go", 9, []), info("sum", 1, [1])],
        [info("on", 9, []), info("twice", 1, [1])],
    )
    return m.add("Loop", scalar(m, count(m, v)), m.constant(True, bool), floats(m, 1), body=body)


def scan(m: RandomModel, v: str) -> str:
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "row"], ["next"]), helper.make_node("Identity", ["next"], ["each"])],
        "body",
        [info("state", 1, [2]), info("row", 1, [2])],
        [info("next", 1, [2]), info("each", 1, [2])],
    )
    # A row more, as ONNX's evaluator has no scan of none.
    rows = m.add("Concat", v, weight(m, 1, 2), axis=0)
    last, rows = m.add("Scan", floats(m, 1, 2), rows, body=body, num_scan_inputs=1, count=2)
    return m.add("Add", m.add("ReduceSum", rows, ints(m, 0), keepdims=0), last)


def top(m: RandomModel, v: str) -> str:
    rows = m.add("Concat", v, weight(m, 1, 2), axis=0)
    return m.add("TopK", rows, m.add("Min", count(m, rows), ints(m, 2)), axis=0, count=2)[0]


def halves(m: RandomModel, v: str) -> str:
    half = m.add("Div", count(m, v), ints(m, 2))
    sizes = m.add("Concat", half, m.add("Sub", count(m, v), half), axis=0)
    a, b = m.add("Split", v, sizes, axis=0, count=2)
    return m.add("Concat", b, a, axis=0)


def chunks(m: RandomModel, v: str) -> str:
    a, b = m.add("Split", v, axis=0, num_outputs=2, count=2)
    return m.add("Concat", b, a, axis=0)


def numbers_from(m: RandomModel, start: str, end: str, step: int = 1) -> str:
    return m.add("Range", scalar(m, start), scalar(m, end), m.constant(step))


def shifted(m: RandomModel, v: str) -> str:
    return m.add("Sub", sliced(m, v, 1, 99), sliced(m, v, 0, -1))


def first_row_or_none(m: RandomModel, v: str) -> str:
    return sliced(m, v, 0, m.add("Min", count(m, v), ints(m, 1)))


def padded_to(m: RandomModel, v: str, size: int) -> str:
    missing = m.add("Max", m.add("Sub", ints(m, size), count(m, v)), ints(m, 0))
    return m.add("Pad", v, m.add("Concat", ints(m, 0, 0), missing, ints(m, 0), axis=0))


def weight(m: RandomModel, *shape: int) -> str:
    return m.constant(np.arange(np.prod(shape)).reshape(shape) % 3 - 1, np.float32)


CASES: dict[str, Build] = {
    "n": count,
    "n - 1": less,
    "max(n - 1, 0)": rest,
    "max(n - 2, 0)": lambda m, v: m.add("Max", less(m, v, 2), ints(m, 0)),
    "max(1, n)": lambda m, v: m.add("Max", ints(m, 1), count(m, v)),
    "min(n, 1)": lambda m, v: m.add("Min", count(m, v), ints(m, 1)),
    "n / 2": lambda m, v: m.add("Div", count(m, v), ints(m, 2)),
    "(n + 1) / 2": lambda m, v: m.add("Div", less(m, v, -1), ints(m, 2)),
    "6 / max(n, 1)": lambda m, v: m.add("Div", ints(m, 6), m.add("Max", count(m, v), ints(m, 1))),
    "n % 2": lambda m, v: m.add("Mod", count(m, v), ints(m, 2)),
    "|n - 1|": lambda m, v: m.add("Abs", less(m, v)),
    "sign(n)": lambda m, v: m.add("Sign", count(m, v)),
    "clip(n, 1, 3)": lambda m, v: m.add("Clip", count(m, v), m.constant(1), m.constant(3)),
    "relu(n - 1)": lambda m, v: m.add("Relu", m.add("Cast", less(m, v), to=1)),
    "n == 0": lambda m, v: m.add("Cast", m.add("Equal", count(m, v), ints(m, 0)), to=7),
    "n == 1": lambda m, v: m.add("Cast", m.add("Equal", count(m, v), ints(m, 1)), to=7),
    "n > 0": lambda m, v: m.add("Cast", m.add("Greater", count(m, v), ints(m, 0)), to=7),
    "n >= 1": lambda m, v: m.add("Cast", m.add("GreaterOrEqual", count(m, v), ints(m, 1)), to=7),
    "n < 1": lambda m, v: m.add("Cast", m.add("Less", count(m, v), ints(m, 1)), to=7),
    "where n > 0": lambda m, v: m.add("Where", m.add("Greater", count(m, v), ints(m, 0)), count(m, v), ints(m, 7)),
    "sqrt(n)": lambda m, v: m.add("Sqrt", m.add("Cast", count(m, v), to=1)),
    "size": lambda m, v: m.add("Size", v),
    "2n - 1 or 0": lambda m, v: m.add(
        "Max", m.add("Sub", m.add("Mul", count(m, v), ints(m, 2)), ints(m, 1)), ints(m, 0)
    ),
    "if n > 0": lambda m, v: branch(m, v, m.add("Greater", count(m, v), ints(m, 0))),
    "if n == 1": lambda m, v: branch(m, v, m.add("Equal", count(m, v), ints(m, 1))),
    "loop of n": loop,
    "scan": scan,
    "filled n": lambda m, v: filled(m, count(m, v)),
    "filled max(n - 1, 0)": lambda m, v: filled(m, rest(m, v)),
    "filled max(n, 1)": lambda m, v: filled(m, m.add("Max", count(m, v), ints(m, 1))),
    "constant of n": lambda m, v: m.add("ConstantOfShape", both(m, count(m, v))),
    "sum of constant": lambda m, v: m.add(
        "ReduceSum", m.add("ConstantOfShape", both(m, rest(m, v)), value=helper.make_tensor("v", 1, [1], [2.0]))
    ),
    "range(n)": lambda m, v: numbers_from(m, ints(m, 0), count(m, v)),
    "range(1, n)": lambda m, v: numbers_from(m, ints(m, 1), count(m, v)),
    "range(n - 1, -1, -1)": lambda m, v: numbers_from(m, less(m, v), ints(m, -1), -1),
    "range(0, n, 2)": lambda m, v: numbers_from(m, ints(m, 0), count(m, v), 2),
    "range(n - 1)": lambda m, v: numbers_from(m, ints(m, 0), less(m, v)),
    "sum of range(1, n)": lambda m, v: m.add("ReduceSum", numbers_from(m, ints(m, 1), count(m, v))),
    "x[1:]": lambda m, v: sliced(m, v, 1, 99),
    "x[2:]": lambda m, v: sliced(m, v, 2, 99),
    "x[:-1]": lambda m, v: sliced(m, v, 0, -1),
    "x[:-2]": lambda m, v: sliced(m, v, 0, -2),
    "x[-1:]": lambda m, v: sliced(m, v, -1, 99),
    "x[-2:]": lambda m, v: sliced(m, v, -2, 99),
    "x[1:-1]": lambda m, v: sliced(m, v, 1, -1),
    "x[::-1]": lambda m, v: sliced(m, v, -1, -99, -1),
    "x[::2]": lambda m, v: sliced(m, v, 0, 99, 2),
    "x[-1::-2]": lambda m, v: sliced(m, v, -1, -99, -2),
    "x[:n // 2]": lambda m, v: sliced(m, v, 0, m.add("Div", count(m, v), ints(m, 2))),
    "x[n // 2:]": lambda m, v: sliced(m, v, m.add("Div", count(m, v), ints(m, 2)), 99),
    "x[n - 1:]": lambda m, v: sliced(m, v, less(m, v), 99),
    "x[:n - 1]": lambda m, v: sliced(m, v, 0, less(m, v)),
    "x[:max(n - 1, 0)]": lambda m, v: sliced(m, v, 0, rest(m, v)),
    "x[:1]": lambda m, v: sliced(m, v, 0, 1),
    "first row or none": first_row_or_none,
    "sum of x[1:]": lambda m, v: m.add("ReduceSum", sliced(m, v, 1, 99), ints(m, 0)),
    "sum of x[:-1]": lambda m, v: m.add("ReduceSum", sliced(m, v, 0, -1), ints(m, 0)),
    "sum of x[-1:]": lambda m, v: m.add("ReduceSum", sliced(m, v, -1, 99), ints(m, 0)),
    "differences": shifted,
    "halves": halves,
    "chunks": chunks,
    "largest": top,
    "none or padded": lambda m, v: padded_to(m, v, 3),
    "pad": lambda m, v: m.add("Pad", v, ints(m, 1, 0, 1, 0), floats(m, 5)),
    "concat": lambda m, v: m.add("Concat", weight(m, 1, 2), v, axis=0),
    "concat then [:-1]": lambda m, v: sliced(m, m.add("Concat", weight(m, 1, 2), v, axis=0), 0, -1),
    "concat then [n:]": lambda m, v: sliced(m, m.add("Concat", v, weight(m, 1, 2), axis=0), count(m, v), 99),
    "reshape to (n, 2, 1)": lambda m, v: m.add("Reshape", v, m.add("Concat", both(m, count(m, v)), ints(m, 1), axis=0)),
    "reshape with 0": lambda m, v: m.add("Reshape", v, ints(m, 0, 2, 1)),
    "flatten": lambda m, v: m.add("Flatten", v, axis=0),
    "reshape to -1": lambda m, v: m.add("Reshape", v, ints(m, -1)),
    "sum of flat": lambda m, v: m.add("ReduceSum", m.add("Reshape", v, ints(m, -1)), keepdims=0),
    "tile by 2": lambda m, v: m.add("Tile", v, ints(m, 2, 1)),
    "tile by n": lambda m, v: m.add("Tile", weight(m, 2, 2), m.add("Concat", count(m, v), ints(m, 1), axis=0)),
    "expand by n": lambda m, v: m.add("Expand", weight(m, 1, 2), both(m, count(m, v))),
    "sum of expanded": lambda m, v: m.add(
        "ReduceSum", m.add("Expand", weight(m, 1, 2), both(m, count(m, v))), ints(m, 0)
    ),
    "with a row": lambda m, v: m.add("Add", v, weight(m, 1, 2)),
    "with its first row": lambda m, v: m.add("Add", v, sliced(m, v, 0, 1)),
    "with its sum": lambda m, v: m.add("Add", v, m.add("ReduceSum", v, ints(m, 0))),
    "outer": lambda m, v: m.add("ReduceSum", m.add("MatMul", v, m.add("Transpose", v))),
    "pairs": lambda m, v: m.add("Sub", m.add("Unsqueeze", v, ints(m, 1)), m.add("Unsqueeze", v, ints(m, 0))),
    "gram": lambda m, v: m.add("MatMul", m.add("Transpose", v), v),
    "sum": lambda m, v: m.add("ReduceSum", v, ints(m, 0)),
    "sum of squares": lambda m, v: m.add("ReduceSumSquare", v, ints(m, 0)),
    "product": lambda m, v: m.add(
        "ReduceProd", m.add("Clip", v, m.constant(-1, np.float32), m.constant(1, np.float32)), ints(m, 0)
    ),
    "largest of a row more": lambda m, v: m.add("ReduceMax", m.add("Concat", v, weight(m, 1, 2), axis=0), ints(m, 0)),
    "cumulative": lambda m, v: m.add("CumSum", v, m.constant(0)),
    "cumulative, reverse, exclusive": lambda m, v: m.add("CumSum", v, m.constant(0), exclusive=1, reverse=1),
    "softmax": lambda m, v: m.add("Softmax", v, axis=0),
    "times its last row": lambda m, v: m.add("Mul", v, sliced(m, v, -1, 99)),
    "with min(n, 1) zeros": lambda m, v: m.add(
        "Sub", v, m.add("ConstantOfShape", both(m, m.add("Min", count(m, v), ints(m, 1))))
    ),
    "expand of first row": lambda m, v: m.add("Expand", sliced(m, v, 0, 1), m.add("Shape", v)),
    "where of first row": lambda m, v: m.add(
        "Where", m.add("Greater", sliced(m, v, 0, 1), floats(m, 0)), v, sliced(m, v, -1, 99)
    ),
    "nonzero": lambda m, v: m.add("NonZero", v),
    "sum of nonzero": lambda m, v: m.add("ReduceSum", m.add("NonZero", v), ints(m, 1)),
    "one hot": lambda m, v: m.add("OneHot", m.add("Cast", v, to=7), m.constant(3), ints(m, 0, 1)),
    "scatter rows": lambda m, v: m.add(
        "ScatterND", weight(m, 12, 2), m.add("Unsqueeze", numbers_from(m, ints(m, 0), count(m, v)), ints(m, 1)), v
    ),
    "triangle": lambda m, v: m.add("Trilu", m.add("MatMul", v, m.add("Transpose", v))),
    "pool, pads": lambda m, v: m.add(
        "MaxPool", signal(m, m.add("Concat", v, weight(m, 1, 2), axis=0)), kernel_shape=[2], pads=[1, 0], strides=[2]
    ),
    "average, pads": lambda m, v: m.add("AveragePool", signal(m, v), kernel_shape=[3], pads=[1, 1], strides=[1]),
    "pool of a row more": lambda m, v: m.add(
        "MaxPool", signal(m, m.add("Concat", v, weight(m, 3, 2), axis=0)), kernel_shape=[3], strides=[2]
    ),
    "pool of ceil": lambda m, v: m.add(
        "MaxPool", signal(m, m.add("Concat", v, weight(m, 2, 2), axis=0)), kernel_shape=[2], strides=[2], ceil_mode=1
    ),
    "convolution": lambda m, v: m.add("Conv", signal(m, v), weight(m, 2, 2, 3), pads=[1, 1]),
    "convolution, stride 2": lambda m, v: m.add(
        "Conv", signal(m, m.add("Concat", v, weight(m, 2, 2), axis=0)), weight(m, 2, 2, 2), strides=[2]
    ),
    "transposed convolution": lambda m, v: m.add(
        "ConvTranspose", signal(m, m.add("Concat", v, weight(m, 1, 2), axis=0)), weight(m, 2, 2, 3), strides=[2]
    ),
    "resize": lambda m, v: m.add(
        "Resize",
        signal(m, m.add("Concat", v, weight(m, 1, 2), axis=0)),
        "",
        floats(m, 1, 1, 2),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    "gather": lambda m, v: m.add("Gather", weight(m, 12, 2), numbers_from(m, ints(m, 0), count(m, v)), axis=0),
    "gather reversed": lambda m, v: m.add("Gather", v, numbers_from(m, less(m, v), ints(m, -1), -1), axis=0),
    "center crop to 3": lambda m, v: m.add("CenterCropPad", v, ints(m, 3), axes=[0]),
}
