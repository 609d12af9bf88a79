"""Splits a deep program: equal layers are compiled once, or one half while the other is lowered.

XLA compiles equal kernels once, but each of its passes looks at all layers, and so do tracing and lowering. Cut into
programs, some of which are equal, int8 BERT-base gives its first result in 1.4 s, not 3.0, Whisper's encoder in 1.5 s,
not 1.7, ViT-B/16 in 1.05 s, not 1.17, and BERT-base in 0.75 s, not 0.9.

A program costs a call up to a millisecond: a thread of its own begins it, beside those of all cores, until XLA hands
the rest to these. So there are few, and none where that would be felt. Equal layers as calls of one function would
start no sooner: XLA puts it in place of each, and its passes look at all.

A convolution is handed over at once, and a program that begins with one costs a call a tenth of that. So where equal
layers make no programs, a network of convolutions of many kinds is cut in two. XLA needs memory for each kernel until
all of a program are compiled: EfficientNet-B0's peak is 310 MiB, not 350, MobileNetV3's 310, not 340; they start in
0.9 of the time. In three or four they need no less.

A filter for each channel is one operation here, and up to hundreds for XLA, which is what counts: so the layers of
ConvNeXt-S make programs, and it starts in 0.7 of the time.
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

# The fewest operations that are worth a look: 15 ms.
_FEW = 200
# The most equal programs, and the least work of one for each core, in multiplications: some 10 ms.
_MOST, _LEAST_WORK = 4, 5e8
# The multiplications of matrices that take as long as to compute an element: layers of BERT-base take 12 ns a thousand
# multiplications then, of DeiT-Ti, XCiT-T, CaiT-XXS and EVA-02-Ti 9 to 12.
_OF_AN_ELEMENT = 25
# Operations that copy elements, or are a part of the one that reads them.
_COPIES = {"broadcast_in_dim", "reshape", "slice", "squeeze", "transpose"}
# The operations that XLA sees for one place of a window with a filter for each channel: see
# `kernels.convolution.depthwise`.
_OF_A_PLACE = 5
# The least part of all operations that XLA must be spared, and, for each equal program, the least product of their
# number and of the work of one program for each core: ViT-B/16 in four 5e11, BERT-base in two 4.2e11 and in four, where
# GPT-2 and Llama would take 1.04 of a call, 1.6e11. CaiT-XXS in three 3.5e11: it starts in 0.67 of the time.
_SPARED, _WORTH = 1 / 3, 3.5e11
# The least product of all operations and the multiplications of each core where a program is cut in two: Inception
# 1.0e12, EfficientNet-B0 3.7e11, MobileNetV3, whose calls take 1.02 of the time, 1.7e11.
_HALVED = 1.5e11
# The fewest kinds of operations, which are what XLA compiles, where it is cut in two: Inception has 370, and the
# ResNets, which start no sooner and need no less memory, 230 to 300.
_VARIED = 320
# From how many operations on, for each of a kind of its own, two programs are compiled at once. ConvNeXt-T has 4.5, and
# starts in 0.9 of the time, its peak is 1.02 times as high; EfficientNetV2-S, with 5.4, 0.93 and 1.09, less than uncut.
# With 3.2 and fewer, DenseNet-121, MobileNetV3 and EfficientNet-B0 and B4 start in 0.92 to 1.02, and need 1.07 to 1.17.
_ALIKE = 4
# How many of the next equal products are looked at from each, and how many distances between them are tried.
_FAR, _TRIED = 32, 64


class Section(NamedTuple):
    """Consecutive operations, as a program of the values that they read from outside to those that are read behind.

    kinds: a number for each operation. form: the same for sections that do the same.
    """

    program: Program
    kinds: Sequence[int]
    form: Any


def split_at_repeated_layers(program: Program, target: Target) -> list[Section]:
    """Returns the sections that run one after the other; none where it does not pay to cut."""
    operations, types = program.operations, program.types
    if len(operations) < _FEW or any(operation.effects for operation in operations):
        return []
    if not program.producers.keys() >= set(program.outputs):
        return []
    kinds, live = _kinds(operations, types), _live(program)
    sizes = np.array(list(map(_size, operations)))
    stretch = _repeated(operations, kinds, sizes)

    def between(cuts: Sequence[int]) -> list[Section]:
        ends = itertools.pairwise([0, *cuts, len(operations)]) if cuts else ()
        return [_section(program, kinds, begin, end) for begin, end in ends if begin < end]

    def equal(size: int) -> list[Section]:
        cuts = _evenly(stretch, size, live)
        for ends in (cuts, cuts[:-1]):  # of the last layer, something else may be read than of the others
            sections = between(ends)
            same = Counter(section.form for section in sections).most_common(1)
            if same and same[0][1] == len(ends) - 1 > 1:
                return sections
        return []

    long = _long(operations, types, stretch, sizes.sum(), target)
    return equal(long) or between(_middle(operations, kinds, live, sizes, target))


def at_once(sections: Sequence[Section], target: Target) -> int:
    """Returns how many of these programs XLA should compile at once.

    Its passes look at all operations, on one core; to compile what is of a kind of its own it takes all cores, and the
    most memory.
    """
    different = {section.form: section for section in sections}.values()
    pairs = (zip(section.kinds, section.program.operations, strict=True) for section in different)
    sizes = [(kind, _size(operation)) for kind, operation in itertools.chain(*pairs)]
    is_alike = sum(size for _, size in sizes) >= _ALIKE * sum(dict(sizes).values())
    return min(2, target.cores) if is_alike else 1


def _kinds(operations: Sequence[Any], types: Sequence[Any]) -> np.ndarray:
    """Returns a number for each operation, the same where only operands differ that are no constants."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(_kind(operation, types), len(numbers)) for operation in operations])


