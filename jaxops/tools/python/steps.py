"""Turns a graph into steps: statements in order, with the functions that they call or define."""

import re
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from jaxops import ops
from jaxops.dtypes import canonical, is_string
from jaxops.errors import UnsupportedError
from jaxops.graph.nodes import Graph, Node, Value
from jaxops.static import symbolic_shape
from jaxops.tools.convert.astype import Converting
from jaxops.tools.python.assumptions import Assumed, Assumptions
from jaxops.tools.python.bodies import inside
from jaxops.tools.python.calls import statement
from jaxops.tools.python.converting import operands, written
from jaxops.tools.python.expressions import Expression, Ref, call, refs
from jaxops.tools.python.literals import literal
from jaxops.tools.python.naming import RESERVED
from jaxops.tools.python.operands import KEY, Nested, Operand
from jaxops.tools.python.quoting import identifier


@dataclass
class Step:
    """A statement: `targets = expression`. path: the module that it belongs to."""

    targets: list[str]  # '' for a value that nothing reads
    expression: Expression
    path: tuple[str, ...] = ()
    unpacks: bool = False  # whether the expression is a tuple, even of one value
    open_ended: bool = False  # whether there may be more values than targets
    calls: "Function | None" = None  # the function that is called; `expression` has the arguments only
    bodies: "dict[str, Function]" = field(default_factory=dict)  # functions defined before it, by name

    def reads(self) -> list[str]:
        """The values that the step reads, including those that its functions capture."""
        names = list(refs(self.expression))
        for body in self.bodies.values():
            names += body.captured()
        return names


@dataclass(eq=False)
class Function:
    """A function to be written: formal names, steps, and results."""

    name: str
    args: list[str]
    steps: list[Step]
    results: list[Expression]
    path: tuple[str, ...] = ()
    key: Expression | None = None  # the random key of a body; None if the caller passes a key
    facts: dict[str, Any] = field(default_factory=dict)  # known facts about arguments and results
    is_main: bool = False
    declared: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # the sizes of inputs, as the file names them
    limits: Sequence[str] = ()  # of the sizes
    takes: Sequence[Any] = ()  # the declared inputs of a body, if its operator reads them

    def captured(self) -> list[str]:
        """The values that the function reads and does not compute."""
        local = {*self.args, *(name for step in self.steps for name in step.targets)}
        if self.key is not None:
            local.add("rng")
        names = [name for step in self.steps for name in step.reads()]
        names += [name for result in self.results for name in refs(result)]
        names = [name for name in names if name not in local]
        return list(dict.fromkeys([*names, *(refs(self.key) if self.key is not None else ())]))


def param(name: str) -> str:
    """The name of a parameter as a value. The first character shows the kind of value, whatever its name."""
    return f"@{name}"


def tensor(name: str) -> str:
    """The name of an input or a result of a node as a value."""
    return f"%{name}"


