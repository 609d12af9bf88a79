"""A model that was exported for training, as one for inference."""

from collections.abc import Iterable

import onnx
from onnx import helper

# The operands of Dropout before `training_mode`.
_DROPOUT_OPERANDS = 2
# Earlier opsets have the attribute `is_test`, whose default is training.
_WITHOUT_IS_TEST = 7


def for_inference(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the model, which it changes, with each BatchNormalization and Dropout in inference mode."""
    for nodes, opsets in ((proto.graph.node, proto.opset_import), *((f.node, f.opset_import) for f in proto.functions)):
        _change(nodes, any(o.domain in ("", "ai.onnx") and o.version < _WITHOUT_IS_TEST for o in opsets))
    return proto


def _change(nodes: Iterable[onnx.NodeProto], has_is_test: bool) -> None:
    for node in nodes:
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                _change(graph.node, has_is_test)
        if node.domain not in ("", "ai.onnx") or node.op_type not in ("BatchNormalization", "Dropout"):
            continue
        kept = [each for each in node.attribute if each.name not in ("training_mode", "is_test")]
        del node.attribute[:]
        node.attribute.extend([*kept, *([helper.make_attribute("is_test", 1)] if has_is_test else [])])
        if node.op_type == "BatchNormalization":
            del node.output[1:]
        else:
            del node.input[_DROPOUT_OPERANDS:]
