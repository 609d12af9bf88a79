"""Writes functions as source text: chooses names, inlines short expressions, writes equal modules as one function."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from jaxops.dtypes import is_float
from jaxops.tools.python.expressions import (
    INDENT,
    WIDTH,
    Data,
    Expression,
    Group,
    Ref,
    Size,
    call,
    depth,
    flat,
    laid_out,
    refs,
    replaced,
    sequence,
)
from jaxops.tools.python.files import stored_as
from jaxops.tools.python.literals import dtype_text
from jaxops.tools.python.naming import OTHERWISE, RESERVED, base_name, operator_name, plain_name
from jaxops.tools.python.quoting import identifier, string
from jaxops.tools.python.size_lines import limit_lines, size_lines, symbols_of
from jaxops.tools.python.steps import Function, Step

# An expression with inlined values has at most this width, and calls nested at most this deep.
_WIDEST, _DEEPEST = 72, 3


@dataclass
class Written:
    """A function as text. paths: the modules that it computes."""

    name: str
    args: list[str]
    sizes: list[str]
    params: bool
    lines: list[str]  # without the line with `def`
    doc: str
    returns: str
    paths: list[tuple[str, ...]]


class Renderer:
    """Writes functions; functions with equal text are written once.

    paths: of the parameters. names: of static arrays, by their identity. reserved: names that no value may have.
    """

    def __init__(
        self,
        paths: Mapping[str, str],
        names: Mapping[int, str],
        inputs: Collection[str],
        outputs: Collection[str],
        reserved: Collection[str],
    ) -> None:
        self.paths = paths
        self.constants: dict[str, Any] = {}
        self.functions: list[Written] = []
        self._names = names
        self._inputs = inputs
        self.reserved = RESERVED.union(reserved)
        self.outputs = outputs
        self.operators: dict[str, str] = {}  # value → the operator that computes it
        self._written: dict[Function, Written] = {}
        self._by_text: dict[Any, Written] = {}

    def write(self, function: Function) -> Written:
        """Writes a function that is called by another one; the functions that it calls come before it."""
        if function in self._written:
            return self._written[function]
        self._callees(function)
        # Functions that differ only in the names of arguments become one.
        plain = _Scope(self, function, [f"x{k}" for k in range(len(function.args))])
        key = tuple(plain.lines()), len(function.args), tuple(plain.sizes)
        if key not in self._by_text:
            scope = _Scope(self, function, self._arguments(function))
            lines = scope.lines()
            name = self._name(function)
            rendered = Written(name, scope.args, scope.sizes, scope.params, lines, scope.doc(), scope.returns(), [])
            self._by_text[key] = rendered
            self.functions.append(rendered)
        rendered = self._by_text[key]
        rendered.paths.append(function.path)
        self._written[function] = rendered
        return rendered

    def main(self, function: Function) -> "_Scope":
        """The function of the model; several results are `Outputs`."""
        self._find_operators(function)
        self._callees(function)
        return _Scope(self, function, self._arguments(function))

    def _arguments(self, function: Function) -> list[str]:
        """Names for the arguments: inputs of the model keep theirs; the first float array that a module takes is `x`.

        In an item of a list of modules, names have no numbers.
        """
        facts = [function.facts.get(name) for name in function.args]
        inner = [name for name in function.args if name not in self._inputs and name[0] != "@" and name != "rng"]
        floats = [arg for arg, fact in zip(function.args, facts, strict=True) if arg in inner and _is_float(fact)]
        first = next(iter(floats or inner), None) if function.path else None
        used: set[str] = {*self.reserved, *(written.name for written in self.functions if function.is_main)}
        names = []
        for name in function.args:
            if name == "rng":
                names.append("rng")
                continue
            if name.startswith("@"):
                base = self.paths[name[1:]].rpartition(".")[2]
            elif name in self._inputs:
                base = (
                    base_name(name, "x", function.path)
                    if any(part.isdigit() for part in function.path)
                    else plain_name(name)
                )
            else:
                base = "x" if name == first else base_name(name, self.operators.get(name, "value"), function.path)
            names.append(identifier(OTHERWISE.get(base.lower(), base), used))
            used.add(names[-1])
        return names

    def _find_operators(self, function: Function) -> None:
        for step in function.steps:
            if step.calls is not None:
                self._find_operators(step.calls)
            else:
                self.operators.update(dict.fromkeys(step.targets, operator_name(step.expression)))

    def _callees(self, function: Function) -> None:
        for step in function.steps:
            if step.calls is not None:
                self.write(step.calls)
            for body in step.bodies.values():
                self._callees(body)

    def _name(self, function: Function) -> str:
        """A unique name: that of the module, with the names of outer modules if that is necessary."""
        parts = [part for part in function.path if not part.isdigit()] or [function.name]
        used = (
            {written.name for written in self.functions}
            | self.reserved
            | {"x", *map(identifier, map(plain_name, self._inputs))}
        )
        for count in range(1, len(parts) + 1):
            name = identifier("_".join(parts[-count:]))
            if name not in used:
                return name
        return identifier("_".join(parts[-2:]), used)

    def constant(self, value: Any) -> str:
        """The expression that reads an array from the file of constants."""
        name = next((name for name, other in self.constants.items() if other is value), None)
        if name is None:
            name = identifier(self._names.get(id(value), "table").rpartition("/")[2], self.constants)
            self.constants[name] = value
        read = f'CONSTANTS["{name}"]'
        return read if stored_as(value.dtype) is None else f"{read}.view({dtype_text(value.dtype)})"

    def called(self, function: Function) -> Written:
        """The rendered form of a function."""
        return self._written[function]


def _is_float(fact: Any) -> bool:
    return isinstance(fact, jax.ShapeDtypeStruct) and is_float(fact.dtype)


class _Scope:
    """The text of one function, or of a body inside it."""

    def __init__(self, renderer: Renderer, function: Function, args: Sequence[str], outer: "_Scope | None" = None):
        self.renderer = renderer
        self.function = function
        self.outer = outer
        self.indent: str = outer.indent + INDENT if outer else INDENT
        self.args = list(args)
        self.names: dict[str, str] = dict(outer.names if outer else {})
        self.names |= dict(zip(function.args, args, strict=True))
        self.taken = {*renderer.reserved, *(outer.taken if outer else ()), *args}
        self.names.setdefault("rng", "rng")
        self.params = False
        self.sizes: list[str] = []  # those that become arguments
        self._size_lines: list[str] = []
        if outer is None:
            symbols = symbols_of(function, lambda inner: renderer.called(inner).sizes)
            self.taken.update(symbols)
            self._size_lines, self.sizes = size_lines(function, self.args, symbols)
            self._size_lines += limit_lines(function.limits)

    def lines(self) -> list[str]:
        """The lines of the function's body."""
        return [*self._size_lines, *self._statements()]

    def doc(self) -> str:
        """The docstring: the shapes and types of the results, if known."""
        texts = [_fact_text(self.function.facts.get(name)) for result in self.function.results for name in refs(result)]
        text = ", ".join(texts)
        return text if all(texts) and len(text) < _WIDEST - 20 else ""

    def returns(self) -> str:
        """The annotation of the results of the function; empty if they are unknown."""
        names = [name for result in self.function.results for name in refs(result)]
        known = all(isinstance(self.function.facts.get(name), jax.ShapeDtypeStruct) for name in names)
        if not known or not names or len(names) != len(self.function.results):  # or a result is a constant
            return ""
        return " -> Array" if len(names) == 1 else f" -> tuple[{', '.join(['Array'] * len(names))}]"

    def _statements(self) -> list[str]:
        function = self.function
        uses = Counter(name for step in function.steps for name in step.reads())
        uses.update(name for result in function.results for name in refs(result))
        for step in function.steps:
            for body in step.bodies.values():
                uses.update(body.captured() * 2)  # a body reads it each time
        pending: dict[str, tuple[Step, Expression]] = {}
        lines: list[str] = []
        readers = self._readers()
        for step in function.steps:
            expression = self._joined(self._callable(step), step, pending, lines, readers)
            for name, body in step.bodies.items():
                lines += self._body(name, body)
            if len(step.targets) == 1 and not step.unpacks and not step.bodies and uses[step.targets[0]] == 1:
                pending[step.targets[0]] = step, expression
            else:
                self._emit(step, expression, lines, readers)
        results = [self._joined(result, None, pending, lines, readers) for result in function.results]
        returned = results[0] if len(results) == 1 else sequence("()", results)
        if self.outer is None and not function.path and function.is_main and len(results) > 1:
            returned = call("Outputs", results)
        text = self._text(returned)
        if self.outer is not None and len(results) == 1:
            text = sequence("()", [text])
        line = f"{self.indent}return {flat(text).removeprefix('(').removesuffix(')')}"
        if isinstance(text, Group) and text.opening == "(" and len(text.items) > 1 and len(line) <= WIDTH:
            lines.append(line)
        else:
            lines += laid_out("return ", text, "", self.indent)
        return [line for k, line in enumerate(lines) if line or lines[k - 1]]  # one empty line between functions

    def _readers(self) -> dict[str, list[Step]]:
        readers: dict[str, list[Step]] = {}
        for step in self.function.steps:
            for name in step.reads():
                readers.setdefault(name, []).append(step)
        return readers

    def _callable(self, step: Step) -> Expression:
        if step.calls is None:
            return step.expression
        written = self.renderer.called(step.calls)
        assert isinstance(step.expression, Group)
        items: list[Expression] = list(step.expression.items)
        if written.params:
            items.insert(0, self._params(step.calls.path))
        items += [Size(text, (text,)) for text in written.sizes]
        return call(written.name, items)

    def _params(self, path: tuple[str, ...]) -> str:
        scope = self
        while scope.outer is not None:
            scope = scope.outer
        scope.params = self.params = True
        return "params" + "".join(f"[{string(part)}]" for part in path[len(scope.function.path) :])

    def _joined(
        self,
        expression: Expression,
        step: Step | None,
        pending: dict[str, Any],
        lines: list[str],
        readers: Mapping[str, list[Step]],
    ) -> Expression:
        """The expression with inlined values that it alone reads, if it stays short; the rest becomes statements."""
        waiting = [name for name in dict.fromkeys(refs(expression)) if name in pending]
        for name in waiting:
            producer, inner = pending.pop(name)
            longer = replaced(expression, lambda leaf, n=name, e=inner: e if leaf == Ref(n) else leaf)
            captured = step is not None and any(name in body.captured() for body in step.bodies.values())
            is_returned = step is None and expression == Ref(name)  # the result of a function
            short = producer.calls is None and depth(longer) <= _DEEPEST and self._width(longer) <= _WIDEST
            if is_returned or (short and not captured):
                expression = longer
            else:
                self._emit(producer, inner, lines, readers)
        return expression

    def _width(self, expression: Expression) -> int:
        return len(flat(replaced(expression, lambda leaf: self._leaf(leaf, "x" * 8))))

    def _emit(self, step: Step, expression: Expression, lines: list[str], readers: Mapping[str, list[Step]]) -> None:
        text = self._text(expression)
        targets = [self._named(name, step, readers) for name in step.targets]
        if step.open_ended:
            targets.append("*_")
        left = ", ".join(targets)
        if step.unpacks and len(targets) == 1:
            left = f"({left},)"
        lines += laid_out(f"{left} = ", text, "", self.indent)

    def _named(self, name: str, step: Step, readers: Mapping[str, list[Step]]) -> str:
        if not name:
            return "_"
        operator = operator_name(step.expression)
        if name in self.renderer.outputs and not self.function.path:
            base = plain_name(name)
        elif step.calls is not None:
            base = f"{self.renderer.called(step.calls).name.rpartition('_')[2]}_out"
            if len(step.targets) > 1:
                base = base_name(name, base, self.function.path)
        else:
            base = base_name(name, operator, self.function.path)
            inner = [part for part in step.path[len(self.function.path) :] if not part.isdigit()]
            if inner and any(reader.path != step.path for reader in readers.get(name, [])):
                base = inner[-1]
        used = self.taken | {written.name for written in self.renderer.functions}
        self.names[name] = chosen = identifier(OTHERWISE.get(base.lower(), base), used)
        self.taken.add(chosen)
        return chosen

    def _text(self, expression: Expression) -> Expression:
        return replaced(expression, lambda leaf: self._leaf(leaf, None))

    def _leaf(self, leaf: Expression, unnamed: str | None) -> str:
        if isinstance(leaf, Data):
            return self.renderer.constant(leaf.value)
        if isinstance(leaf, Size):
            return leaf.text
        if not isinstance(leaf, Ref):
            assert isinstance(leaf, str)
            return leaf
        if leaf.name in self.names:
            return self.names[leaf.name]
        if leaf.name.startswith("@"):
            scope = self
            while scope.outer is not None:
                scope = scope.outer
            *path, last = self.renderer.paths[leaf.name[1:]].split(".")
            return f"{self._params(tuple(path))}[{string(last)}]"
        assert unnamed is not None, f"{leaf.name} has no name yet"
        return unnamed

    def _body(self, name: str, body: Function) -> list[str]:
        """A function inside this one."""
        inner_taken: set[str] = set(self.taken)
        args = []
        for arg in body.args:
            args.append(identifier(base_name(arg, "x"), inner_taken))
            inner_taken.add(args[-1])
        inner = _Scope(self.renderer, body, args, self)
        header: list[Expression] = list(args)
        if body.key is not None:
            header += ["*", f"rng={flat(self._text(body.key))}"]
            inner.names["rng"] = "rng"
        lines = laid_out(f"def {name}", Group("(", tuple(header), ")"), ":", self.indent)
        takes = sequence("[]", [_declared(value) for value in body.takes])
        declared = laid_out(f"{name}.inputs = ", takes, "", self.indent) if body.takes else []
        return ["", *lines, *inner.lines(), "", *declared]


def _declared(value: Any) -> Expression:
    """The shape and the type of an input of a body, with 0 for a size that is not fixed."""
    sizes = [str(d) if isinstance(d, int) else "0" for d in value.shape or ()]
    return call("jax.ShapeDtypeStruct", [sequence("()", sizes), dtype_text(value.dtype)])


def _fact_text(fact: Any) -> str:
    if not isinstance(fact, jax.ShapeDtypeStruct):
        return ""
    return f"{fact.dtype.name}[{', '.join(map(str, fact.shape))}]"
