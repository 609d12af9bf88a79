"""The part of a graph that its outputs need: a node whose results nothing reads is not traced.

The graph itself stays as the file has it, so that a call may ask for each of its tensors. Functions, branches and loops
are reduced, too: without outputs that nothing reads, and without the state of a loop that only these depend on. If only
the sizes of a result are read, and the operator keeps the sizes of its operand (a cumulative sum, say), the sizes of
the operand are read instead.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from jaxops.errors import SignatureError, near
from jaxops.graph.nodes import Graph, Node, Value
from jaxops.signature import SHAPE_ONLY, Subgraph


class Parts:
    """The parts of a graph that compute given outputs.

    The same choice of outputs gives the same part again, since compiled programs belong to a part.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._found = {graph.output_names: live(graph)}

    def with_outputs(self, outputs: Any = None) -> Graph:
        """Returns the part that computes the outputs. outputs: names of tensors or modules; None for the outputs of the
        graph, "*" for the tensors of all nodes.

        Raises SignatureError for a name that the graph does not have.
        """
        if outputs is None:
            return self._found[self._graph.output_names]
        if outputs == "*":
            names = tuple(name for node in self._graph.nodes for name in node.outputs if name)
        else:
            names = tensor_names("outputs", outputs, self._graph)
        if names not in self._found:
            values = tuple(Value(name, None, None) for name in names)
            self._found[names] = live(dataclasses.replace(self._graph, outputs=values))
        return self._found[names]


def tensor_names(option: str, names: Any, graph: Graph) -> tuple[str, ...]:
    """Returns the tensor names in an option. The path of a module stands for the one tensor that it returns.

    Raises SignatureError for an unknown name, if it is not a list, and for a module that returns several tensors.
    """
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise SignatureError(f"`{option}` is {names!r:.80}; give a list of names")
    if not names:
        raise SignatureError(f"`{option}` is empty; name at least one tensor")
    return tuple(name if name and name in graph.defined else _result_of(option, name, graph) for name in names)


def _result_of(option: str, module: str, graph: Graph) -> str:
    """Returns the name of the tensor that a module returns; an input of a graph is a tensor, so it has no modules."""
    modules = {} if option == "inputs" or not module else _by_module(graph)
    results = results_of(modules.get(module, ()), graph)
    if len(results) == 1:
        return results[0]
    if results:
        raise SignatureError(f"`{option}`: the module '{module}' returns several tensors; name one of {results}")
    similar = near(module, {*graph.defined, *modules}) or "; model.show() lists the tensors"
    what = "tensor or module" if modules else "tensor"
    raise SignatureError(f"`{option}`: the model has no {what} '{module}'{similar}")


def _by_module(graph: Graph) -> dict[str, list[Node]]:
    """The paths of modules → their nodes."""
    found: dict[str, list[Node]] = {}
    for node in filter(lambda node: node.scope, graph.nodes):
        levels = node.scope.split(".")
        for end in range(1, len(levels) + 1):
            found.setdefault(".".join(levels[:end]), []).append(node)
    return found


def results_of(nodes: Iterable[Node], graph: Graph) -> list[str]:
    """The tensors of these nodes that other nodes of the graph read, or that the graph returns, in order."""
    nodes = list(nodes)
    inside = set(map(id, nodes))
    used = {value.name for value in graph.outputs}
    used.update(name for node in graph.nodes if id(node) not in inside for name in node.uses())
    return [name for node in nodes for name in node.outputs if name and name in used]


def live(graph: Graph) -> Graph:
    """The graph without nodes that its outputs do not need; the graph itself if they need all."""
    return _Reduction().graph(graph, range(len(graph.outputs)))