def _kind(operation: Any, types: Sequence[Any]) -> Any:
    operands = tuple(fingerprint(v.value, repr) if isinstance(v, Constant) else types[v] for v in operation.operands)
    kind = operation.name, tuple(operation.params.values()), operands, tuple(types[v] for v in operation.results)
    try:
        hash(kind)
    except TypeError:  # unlike any other
        return operation
    return kind


def _long(operations: Sequence[Any], types: Sequence[Any], stretch: "_Stretch", total: int, target: Target) -> int:
    """Returns how many operations of a stretch of layers make one of a few equal programs; 0 where these do not pay.

    total: how many operations XLA sees.
    """
    if not stretch.layers:
        return 0
    work = _work(operations[stretch.begin : stretch.end], types, target)
    most_of_all = int(min(_MOST, work / _LEAST_WORK))
    for most in range(most_of_all, 1, -1):
        # How many layers: as few operations as can be are left to compile.
        choices = range(stretch.layers // (most + 1) + 1, stretch.layers + 1)
        layers = max(choices, key=stretch.spared)
        spared, size = stretch.spared(layers), layers * stretch.period
        work = _work(operations[stretch.begin : stretch.begin + size], types, target)
        if spared >= _SPARED * total and spared * work >= most * _WORTH:
            return size
    return 0


def _evenly(stretch: "_Stretch", size: int, live: np.ndarray) -> list[int]:
    """Returns where equal sections begin, and where the last of them ends: where the least data cross."""
    if not size:
        return []
    length = (stretch.end - stretch.begin) // size * size
    begins = range(stretch.begin, stretch.end - length + 1)
    begin = min(begins, key=lambda k: sum(live[k : k + length + 1 : size]))
    return list(range(begin, begin + length + 1, size))


def _middle(
    operations: Sequence[Any], kinds: np.ndarray, live: np.ndarray, sizes: np.ndarray, target: Target
) -> list[int]:
    """Returns the convolution in the middle third of the operations with the fewest kinds of them on both sides,
    which XLA would compile for both, and of these the one before which the least data cross; none, where none is there,
    where the calls are short, or where there is little to compile.

    Threads of XLA's own begin it, and go on with what is behind it.
    """
    size, (_, first) = len(operations), np.unique(kinds, return_index=True)
    if sizes.sum() * _multiplied(operations, target) < _HALVED or sizes[first].sum() < _VARIED:
        return []
    last = size - 1 - np.unique(kinds[::-1], return_index=True)[1]
    within = [k for k in range(size // 3, size - size // 3) if operations[k].name == "conv_general_dilated"]
    return sorted(within, key=lambda k: (np.sum((first < k) & (k <= last)), live[k]))[:1]


def _size(operation: Any) -> int:
    """Counts the operations that XLA sees for one."""
    return _OF_A_PLACE * math.prod(operation.params["windows"].kernel) if operation.name == "channel_sum" else 1


def _work(operations: Sequence[Any], types: Sequence[Any], target: Target) -> float:
    """Counts the multiplications of one core; an element that it computes counts as some."""
    results = (v for operation in operations if operation.name not in _COPIES for v in operation.results)
    elements = sum(math.prod(getattr(types[v], "shape", ())) for v in results)
    return _multiplied(operations, target) + _OF_AN_ELEMENT * elements / target.cores


def _multiplied(operations: Sequence[Any], target: Target) -> float:
    """Counts the multiplications of one core."""
    products = (operation.equation for operation in operations if operation.name in PRODUCTS)
    return sum(map(multiplications, products)) / target.cores


class _Stretch(NamedTuple):
    """Operations, each of the same kind as the one a period before it; a period of 0 for none.

    seen: how many operations XLA sees for those of a period.
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
        """Counts the operations that XLA need not look at where it looks once at equal sections of so many layers."""
        return (self.layers // layers - 1) * layers * self.seen


def _repeated(operations: Sequence[Any], kinds: np.ndarray, sizes: np.ndarray) -> _Stretch:
    """Returns the stretch in which the most operations are spared."""
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
    """Returns for each cut between operations, and both ends, the bytes of values computed before and read behind."""
    operations, types = program.operations, program.types
    changes = np.zeros(len(operations) + 2)
    for position, operation in enumerate(operations):
        for v in operation.results:
            size = types[v].size * types[v].dtype.itemsize
            changes[position + 1] += size
            changes[program.readers.get(v, [position])[-1] + 1] -= size
    return np.cumsum(changes)


def _section(program: Program, kinds: np.ndarray, begin: int, end: int) -> Section:
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
    section = program.replace(operations=operations, inputs=inputs, outputs=outputs)
    return Section(section, kinds[begin:end].tolist(), form)
