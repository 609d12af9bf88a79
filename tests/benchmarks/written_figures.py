"""The figures in README and in the guides, from the records beside this file: `python written_figures.py` writes them.

Each stands between `<!-- figures: NAME -->` and `<!-- end -->`; a test compares them with the records. The chart of
README, `alternatives.svg`, is drawn again, too.
"""

import json
import re
from pathlib import Path

from report import BASE, COLOURS, GREY, geometric_mean

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENGINES = ("jaxops", "jaxonnxruntime", "torchax", "onnx2torch", "onnxruntime", "tinygrad")
SHARES = {
    "cases": "cases of the standard's suite that are right",
    "exports": "exported models that load and are right",
    "gradients": "models with gradients by the weights",
    "sizes": "models that are one program for any batch size",
}
TIMES = {
    "call": (BASE, "time of a call / onnxruntime's"),
    "training": ("torch", "time of a training step / PyTorch's"),
}
OF_OTHERS = {"vmap": "`jax.vmap` over examples", "sharding": "weights on two devices"}
NONE = "–"


def share(task, engine, found):
    """In percent; None if it was not measured, or is none. jaxops passes all cases: the suite's own test says so."""
    if task not in found:
        return 1.0 if (task, engine) == ("cases", "jaxops") else None
    record = found[task]
    right = record["right"] if "right" in record else list(record.values()).count("")
    return right / record.get("of", len(record)) or None


def mean(task, engine, found):
    """(geometric mean of the ratios to the base, number of models); None without any. The base itself is 1."""
    base, _ = TIMES[task]
    if engine == base:
        return 1.0, 0
    times = found.get(task, {}).values()
    ratios = [each[engine] / each[base] for each in times if each.get(engine)]
    return (geometric_mean(ratios), len(ratios)) if ratios else None


def markdown(rows):
    """A table, in which the best numbers of a row are bold. rows: (head, text of each number, best or None) …"""
    lines = ["| | " + " | ".join(ENGINES) + " |", "|---|" + "---:|" * len(ENGINES)]
    for head, numbers, text, best in rows:
        cells = [NONE if v is None else text(v) for v in numbers]
        top = text(best(v for v in numbers if v is not None))
        lines.append(f"| {head} | " + " | ".join(f"**{c}**" if c == top else c for c in cells) + " |")
    return "\n".join(lines)


def shares(figures, tasks):
    """Rows of percents."""
    return [(head, [share(task, e, figures[e]) for e in ENGINES], "{:.0%}".format, max) for task, head in tasks.items()]


def alternatives_table(figures, _):
    """README's table."""
    times = [
        (head, [found and found[0] for found in (mean(task, e, figures[e]) for e in ENGINES)], "{:.2f}".format, min)
        for task, (_, head) in TIMES.items()
    ]
    return markdown([*shares(figures, SHARES), *times])


def other_properties(figures, _):
    """What README's table leaves out."""
    return markdown(shares(figures, OF_OTHERS))


def starts(_, models):
    """Seconds of loading and the first call."""
    titles = {"mobilenet_v3_large": "MobileNetV3", "resnet50": "ResNet-50", "gpt2": "GPT-2"}
    lines = ["| load and first call, s | without | with `cache=` |", "|---|---|---|"]
    for name, title in titles.items():
        without, cached = (models[name][engine]["start"] for engine in ("jaxops", "jaxops-cached"))
        lines.append(f"| {title} | {without:.2f} | {cached:.2f} |")
    return "\n".join(lines)


def apply_ratios(_, models):
    """A sentence about the time by `apply`."""
    names = {"resnet50": "ResNet-50", "efficientnet_b0": "EfficientNet-B0", "bert_base": "BERT"}
    ratios = [models[n]["jaxops-apply"]["call"] / models[n]["jaxops"]["call"] for n in names]
    first, *rest = (f"{title} {ratio:.2f}" for title, ratio in zip(names.values(), ratios, strict=True))
    return f"By `apply`, {first.replace(' ', ' takes ')} times as long as by `model(x)` on a CPU, {' and '.join(rest)}."


WRITTEN = {
    "alternatives": ("README.md", alternatives_table),
    "other properties": ("notebooks/own_program.ipynb", other_properties),
    "apply": ("notebooks/own_program.ipynb", apply_ratios),
    "start": ("notebooks/performance.ipynb", starts),
}


def records():
    """The figures of alternatives.py and models.py."""
    return [json.loads((HERE / f"{name}.json").read_text()) for name in ("alternatives", "models")]


def with_figures(path, text, figures, models):
    """The text of a page with its figures."""
    for name, (page, make) in WRITTEN.items():
        if page == path:
            new = f"<!-- figures: {name} -->\n{make(figures, models)}\n<!-- end -->"
            new = json.dumps(new, ensure_ascii=False)[1:-1].replace("\\n", '\\n",\n    "') if ".ipynb" in path else new
            end = r"<!-- figures: NAME -->.*?<!-- end -->".replace("NAME", name)
            text, count = re.subn(end, lambda _, new=new: new, text, flags=re.DOTALL)
            assert count == 1, f"{path} has {count} places for {name}"
    return text


def chart(figures, path):
    """Draws the geometric means of TIMES as bars, with a line at the base."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "jaxops", "font.size": 9}):
        figure = Figure(figsize=(8, 2.2), layout="constrained")
        title = "Float32 on two cores of a CPU: shorter is faster; the dotted line is onnxruntime, or PyTorch"
        figure.suptitle(title, color=GREY, size=10)
        for axes, (task, (base, head)) in zip(figure.subplots(1, 2), TIMES.items(), strict=True):
            found = {e: mean(task, e, figures[e]) for e in ENGINES if e != base}
            shown = sorted(((*pair, e) for e, pair in found.items() if pair), reverse=True)
            colours = [COLOURS["jaxops"] if e == "jaxops" else GREY for *_, e in shown]
            axes.barh([f"{e} ({count} models)" for _, count, e in shown], [r for r, *_ in shown], color=colours)
            for place, (value, *_) in enumerate(shown):
                axes.annotate(f" {value:.2f}", (value, place), va="center", color=GREY)
            axes.axvline(1, color=GREY, linewidth=1.2, linestyle=":")
            axes.set_xlim(0, 1.2 * shown[0][0])
            axes.set_title(head, color=GREY, size=9, loc="right")
            axes.tick_params(colors=GREY, length=0)
            axes.spines[:].set_visible(False)
            axes.set_xticks([])
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})


def main():
    figures, models = records()
    for page in dict.fromkeys(page for page, _ in WRITTEN.values()):
        path = ROOT / page
        path.write_text(with_figures(page, path.read_text(), figures, models))
    chart(figures, HERE / "alternatives.svg")


if __name__ == "__main__":
    main()
