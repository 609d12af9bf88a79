"""A small model for the tests of commands."""

import pytest
from onnx import parser, save

TEXT = """
<ir_version: 9, opset_import: ["": 18]>
sums (float[N, 3] x, int64[N, 3] k) => (float[N] total)
{
    y = Cast <to = 1> (k)
    z = Add (x, y)
    axes = Constant <value_ints = [1]> ()
    total = ReduceSum <keepdims = 0> (z, axes)
}
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "sums.onnx"
    save(parser.parse_model(TEXT), path)
    return path
