"""Splits a deep program into several: equal ones are compiled once, or one half is compiled while the other is lowered.

XLA compiles equal kernels once, but each of its passes visits all layers, and so do tracing and lowering. With programs
of several layers each, some of them equal, the first result comes sooner, above all for long programs such as int8
BERT-base.

Each program adds some time to a call: XLA starts it on an extra thread, which competes with the threads of all cores
until XLA hands the work to them. So there are few programs, and one where this time would matter. Calls of one function
for equal layers would not start sooner: XLA inlines the function, and its passes visit every copy.

XLA hands a convolution to the threads at once, so a program that begins with a convolution adds a tenth of that time.
So a network with many kinds of convolutions and without equal layers is cut in two. XLA needs memory for each kernel
until all kernels of a program are compiled: in two programs, EfficientNet-B0 and MobileNetV3 need less memory and start
sooner. Three or four programs need no less memory.

A depthwise convolution is one operation in our program, but up to hundreds in XLA's, and XLA's are counted: so the
layers of ConvNeXt-S become programs, and it starts sooner.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxops.compiler.fingerprint import fingerprint
from jaxops.compiler.ir import Constant, Program
from jaxops.compiler.primitives import PRODUCTS, multiplications
from jaxops.kernels.target import Target

# A program with fewer operations is not examined, which would take longer than is gained.
_FEW = 200
# The largest number of equal programs, and the least work of each, in multiplications per core.
_MOST, _LEAST_WORK = 4, 5e8
# Computing one element elementwise takes as long as this many multiplications of a matrix product. With this number,
# the layers of BERT-base, DeiT-Ti, XCiT-T, CaiT-XXS and EVA-02-Ti take about the same time per multiplication.
_OF_AN_ELEMENT = 25
# Operations that only copy elements, or that XLA fuses into their reader.
_COPIES = {"broadcast_in_dim", "reshape", "slice", "squeeze", "transpose"}
# The number of XLA's operations for each element of a depthwise filter's window: see `kernels.convolution.depthwise`.
_OF_A_PLACE = 5
# A cut pays if equal programs spare XLA at least this part of all operations, and if (operations spared) × (work of a
# program per core) is at least this number for each equal program. ViT-B/16 in four programs has 5e11, BERT-base in two
# 4.2e11, CaiT-XXS in three 3.5e11. BERT-base in four has 1.6e11; in as many, calls of GPT-2 and Llama would take
# longer.
_SPARED, _WORTH = 1 / 3, 3.5e11
# A program is cut in two if (operations) × (multiplications per core) is at least this: Inception has 1.0e12,
# EfficientNet-B0 3.7e11, MobileNetV3, whose calls take hardly longer, 1.7e11.
_HALVED = 1.5e11
# A program is cut in two if it has at least this many kinds of operations, since XLA compiles each kind once. Inception
# has 370. The ResNets have 230 to 300: cut in two, they would start no sooner and need no less memory.
_VARIED = 320
# Two programs are compiled at once if they have at least this many operations per kind. ConvNeXt-T has 4.5 and
# EfficientNetV2-S 5.4: both start sooner, with less memory than as one program. DenseNet-121, MobileNetV3 and
# EfficientNet-B0 and B4 have at most 3.2: they start hardly sooner, and need more memory.
_ALIKE = 4
# The number of following equal products to which the distance of a product is counted, and of distances that are tried.
_FAR, _TRIED = 32, 64


class Segment(NamedTuple):
    """Consecutive operations as a program: from the values that they read to the results that later operations read.

    kinds: the kind of each operation, a number. form: equal for segments that compute the same.
    """

    program: Program
    kinds: Sequence[int]
    form: Any


def split_at_repeated_layers(program: Program, target: Target) -> list[Segment]:
    """Returns the segments in the order in which they run; an empty list if a cut does not pay."""
    operations, types = program.operations, program.types
    if len(operations) < _FEW or any(operation.effects for operation in operations):
        return []
    if not program.producers.keys() >= set(program.outputs):
        return []
    kinds, live = _kinds(operations, types), _live(program)
    sizes = np.array(list(map(_size, operations)))
    stretch = _repeated(operations, kinds, sizes)

    def between(cuts: Sequence[int]) -> list[Segment]:
        ends = itertools.pairwise([0, *cuts, len(operations)]) if cuts else ()
        return [_segment(program, kinds, begin, end) for begin, end in ends if begin < end]

    def equal(size: int) -> list[Segment]:
        cuts = _evenly(stretch, size, live)
        for ends in (cuts, cuts[:-1]):  # other values may be read from the last layer than from each layer before it
            segments = between(ends)
            same = Counter(segment.form for segment in segments).most_common(1)
            if same and same[0][1] == len(ends) - 1 > 1:
                return segments
        return []

    long = _long(operations, types, stretch, sizes.sum(), target)
    return equal(long) or between(_middle(operations, kinds, live, sizes, target))


def at_once(segments: Sequence[Segment], target: Target) -> int:
    """Returns the number of programs that XLA should compile at once: 1 or 2.

    XLA's passes visit all operations, on one core. It compiles each kind of operation once, on all cores, which takes
    the most memory. So two at once pay if there are many operations of few kinds.
    """
    different = {segment.form: segment for segment in segments}.values()
    pairs = (zip(segment.kinds, segment.program.operations, strict=True) for segment in different)
    sizes = [(kind, _size(operation)) for kind, operation in itertools.chain(*pairs)]
    is_alike = sum(size for _, size in sizes) >= _ALIKE * sum(dict(sizes).values())
    return min(2, target.cores) if is_alike else 1


def _kinds(operations: Sequence[Any], types: Sequence[Any]) -> np.ndarray:
    """Returns the kind of each operation, a number. Operations of one kind may differ in non-constant operands only."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(_kind(operation, types), len(numbers)) for operation in operations])