class _Reduction:
    """Reduces graphs. A graph that several nodes share is reduced once for the nodes that read the same outputs."""

    def __init__(self) -> None:
        self._done: dict[tuple[Graph, tuple[int, ...]], Graph] = {}

    def graph(self, graph: Graph, outputs: Sequence[int]) -> Graph:
        """Returns a reduced graph. outputs: the positions of the outputs that are read."""
        key = graph, tuple(outputs)
        if key not in self._done:
            self._done[key] = self._reduced(graph, outputs)
        return self._done[key]

    def _reduced(self, graph: Graph, outputs: Sequence[int]) -> Graph:
        values = tuple(graph.outputs[k] for k in outputs)
        read, sized = {value.name for value in values}, set[str]()  # sized: names whose sizes are read
        alike: dict[str, str] = {}  # a name of which only the sizes are read → a name with the same sizes
        nodes_in_reverse: list[Node] = []
        numbers: list[int] = []
        for index in reversed(range(len(graph.nodes))):
            node = graph.nodes[index]
            only_sized = read.isdisjoint(node.outputs) and sized.isdisjoint(node.outputs[1:])
            if only_sized and _keeps_sizes(node):
                alike[node.outputs[0]] = node.inputs[0]
                sized.update(node.inputs[:1] if node.outputs[0] in sized else ())
                continue
            asked = [k for k, name in enumerate(node.outputs) if name and (name in read or name in sized)]
            if asked:
                node = self._node(node, asked)
                (sized if _reads_sizes(node) else read).update(node.uses())
                nodes_in_reverse.append(node)
                numbers.append(graph.number(index))
        nodes = tuple(_renamed(node, alike) if _reads_sizes(node) else node for node in reversed(nodes_in_reverse))
        if values == graph.outputs and len(nodes) == len(graph.nodes) and _same(nodes, graph.nodes):
            return graph
        return dataclasses.replace(graph, outputs=values, nodes=nodes, numbers=tuple(reversed(numbers)))

    def _node(self, node: Node, asked: Sequence[int]) -> Node:
        """Returns a node without the outputs that nothing reads. asked: the positions of the remaining outputs."""
        if node.body is not None:
            return self._call(node, node.body, asked)
        flows = [node.operator.subgraphs.get(name, Subgraph(modifies=True)) for name in node.subgraphs]
        if any(flow.carries for flow in flows):
            ((name, body),) = node.subgraphs.items()
            return self._loop(node, name, body, flows[0], asked)
        is_choice = all(flow.decided_by and flow.first is None for flow in flows)
        inner = {
            name: self.graph(graph, asked if is_choice else range(len(graph.outputs)))
            for name, graph in node.subgraphs.items()
        }
        if _same(inner.values(), node.subgraphs.values()):
            return node
        outputs = tuple(node.outputs[k] for k in asked) if is_choice else node.outputs
        return dataclasses.replace(node, outputs=outputs, attributes={**node.attributes, **inner})

    def _call(self, node: Node, body: Graph, asked: Sequence[int]) -> Node:
        """Returns the call of a function without the inputs that its reduced body does not read."""
        reduced = self.graph(body, asked)
        read = _read(reduced)
        inputs = tuple(
            name if formal.name in read else "" for name, formal in zip(node.inputs, body.inputs, strict=False)
        )
        if reduced is body and inputs == node.inputs:
            return node
        return dataclasses.replace(node, inputs=inputs, outputs=tuple(node.outputs[k] for k in asked), body=reduced)

    def _loop(self, node: Node, name: str, body: Graph, flow: Subgraph, asked: Sequence[int]) -> Node:
        """Returns a loop with the outputs that are read, and the state that these or the loop's condition depend on."""
        assert flow.first is not None
        begin = flow.first + 2 * flow.leading  # position of the first state among the operands
        count = max(len(node.inputs) - begin - node.attributes.get(flow.not_carried, 0), 0)
        state = set(asked)
        while True:
            reduced = self.graph(body, [*range(flow.leading), *(flow.leading + k for k in sorted(state))])
            read = _read(reduced)
            more = {k for k in range(count) if k not in state and body.inputs[2 * flow.leading + k].name in read}
            if not more:
                break
            state |= more
        if reduced is body:
            return node
        dropped = set(range(count)) - state
        attributes: dict[str, Any] = {
            key: tuple(x for k, x in enumerate(node.attributes[key], count) if k in state)
            for key in flow.of_rows
            if node.attributes.get(key) is not None
        }
        inputs = tuple(value for k, value in enumerate(body.inputs, -2 * flow.leading) if k not in dropped)
        return dataclasses.replace(
            node,
            inputs=tuple(operand for k, operand in enumerate(node.inputs, -begin) if k not in dropped),
            outputs=tuple(node.outputs[k] for k in sorted(state)),
            attributes={**node.attributes, **attributes, name: dataclasses.replace(reduced, inputs=inputs)},
        )


def _keeps_sizes(node: Node) -> bool:
    """Returns True if the first result of a node has the sizes of its first operand, or if the node reads nothing else
    of that operand.
    """
    if not node.inputs or node.body is not None:
        return False
    operator = node.operator
    return operator.keeps_sizes or (operator.mark(0) == SHAPE_ONLY and not operator.foldable)


def _reads_sizes(node: Node) -> bool:
    """Returns True if a node reads only the sizes of its only operand."""
    return node.operator.foldable and len(node.inputs) == 1 and node.operator.mark(0) == SHAPE_ONLY


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    (name,) = node.inputs
    while name in names:
        name = names[name]
    return node if (name,) == node.inputs else dataclasses.replace(node, inputs=(name,))


def _read(graph: Graph) -> set[str]:
    """The names that the nodes of a graph read, and those of its outputs."""
    return {value.name for value in graph.outputs}.union(*(node.uses() for node in graph.nodes))


def _same(some: Collection[Any], graphs: Collection[Any]) -> bool:
    return all(x is y for x, y in zip(some, graphs, strict=True))
