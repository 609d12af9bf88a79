"""Writes README's table between its marks, and the chart beside it, from the figures of `alternatives.py`.

    python tests/benchmarks/page.py

A cell is the part of what was tried that is right, or the geometric mean of the times by those of a base.
"""

import json
import re
from pathlib import Path

from alternatives import FIGURES
from report import BASE, GREY, geometric_mean

HERE = Path(__file__).parent
README, CHART = HERE.parents[1] / "README.md", HERE / "alternatives.svg"
ENGINES = ("jaxops", "jaxonnxruntime", "torchax", "onnx2torch", "tinygrad", "onnxruntime")
RIGHT = {
    "cases": "cases of the standard's suite that are right",
    "exports": "exported models that load and are right",
    "gradients": "models with right gradients by their weights",
    "sizes": "models with one program for any batch size",
}
# Task → what its times are divided by, and the head of its row.
TIMES = {
    "call": (BASE, "time of a call / onnxruntime's"),
    "training": ("torch", "time of a training step / PyTorch's"),
}
MARKED = re.compile(r"(?<=<!-- by tests/benchmarks/page.py -->\n).*?(?=\n<!-- end -->)", re.DOTALL)


def part(found):
    """Returns the part that is right, in percent; None if nothing was tried, or nothing is right."""
    if not found:
        return None
    right = found["right"] if "right" in found else list(found.values()).count("")
    return 100 * right / (found["of"] if "of" in found else len(found)) or None


def ratio(found, base):
    """Returns the geometric mean of the times by those of the base, over the models that an engine runs, or None."""
    ratios = [times[name] / times[base] for times in found.values() for name in times if name != base and times[name]]
    return geometric_mean(ratios) if ratios else None


def values(figures):
    """Returns the rows: head → (the value of each engine or None, the function that makes text of one)."""
    suite = HERE.parent.joinpath("conformance", "passing.txt").read_text().splitlines()
    ours = {"cases": {"right": len(suite), "of": len(suite)}}  # the suite's own test runs these
    rows = {}
    for task, head in RIGHT.items():
        found = [part({**(ours if engine == "jaxops" else {}), **figures[engine]}.get(task)) for engine in ENGINES]
        rows[head] = found, "{:.0f} %".format
    for task, (base, head) in TIMES.items():
        found = [1.0 if engine == base else ratio(figures[engine].get(task, {}), base) for engine in ENGINES]
        rows[head] = found, "{:.2f}".format
    return rows


def table(figures):
    """Returns the table as Markdown."""
    lines = [["", *ENGINES], ["---", *["---:"] * len(ENGINES)]]
    for head, (found, text) in values(figures).items():
        cells = ["–" if value is None else text(value) for value in found]
        lines.append([head, f"**{cells[0]}**", *cells[1:]])
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def chart(figures, path):
    """Writes the times as bars. The background is transparent, and all colours are seen on white and on black."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullLocator

    rows = values(figures)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "jaxops", "font.size": 9}):
        figure = Figure(figsize=(8, 1.9), layout="constrained")
        for axes, (task, (base, head)) in zip(figure.subplots(1, 2), TIMES.items(), strict=True):
            named = dict(zip(ENGINES, rows[head][0], strict=True))
            bars = {engine: value for engine, value in named.items() if value is not None and engine != base}
            names, found, places = list(bars), list(bars.values()), [-place for place in range(len(bars))]
            colours = ["#f2a65a" if name == "jaxops" else GREY for name in names]
            axes.barh(places, [value - 1 for value in found], 0.65, left=1, color=colours)
            for place, value in zip(places, found, strict=True):
                side = {"xytext": (3, 0), "ha": "left"} if value > 1 else {"xytext": (-3, 0), "ha": "right"}
                where = {"textcoords": "offset points", "va": "center", "color": GREY}
                axes.annotate(f"{value:.2f}", (value, place), **side, **where)
            axes.axvline(1, color=GREY, linewidth=1.2)
            axes.set_ylim(-3.6, 0.6)
            axes.set_yticks(places, names)
            axes.set_xscale("log", base=2)
            axes.set_xlim(min(1, *found) / 1.5, max(1, *found) * 1.7)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}×"))
            axes.xaxis.set_minor_locator(NullLocator())
            title = {"call": "time of a call: 1× is onnxruntime's", "training": "of a training step: 1× is PyTorch's"}[
                task
            ]
            axes.set_title(title, color=GREY, fontsize=10)
            axes.tick_params(colors=GREY, length=0)
            axes.spines[:].set_visible(False)
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})


def main():
    figures = json.loads(FIGURES.read_text())
    README.write_text(MARKED.sub(lambda _: table(figures), README.read_text()))
    chart(figures, CHART)


if __name__ == "__main__":
    main()