class Reader:
    """Turns graphs into steps. facts: the known shapes and types of values of the main graph."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params
        self.facts: dict[str, Any] = {}
        self.names: dict[int, str] = {}  # of static arrays
        self._bodies: dict[Any, Function] = {}
        self.symbols: dict[str, str] = {}  # of the sizes that the model names, or does not declare
        self.declared: dict[str, list[Any]] = {}  # the sizes of inputs
        self.assumptions = Assumptions(self.declared)
        self._taken: frozenset[str] = RESERVED
        self.functions: set[str] = set()  # the names of bodies
        self.modules: dict[str, None] = {}  # to be imported
        self.opsets: set[tuple[str, int]] = set()  # whose functions are called: the module, and the number

    def main(self, graph: Graph, inputs: Sequence[Value]) -> Function:
        """The function of a model."""
        self._taken = RESERVED.union(identifier(value.name) for value in inputs)
        while True:
            try:
                return self._main(graph, inputs)
            except Assumed:
                self._bodies, self.functions, self.modules, self.opsets = {}, set(), {}, set()

    def _main(self, graph: Graph, inputs: Sequence[Value]) -> Function:
        inputs_by_name = {value.name: self._input(value) for value in inputs}
        steps, results = self._graph(graph, inputs_by_name, ChainMap(), main=True)
        name = identifier(graph.name or "model")
        facts = {tensor(name): x.fact for name, x in inputs_by_name.items()}
        return Function(
            name,
            [tensor(value.name) for value in inputs],
            _needed(steps, results),
            results,
            facts=facts,
            is_main=True,
            declared=self.declared,
            limits=self.assumptions.texts,
        )

    def _input(self, value: Value) -> Any:
        if value.kind != "tensor" or value.dtype is None or value.shape is None:
            return Operand(Ref(tensor(value.name)))
        dims = [d if isinstance(d, int) else self._symbol(d or f"{value.name}_{k}") for k, d in enumerate(value.shape)]
        self.declared[tensor(value.name)] = dims
        fact = jax.ShapeDtypeStruct(self._sizes(dims), canonical(value.dtype))
        return Operand(Ref(tensor(value.name)), fact, static=bool(value.static) or is_string(fact))

    def _symbol(self, text: str) -> str:
        """The symbol for a size: a name that no input has."""
        if text not in self.symbols:
            self.symbols[text] = identifier(text, self._taken.union(self.symbols.values()))
        return self.symbols[text]

    def _sizes(self, dims: Sequence[Any]) -> tuple[Any, ...]:
        if all(isinstance(d, int) for d in dims):
            return tuple(dims)
        dims_in_scope = symbolic_shape(
            ", ".join(map(str, dims)) + ("," if len(dims) == 1 else ""), scope=self.assumptions.scope
        )
        return tuple(dims_in_scope)

    def _graph(
        self, graph: Graph, inputs_by_name: Mapping[str, Any], outer: ChainMap[str, Any], *, main: bool = False
    ) -> tuple[list[Step], list[Expression]]:
        local: dict[str, Any] = {}
        for name, value in graph.static.items():
            local[name] = value
            self.names[id(value)] = name
        for name, full in graph.params.items():
            if name not in inputs_by_name:
                value = self.params[full]
                local[name] = Operand(Ref(param(full)), jax.ShapeDtypeStruct(value.shape, value.dtype))
        values = ChainMap({**local, **inputs_by_name}, *outer.maps)
        steps: list[Step] = []
        for index, node in enumerate(graph.nodes):
            inputs = [values[name] if name else None for name in node.inputs]
            outputs = self._node(node, graph.number(index), inputs, values, steps)
            for name, value in zip(node.outputs, outputs, strict=False):
                if not name:
                    continue
                values[name] = value
                if isinstance(value, np.ndarray):
                    self.names.setdefault(id(value), name)
                if main and isinstance(value, Operand) and value.fact is not None:
                    self.facts[tensor(name)] = value.fact
        return steps, [_result(values[value.name]) for value in graph.outputs]

    def _node(
        self, node: Node, number: int, inputs: list[Any], values: ChainMap[str, Any], steps: list[Step]
    ) -> Sequence[Any]:
        if node.operator.function is ops.identity:
            return inputs
        path = tuple(part for part in re.split(r"[./]", node.scope) if part)
        key = Operand(call("fold_in", [Ref("rng"), str(number)]), KEY) if node.draws else None
        body = node.body or (node.operator.body(node, [_abstract(x) for x in inputs]) if _typed(node) else None)
        if body is not None:
            return self._call(node, body, inputs, path, steps, key)
        attributes = dict(node.attributes)
        bodies: dict[str, Function] = {}
        entering, results = (
            inside(node, inputs, values, self.params, key, self.assumptions.failed) if node.subgraphs else ({}, None)
        )
        for name, graph in node.subgraphs.items():
            unique = identifier(name, self.functions | RESERVED)
            self.functions.add(unique)
            undecided = node.operator.function is ops.if_ and getattr(inputs[0], "static", False)
            with self.assumptions.suspended(undecided):  # one branch runs, whose limits need not hold for the other
                body = bodies[unique] = self._body(name, graph, values, key, entering.get(name, {}))
            body.takes = graph.inputs if node.operator.subgraphs[name].several else ()
            attributes[name] = Nested(unique)
        converting = node.operator if isinstance(node.operator, Converting) else None
        if converting is not None:
            if bodies:
                raise UnsupportedError(
                    f"to_python: node '{node.label}' ({node.operator.label}) has subgraphs\n"
                    "  hint    write the model as it was loaded, and convert its parameters and inputs"
                )
            inputs = operands(converting, inputs)
            node = replace(node, operator=converting.inner)
        made = statement(node, inputs, attributes, key, self.assumptions, results, converted=converting is not None)
        if made.call.module:
            self.modules[made.call.module] = None
        if made.call.opset is not None:
            self.opsets.add(made.call.opset)
        targets = [tensor(name) if name else "" for name in node.outputs]
        targets = [*targets, *[""] * len(made.facts)][: len(made.facts)]
        steps.append(Step(targets, made.expression, path, made.unpacks, made.open_ended, bodies=bodies))
        outputs = [_result_of(name, fact, made.static) for name, fact in zip(targets, made.facts, strict=True)]
        if converting is None or not converting.ends:
            return outputs
        return [written(x, converting.dtype) if isinstance(x, Operand) else x for x in outputs]

    def _body(
        self, name: str, graph: Graph, values: ChainMap[str, Any], key: Any, facts: Mapping[str, Any]
    ) -> Function:
        operands = {value.name: Operand(Ref(tensor(value.name)), facts.get(value.name)) for value in graph.inputs}
        steps, results = self._graph(graph, operands, values)
        return Function(
            name, list(map(tensor, operands)), _needed(steps, results), results, key=key.expression if key else None
        )

    def _call(
        self, node: Node, body: Graph, inputs: list[Any], path: tuple[str, ...], steps: list[Step], key: Any
    ) -> Sequence[Any]:
        formals = [value.name for value in body.inputs]
        operands: dict[str, Any] = dict.fromkeys(formals)
        operands |= dict(zip(formals, inputs, strict=False))
        static = {name: x for name, x in operands.items() if x is None or isinstance(x, np.ndarray)}
        signature = body, repr([(n, _key(x)) for n, x in operands.items()])
        if signature not in self._bodies:
            inner = {name: x if name in static else Operand(Ref(tensor(name)), x.fact) for name, x in operands.items()}
            body_steps, results = self._graph(body, inner, ChainMap())
            args = [tensor(name) for name in formals if name not in static]
            facts = {tensor(name): x.fact for name, x in operands.items() if isinstance(x, Operand)}
            function = Function(
                identifier(_snake(node.operator.name)), args, _needed(body_steps, results), results, facts=facts
            )
            function.args += function.captured()  # parameters, and the random key
            self._bodies[signature] = function
        function = self._bodies[signature]
        items = [_argument(name, operands, key) for name in function.args]
        targets = [tensor(name) if name else "" for name in node.outputs]
        targets += [""] * (len(function.results) - len(targets))
        steps.append(Step(targets, call("", items), path, len(function.results) > 1, calls=function))
        return [Operand(Ref(name)) if name else None for name in targets]


def _argument(name: str, operands: Mapping[str, Any], key: Any) -> Expression:
    if name == "rng":
        return key.expression
    return Ref(name) if name.startswith("@") else operands[name[1:]].expression


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)


def _key(value: Any) -> Any:
    """The facts for which a body is specialized: the value if it is static, or else the type and shape."""
    return (value.dtype, value.shape, value.tolist()) if isinstance(value, np.ndarray) else getattr(value, "fact", None)


def _typed(node: Node) -> bool:
    """Returns True if the operator is defined by a body that depends on the types of its operands."""
    operator = node.operator.inner if isinstance(node.operator, Converting) else node.operator
    return getattr(operator, "fn", None) is None


def _abstract(value: Any) -> Any:
    if isinstance(value, Operand):
        if value.fact is None:
            raise UnsupportedError("to_python: an operand has an unknown type")
        return value.fact
    return value


def _result_of(target: str, fact: Any, static: bool) -> Any:
    """A result of a call as a value."""
    if isinstance(fact, np.ndarray):
        return fact
    is_known = isinstance(fact, jax.ShapeDtypeStruct)
    return Operand(Ref(target), fact if is_known else None, static and not is_known)


def _needed(steps: Sequence[Step], results: Sequence[Expression]) -> list[Step]:
    """The steps whose values are read."""
    read = {name for result in results for name in refs(result)}
    needed = []
    for step in reversed(steps):
        if read.intersection(step.targets):
            needed.append(replace(step, targets=[name if name in read else "" for name in step.targets]))
            read.update(step.reads())
    return needed[::-1]


def _result(value: Any) -> Expression:
    if isinstance(value, Operand):
        return value.expression
    return literal(value)
