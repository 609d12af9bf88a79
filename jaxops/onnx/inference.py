"""A model that was exported for training, as one for inference."""

from collections.abc import Iterable

import onnx
from onnx import helper

from jaxops.onnx.validate import domain_of

# The operators that may train, with the number of operands before `training_mode`.
_TRAINING = {("", "BatchNormalization"): 5, ("", "Dropout"): 2, ("com.microsoft", "BiasDropout"): 4}
# Earlier opsets have the attribute `is_test`, whose default is training.
_WITHOUT_IS_TEST = 7


def for_inference(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the model, which it changes, with each BatchNormalization, Dropout and BiasDropout in inference mode."""
    for nodes, opsets in ((proto.graph.node, proto.opset_import), *((f.node, f.opset_import) for f in proto.functions)):
        _change(nodes, any(o.domain in ("", "ai.onnx") and o.version < _WITHOUT_IS_TEST for o in opsets))
    return proto


def _change(nodes: Iterable[onnx.NodeProto], has_is_test: bool) -> None:
    for node in nodes:
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                _change(graph.node, has_is_test)
        domain = domain_of(node.domain)
        if (operands := _TRAINING.get((domain, node.op_type))) is None:
            continue
        kept = [each for each in node.attribute if each.name not in ("training_mode", "is_test")]
        del node.attribute[:]
        node.attribute.extend([*kept, *([helper.make_attribute("is_test", 1)] if has_is_test and not domain else [])])
        del node.input[operands:]
        if node.op_type == "BatchNormalization":
            del node.output[1:]
