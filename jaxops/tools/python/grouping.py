"""Groups steps into functions, one for each module of the model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jaxops.tools.python.expressions import Ref, call
from jaxops.tools.python.steps import Function, Step

# A module with fewer steps does not become a function.
_FEWEST = 4


def grouped(function: Function, facts: Mapping[str, Any], paths: Mapping[str, str]) -> Function:
    """The function, with the steps of each module in a separate function. paths: of the parameters."""
    read = {name for result in function.results for name in _reads(result)}
    facts = {**facts, **function.facts}
    steps = _level(_hoisted(_housed(function.steps)), (), read, facts, paths)
    return replace(function, steps=steps, facts=facts)


def _housed(steps: Sequence[Step]) -> list[Step]:
    """The steps; a step without a module, as optimizers write them, moves to the module of its operands and readers."""
    paths: dict[str, tuple[str, ...]] = {}
    readers: dict[str, list[tuple[str, ...]]] = {}
    for step in steps:
        for name in step.reads() if step.path else ():
            readers.setdefault(name, []).append(step.path)
    placed = []
    for step in steps:
        if not step.path:
            around = [path for name in step.targets for path in readers.get(name, [])]
            around += [paths[name] for name in step.reads() if paths.get(name)]
            step = replace(step, path=_common(around) or ())
        paths |= dict.fromkeys(step.targets, step.path)
        placed.append(step)
    return placed


def _hoisted(steps: Sequence[Step]) -> list[Step]:
    """The steps; a step that several layers read moves out of its layer, if it reads nothing of that layer.

    Exporters compute a mask in the first layer and use it in all layers; without this, the first layer would differ.
    """
    paths: dict[str, tuple[str, ...]] = {name: step.path for step in steps for name in step.targets}
    readers: dict[str, list[tuple[str, ...]]] = {}
    for step in steps:
        for name in step.reads():
            readers.setdefault(name, []).append(step.path)
    lists = {step.path[:k] for step in steps for k, part in enumerate(step.path) if part.isdigit()}
    placed: list[Step] = []
    for step in steps:
        shared = _common([path for name in step.targets for path in readers.get(name, [])])
        target = _common([step.path, shared]) if shared is not None else step.path
        target = target[:-1] if target in lists else target  # a list of modules holds no steps
        sources = [paths[name] for name in step.reads() if name in paths]
        leaves = any(part.isdigit() for part in step.path[len(target) :])  # one item of a list of modules
        if leaves and step.calls is None and all(_inside(target, path) for path in sources):
            step = replace(step, path=target)
            paths |= dict.fromkeys(step.targets, target)
        placed.append(step)
    return placed


def _common(paths: Sequence[tuple[str, ...]]) -> Any:
    """The innermost module around all of these; None for an empty list."""
    if not paths:
        return None
    length = 0
    while all(len(path) > length and path[length] == paths[0][length] for path in paths):
        length += 1
    return paths[0][:length]


def _inside(path: tuple[str, ...], outer: tuple[str, ...]) -> bool:
    return path[: len(outer)] == outer


def _reads(expression: Any) -> list[str]:
    return Step([], expression).reads()


def _level(
    steps: Sequence[Step], prefix: tuple[str, ...], read: set[str], facts: Mapping[str, Any], paths: Mapping[str, str]
) -> list[Step]:
    """The steps of a module, with calls of its inner modules. read: the values that are read outside."""
    units = [[step] for step in steps]
    for key in dict.fromkeys(filter(None, (_child(step, prefix) for step in steps))):
        members = [unit for unit in units if len(unit) == 1 and _child(unit[0], prefix) == key]
        members = _convex(units, members)
        if len(members) < _FEWEST:
            continue
        inside = [step for unit in members for step in unit]
        first = next(k for k, unit in enumerate(units) if unit is members[0])
        remaining = [unit for unit in units if not any(unit is member for member in members)]
        units = _ordered([*remaining[:first], inside, *remaining[first:]])
    level_steps: list[Step] = []
    for unit in units:
        if len(unit) == 1:
            level_steps += unit
            continue
        key = _child(unit[0], prefix)
        assert key is not None
        outside = read.union(*(step.reads() for other in units if other is not unit for step in other))
        inner = _level(unit, prefix + key, outside, facts, paths)
        if len(inner) == 1:
            level_steps += inner
            continue
        level_steps.append(_called(inner, prefix + key, outside, facts, paths))
    return level_steps


def _child(step: Step, prefix: tuple[str, ...]) -> tuple[str, ...] | None:
    """The module of a step one level inside `prefix`; a list of modules is not a level, but its items are."""
    below = step.path[len(prefix) :]
    if not below:
        return None
    return below[:2] if len(below) > 1 and below[1].isdigit() else below[:1]


def _called(
    steps: list[Step], path: tuple[str, ...], outside: set[str], facts: Mapping[str, Any], paths: Mapping[str, str]
) -> Step:
    """A call of a new function with these steps."""
    outputs = [name for step in steps for name in step.targets if name and name in outside]
    function = Function(path[-1], [], steps, [Ref(name) for name in outputs], path, facts=dict(facts))
    prefix_of_module = ".".join(path) + "."
    function.args = [
        name
        for name in function.captured()
        if not name.startswith("@") or name in outside or not paths[name[1:]].startswith(prefix_of_module)
    ]
    items = [Ref(name) for name in function.args]
    return Step(outputs, call("", items), path, len(outputs) > 1, calls=function)


def _convex(units: list[list[Step]], members: list[list[Step]]) -> list[list[Step]]:
    """The members that can form one unit: no value leaves the unit and comes back through another unit."""
    after = _readers(units)
    while members:
        ids = {id(unit) for unit in members}
        outside = _reached(after, [n for i in ids for n in after[i] if n not in ids], ids)
        late = {i for i in ids if any(i in after[n] for n in outside)}
        if not late:
            return members
        before: dict[int, list[int]] = {i: [] for i in after}
        for i, readers in after.items():
            for n in readers:
                before[n].append(i)
        leading_back = _reached(before, [n for i in late for n in before[i] if n in outside], ids)
        early = {i for i in ids if any(n in leading_back for n in after[i])}
        dropped = early if len(early) < len(late) else late
        members = [unit for unit in members if id(unit) not in dropped]
    return members


def _readers(units: list[list[Step]]) -> dict[int, list[int]]:
    """For each unit, the units that read its values."""
    makers = {name: id(unit) for unit in units for step in unit for name in step.targets if name}
    readers_of: dict[int, list[int]] = {id(unit): [] for unit in units}
    for unit in units:
        for maker in dict.fromkeys(makers[name] for step in unit for name in step.reads() if name in makers):
            if maker != id(unit):
                readers_of[maker].append(id(unit))
    return readers_of


def _reached(edges: Mapping[int, list[int]], start: Sequence[int], closed: set[int]) -> set[int]:
    """The units outside `closed` that can be reached."""
    seen: set[int] = set()
    todo = list(start)
    while todo:
        unit = todo.pop()
        if unit not in seen and unit not in closed:
            seen.add(unit)
            todo += edges[unit]
    return seen


def _ordered(units: list[list[Step]]) -> list[list[Step]]:
    """The units, each after the units that it reads, and otherwise in the same order."""
    waiting = {id(unit): 0 for unit in units}
    readers = _readers(units)
    for reading in readers.values():
        for reader in reading:
            waiting[reader] += 1
    order, left = [], list(units)
    while left:
        unit = next(unit for unit in left if not waiting[id(unit)])
        left = [other for other in left if other is not unit]
        order.append(unit)
        for reader in readers[id(unit)]:
            waiting[reader] -= 1
    return order