def _kind(operation: Any, types: Sequence[Any]) -> Any:
    operands = tuple(fingerprint(v.value, repr) if isinstance(v, Constant) else types[v] for v in operation.operands)
    kind = operation.name, tuple(operation.params.values()), operands, tuple(types[v] for v in operation.results)
    try:
        hash(kind)
    except TypeError:  # a kind of its own
        return operation
    return kind


def _long(operations: Sequence[Any], types: Sequence[Any], stretch: "_Stretch", total: int, target: Target) -> int:
    """Returns the number of operations in each of the equal programs that a stretch of layers is cut into; 0 where a
    cut does not pay.

    total: the number of XLA's operations.
    """
    if not stretch.layers:
        return 0
    work = _work(operations[stretch.begin : stretch.end], types, target)
    most_of_all = int(min(_MOST, work / _LEAST_WORK))
    for most in range(most_of_all, 1, -1):
        # The number of layers for which XLA has the fewest operations to compile.
        choices = range(stretch.layers // (most + 1) + 1, stretch.layers + 1)
        layers = max(choices, key=stretch.spared)
        spared, size = stretch.spared(layers), layers * stretch.period
        work = _work(operations[stretch.begin : stretch.begin + size], types, target)
        if spared >= _SPARED * total and spared * work >= most * _WORTH:
            return size
    return 0


def _evenly(stretch: "_Stretch", size: int, live: np.ndarray) -> list[int]:
    """Returns the positions where equal segments begin, and the end of the last one, so that the fewest bytes cross."""
    if not size:
        return []
    length = (stretch.end - stretch.begin) // size * size
    begins = range(stretch.begin, stretch.end - length + 1)
    begin = min(begins, key=lambda k: sum(live[k : k + length + 1 : size]))
    return list(range(begin, begin + length + 1, size))


def _middle(
    operations: Sequence[Any], kinds: np.ndarray, live: np.ndarray, sizes: np.ndarray, target: Target
) -> list[int]:
    """Returns the position of one convolution in the middle third, to cut before it; an empty list if no cut pays.

    XLA compiles a kind of operation that is on both sides of the cut twice, so there are the fewest of these, and then
    the fewest bytes that cross. The second program begins with a convolution, since XLA hands that to its threads at
    once. No cut pays if calls are short, or if there are few kinds to compile.
    """
    size, (_, first) = len(operations), np.unique(kinds, return_index=True)
    if sizes.sum() * _multiplied(operations, target) < _HALVED or sizes[first].sum() < _VARIED:
        return []
    last = size - 1 - np.unique(kinds[::-1], return_index=True)[1]
    within = [k for k in range(size // 3, size - size // 3) if operations[k].name == "conv_general_dilated"]
    return sorted(within, key=lambda k: (np.sum((first < k) & (k <= last)), live[k]))[:1]


def _size(operation: Any) -> int:
    """Counts XLA's operations for one of ours."""
    return _OF_A_PLACE * math.prod(operation.params["windows"].kernel) if operation.name == "channel_sum" else 1


def _work(operations: Sequence[Any], types: Sequence[Any], target: Target) -> float:
    """Counts the multiplications per core; each computed element counts as `_OF_AN_ELEMENT` multiplications."""
    results = (v for operation in operations if operation.name not in _COPIES for v in operation.results)
    elements = sum(math.prod(getattr(types[v], "shape", ())) for v in results)
    return _multiplied(operations, target) + _OF_AN_ELEMENT * elements / target.cores


def _multiplied(operations: Sequence[Any], target: Target) -> float:
    """Counts the multiplications per core."""
    products = (operation.equation for operation in operations if operation.name in PRODUCTS)
    return sum(map(multiplications, products)) / target.cores


class _Stretch(NamedTuple):
    """Consecutive operations, each of the same kind as the operation `period` before it; period 0 if none repeat.

    seen: the number of XLA's operations for one period.
    """

    begin: int
    end: int
    period: int
    seen: int

    @property
    def layers(self) -> int:
        """The number of its periods."""
        return (self.end - self.begin) // self.period if self.period else 0

    def spared(self, layers: int = 1) -> int:
        """Counts the operations that XLA is spared if segments of `layers` layers, all equal, are compiled once."""
        return (self.layers // layers - 1) * layers * self.seen


def _repeated(operations: Sequence[Any], kinds: np.ndarray, sizes: np.ndarray) -> _Stretch:
    """Returns the stretch that spares the most operations."""
    longest, before = _Stretch(0, 0, 0, 0), np.cumsum([0, *sizes]).tolist()
    for period in _periods(operations, kinds):
        same = kinds[period:] == kinds[:-period]
        ends = np.flatnonzero(np.diff(same, prepend=False, append=False))
        for begin, end in zip(ends[::2].tolist(), ends[1::2].tolist(), strict=True):
            seen = before[begin + period] - before[begin]
            longest = max(longest, _Stretch(begin, end + period, period, seen), key=_Stretch.spared)
    return longest


def _periods(operations: Sequence[Any], kinds: np.ndarray) -> list[int]:
    """Returns the most frequent distances between equal products."""
    positions: dict[int, list[int]] = defaultdict(list)
    for position, operation in enumerate(operations):
        if operation.name in PRODUCTS:
            positions[int(kinds[position])].append(position)
    counts = Counter(
        later - position
        for equal in positions.values()
        for k, position in enumerate(equal)
        for later in equal[k + 1 : k + _FAR]
    )
    return [period for period, _ in counts.most_common(_TRIED)]


def _live(program: Program) -> np.ndarray:
    """Returns, for each position between operations, the bytes of values that are computed before and read after it."""
    operations, types = program.operations, program.types
    changes = np.zeros(len(operations) + 2)
    for position, operation in enumerate(operations):
        for v in operation.results:
            size = types[v].size * types[v].dtype.itemsize
            changes[position + 1] += size
            changes[program.readers.get(v, [position])[-1] + 1] -= size
    return np.cumsum(changes)


def _segment(program: Program, kinds: np.ndarray, begin: int, end: int) -> Segment:
    operations = program.operations[begin:end]
    computed = {v for operation in operations for v in operation.results}
    numbers: dict[int, int] = {}
    wiring = []
    for operation in operations:
        read = [v for v in operation.operands if isinstance(v, int)]
        wiring.append(tuple(numbers.setdefault(v, len(numbers)) for v in (*read, *operation.results)))
    inputs = tuple(v for v in numbers if v not in computed)
    outputs = tuple(v for v in numbers if v in computed and program.readers.get(v, (0,))[-1] >= end)
    crossing = (tuple(numbers[v] for v in values) for values in (inputs, outputs))
    form = kinds[begin:end].tobytes(), tuple(wiring), *crossing
    segment = program.replace(operations=operations, inputs=inputs, outputs=outputs)
    return Segment(segment, kinds[begin:end].tolist(), form)
