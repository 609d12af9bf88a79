"""The figures of `models.py` as tables and as a bar chart: `python report.py FIGURES.json … [--chart FILE.svg]`.

Figures are model → engine → figure → number; a later file replaces the models of an earlier one. Ratios are to
onnxruntime on the same file, so the rows of quantized models compare quantized with quantized.
"""

import argparse
import itertools
import json
import math
import statistics
from pathlib import Path

from engines import ENGINES
from rich.console import Console
from rich.table import Table

BASE = "onnxruntime"
FIGURES = {"import": "s", "start": "s", "call": "ms", "peak": "MiB"}
# The models that the geometric means are over. The weights of the light ones are all one value.
COUNTED = (
    *("resnet50", "mobilenet_v3_large", "efficientnet_b0", "convnext_tiny", "vit_b_16", "bert_base", "gpt2"),
    *("llama_110m", "whisper_base_encoder"),
    *("light_resnet50", "light_densenet121", "light_inception_v2", "light_squeezenet"),
)
# One hue for an engine, from light to dark by its precision, and one for programs of the user's own; grey for the rest.
# All are seen on white and on black.
COLOURS = {
    "jaxops": "#f2a65a",
    "jaxops-apply": "#9cc48c",
    "jaxops-specialize": "#5a9a5e",
    "jaxops-bfloat16": "#b5482a",
    "openvino-f32": "#6fb1e8",
    "openvino": "#3a78c9",
}
GREY = "#77818c"


def order(figures):
    """The models of the means, and the others."""
    return [m for m in COUNTED if m in figures], [m for m in figures if m not in COUNTED]


def engines_of(figures):
    """The engines that ran any model."""
    return [engine for engine in ENGINES if any(engine in row for row in figures.values())]


def ratio(row, engine, figure):
    """To onnxruntime; None where one of the two does not run the model."""
    return row[engine][figure] / row[BASE][figure] if engine in row and BASE in row else None


def geometric_mean(values):
    """Of positive numbers."""
    return math.exp(statistics.fmean(map(math.log, values)))


def mean_of(models):
    """What a row of means is called."""
    return f"geometric mean of {len(models)}"


def ratios(figures, models, engine, figure):
    """Of the models that the engine runs."""
    found = (ratio(figures[model], engine, figure) for model in models)
    return [value for value in found if value is not None]


def table(figures, figure):
    """A row for each model, the geometric mean of the ratios, and the rows that it leaves out."""
    counted, others = order(figures)
    engines = engines_of(figures)
    shown = Table("model", title=f"{figure}, {FIGURES[figure]} (ratio to {BASE})", title_justify="left")
    for engine in engines:
        shown.add_column(engine, justify="right")

    def cell(row, engine):
        if engine not in row:
            return "–"
        value, beside = row[engine][figure], ratio(row, engine, figure)
        return f"{value:.3g}" if engine == BASE or beside is None else f"{value:.3g} ({beside:.2f})"

    def mean(engine):
        found = ratios(figures, counted, engine, figure)
        few = f" of {len(found)}" if len(found) < len(counted) else ""
        return f"{geometric_mean(found):.2f}{few}" if found else "–"

    for model in counted:
        shown.add_row(model, *(cell(figures[model], engine) for engine in engines))
    if counted:
        shown.add_section()
        shown.add_row(mean_of(counted), *map(mean, engines))
        shown.add_section()
    for model in others:
        shown.add_row(model, *(cell(figures[model], engine) for engine in engines))
    return shown


def errors(figures):
    """How far the outputs are from onnxruntime's."""
    engines = [engine for engine in engines_of(figures) if engine != BASE]
    shown = Table("model", title=f"largest difference from {BASE}, of the largest output", title_justify="left")
    for engine in engines:
        shown.add_column(engine, justify="right")
    for model in itertools.chain(*order(figures)):
        found = [figures[model].get(engine, {}).get("error") for engine in engines]
        shown.add_row(model, *("–" if value is None else f"{value:.1e}" for value in found))
    return shown


def show(figures):
    """Prints all tables."""
    for shown in [*(table(figures, figure) for figure in FIGURES), errors(figures)]:
        Console(width=200).print(shown)


def chart(figures, path):
    """Writes bars as SVG: the time of a call of each engine, as a ratio to onnxruntime, for each model.

    The background is transparent, and all colours are seen on white and on black.
    """
    import matplotlib

    # A cached program is the same one: only the start differs.
    engines = [engine for engine in engines_of(figures) if engine not in (BASE, "jaxops-cached")]
    counted, others = order(figures)
    rows = [(model, [ratio(figures[model], engine, "call") for engine in engines]) for model in counted]
    if counted:
        found = [ratios(figures, counted, engine, "call") for engine in engines]
        rows.insert(0, (mean_of(counted), [geometric_mean(values) if values else None for values in found]))
    first_other = len(rows)
    rows += [(model, [ratio(figures[model], engine, "call") for engine in engines]) for model in others]
    # Without a date and the like, the same figures make the same file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "jaxops", "font.size": 9}):
        figure = drawn(engines, rows, first_other, bold=bool(counted))
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})


def drawn(engines, rows, first_other, bold):
    """The figure. rows: (name, ratio of each engine or None). first_other: the row to draw a line above."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullLocator

    figure = Figure(figsize=(8, 1 + 0.1 * len(rows) * (len(engines) + 1)), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / max(1, len(engines))
    for k, engine in enumerate(engines):
        offset = (k - (len(engines) - 1) / 2) * height
        bars = [(place + offset, found[k]) for place, (_, found) in enumerate(rows) if found[k] is not None]
        places, values = [place for place, _ in bars], [value for _, value in bars]
        axes.barh(places, [v - 1 for v in values], height, left=1, color=COLOURS.get(engine, GREY), label=engine)
        # A number stands at the end of its bar, on the side that it points to.
        for place, value in bars:
            side = {"xytext": (3, 0), "ha": "left"} if value > 1 else {"xytext": (-3, 0), "ha": "right"}
            text = f"{value:.2f}"
            axes.annotate(text, (value, place), **side, textcoords="offset points", va="center", size=6, color=GREY)
    axes.axvline(1, color=GREY, linewidth=1.2)
    if 0 < first_other < len(rows):
        axes.axhline(first_other - 0.5, color=GREY, linewidth=0.6, linestyle=":")
    every = [1, *(value for _, found in rows for value in found if value is not None)]
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(every) / 1.3, max(every) * 1.3)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}×"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    if bold:
        axes.get_yticklabels()[0].set_fontweight("bold")
    axes.set_xlabel(f"time of a call, as a ratio to {BASE}: left of the line is faster", color=GREY)
    axes.tick_params(colors=GREY, length=0)
    axes.grid(axis="x", color=GREY, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    figure.legend(loc="outside upper center", ncols=max(1, min(3, len(engines))), frameon=False, labelcolor=GREY)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="+", type=Path)
    parser.add_argument("--chart", type=Path)
    given = parser.parse_args()
    figures = {}
    for path in given.figures:
        figures = {**figures, **json.loads(path.read_text())}
    show(figures)
    if given.chart:
        chart(figures, given.chart)


if __name__ == "__main__":
    main()
