"""Progress: lines of a logger, and a display that only a waiting person sees, and that leaves nothing behind."""

import logging
import os
import pty
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import numpy as np
import pytest
from graphs import build, info, node
from nbclient import NotebookClient
from onnx import TensorProto, save

import jaxops.progress
from jaxops.onnx import decoder, load
from jaxops.progress import progress, step

MODELS = Path(__file__).parent / "models"
X = np.ones((2, 3), np.float32)
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"  # the cursor


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, logger="jaxops")
    return caplog


def small(path=None):
    proto = build(node("Relu", ["x"], ["y"]))
    if path is not None:
        save(proto, path)
    return proto


def threads():
    return [thread for thread in threading.enumerate() if thread is not threading.main_thread()]


# Logging


def test_a_load_a_call_and_its_weights_are_logged_once(log, tmp_path):
    path = tmp_path / "small.onnx"
    small(path)
    model = load(path)
    model(X)
    model(X)
    _ = model.params
    model(np.ones((5, 3), np.float32))
    assert log.messages == ["loading 'small.onnx'", "compiling g", "compiling g"]
    assert {record.name for record in log.records} == {"jaxops"}
    assert {record.levelname for record in log.records} == {"INFO"}


def test_seconds_are_logged_for_debugging(caplog):
    caplog.set_level(logging.DEBUG, logger="jaxops")
    load(small())
    begun, seconds = caplog.messages
    assert begun == "loading a model"
    assert seconds.startswith("loading a model: ")
    assert seconds.endswith(" s")


def test_what_reads_weights_is_logged(log):
    model = load(MODELS / "bert.script.onnx")
    assert len(model.params) == 41
    assert log.messages[1:] == ["reading 41 parameters"]


def test_modules_that_are_measured_are_counted(log):
    model = load(small())
    model.summary(X, time=True)
    assert log.messages[-2:] == ["measuring g, module 1 of 2: g", "measuring g, module 2 of 2: Relu"]


def test_pieces_behind_a_cut_say_where_they_begin(log):
    nodes = [node("NonZero", ["x"], ["i"], node_name="search"), node("Exp", ["f"], ["y"])]
    nodes.insert(1, node("Cast", ["i"], ["f"], to=TensorProto.FLOAT, node_name="convert"))
    model = load(build(*nodes, inputs=[info("x", ["n", "m"])], outputs=[info("y", [2, "k"])]))
    model(np.ones((1100, 1000), np.float32))
    assert log.messages[1:] == ["compiling g", "compiling g, from Cast 'convert'"]


def test_a_decoder_and_a_specialized_pair_are_logged(log):
    model = load(MODELS / "gpt2.dynamo.onnx")
    step_of = decoder(model, length=16)
    state = step_of.init()
    log.clear()
    params = model.params
    state, _ = step_of(params, state, np.ones((1, 4), np.int32))
    for _ in range(3):
        state, _ = step_of(params, state, np.ones(1, np.int32))
    steps = [text for text in log.messages if text.startswith("compiling the decoder")]
    assert steps == [f"compiling the decoder of main_graph, {tokens}" for tokens in ("4 tokens", "1 token")]
    load(small()).specialize(X)
    assert log.messages[-1] == "specializing g"


def test_names_of_files_cannot_forge_a_line(log):
    with progress("loading 'a\nERROR:root:b\x1b[2J'"):
        step("x" * 1000)
    assert log.messages[0] == "loading 'a\\nERROR:root:b\\x1b[2J'"
    assert len(log.messages[1]) == 120


def test_nothing_appears_unless_logging_is_configured(tmp_path):
    small(tmp_path / "small.onnx")
    program = f"import numpy, jaxops.onnx as o; o.load({str(tmp_path / 'small.onnx')!r})(numpy.ones((2, 3), 'f'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


# The display


def test_nothing_is_drawn_where_output_is_captured(monkeypatch, capfd):
    monkeypatch.setattr(jaxops.progress, "_DELAY", 0.0)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    before = threads()
    with progress("waiting", prompts=False):
        time.sleep(0.05)
        assert threads() == before
    assert capfd.readouterr() == ("", "")


def in_terminal(program):
    """Standard output, and what a terminal gets of standard error, of a program whose display waits 0.05 s."""
    start = "import sys, threading, time, jaxops.progress as p; p._DELAY = 0.05; sys.ps1 = '>>> '\n"
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", start + program],
        stdout=subprocess.PIPE,
        stderr=slave,
        text=True,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "60"},
    ) as process:
        os.close(slave)
        drawn = b""
        while True:
            try:
                piece = os.read(master, 4096)
            except OSError:  # of Linux, once nobody has the other end
                break
            if not piece:
                break
            drawn += piece
        assert process.stdout is not None
        printed = process.stdout.read()
    os.close(master)
    return printed, drawn.decode()


def screen(drawn):
    """The lines that remain on a terminal after what `rich` sends to draw one changing line, and its cursor."""
    lines, column, row = [""], 0, 0
    visible = True
    for code, c in re.findall(r"\x1b\[([?;\d]*[A-Za-z])|(.)", drawn, re.DOTALL):
        if code:
            if code == "2K":
                lines[row] = ""
            elif code.endswith("A"):
                row = max(0, row - int(code[:-1] or 1))
            elif code in ("?25l", "?25h"):
                visible = code == "?25h"
            else:
                assert code.endswith("m"), code  # a colour
        elif c == "\r":
            column = 0
        elif c == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        else:
            lines[row] = lines[row][:column].ljust(column) + c + lines[row][column + 1 :]
            column += 1
    return [line for line in lines if line.strip()], visible


WORK = """
with p.progress("loading <b>[red]x[/red]"):
    time.sleep(0.5)
    p.step("part 2 of 2")
    time.sleep(0.5)
print(len(threading.enumerate()), "rich" in sys.modules)
"""


def test_a_terminal_shows_it_and_then_is_clean():
    printed, drawn = in_terminal(WORK)
    assert "loading <b>[red]x[/red] · 0 s" in drawn
    assert "loading <b>[red]x[/red], part 2 of 2 · 1 s" in drawn
    assert HIDE in drawn
    assert screen(drawn) == ([], True)
    assert printed == "1 True\n"


def test_a_script_shows_nothing_and_the_command_line_does():
    assert in_terminal("del sys.ps1" + WORK) == ("1 False\n", "")
    _, drawn = in_terminal("del sys.ps1" + WORK.replace("):", ", prompts=False):"))
    assert "part 2 of 2" in drawn
    assert screen(drawn) == ([], True)


def test_what_is_short_imports_nothing_and_draws_nothing():
    assert in_terminal(WORK.replace("0.5", "0.0")) == ("1 False\n", "")


@pytest.mark.parametrize("cause", ["signal.raise_signal(signal.SIGINT)", "raise ValueError"])
def test_ctrl_c_and_an_error_leave_the_terminal_clean(cause):
    program = f"""
import signal
try:
    with p.progress("waiting"):
        time.sleep(0.5)
        {cause}
except (KeyboardInterrupt, ValueError):
    print(len(threading.enumerate()))
"""
    printed, drawn = in_terminal(program)
    assert "waiting" in drawn
    assert screen(drawn) == ([], True)
    assert printed == "1\n"


def test_without_rich_there_are_the_lines_of_the_logger_alone():
    program = "sys.modules['rich'] = None\nimport logging; logging.basicConfig(level='INFO')" + WORK
    printed, drawn = in_terminal(program)
    assert drawn.splitlines() == [f"INFO:jaxops:loading <b>[red]x[/red]{part}" for part in ("", ", part 2 of 2")]
    assert printed.startswith("1 ")


def test_work_within_work_shows_on_one_line():
    program = """
with p.progress("comparing"):
    with p.progress("compiling"):
        time.sleep(0.3)
    time.sleep(0.3)
print(len(threading.enumerate()))
"""
    printed, drawn = in_terminal(program)
    assert drawn.index("compiling ·") < drawn.index("comparing ·")
    assert drawn.count(HIDE) == drawn.count(SHOW) == 1
    assert printed == "1\n"


def test_of_two_threads_one_is_drawn():
    program = """
def work(name):
    with p.progress(name):
        time.sleep(0.4)
workers = [threading.Thread(target=work, args=(name,)) for name in ("first", "second")]
for worker in workers: worker.start()
for worker in workers: worker.join()
print(len(threading.enumerate()))
"""
    printed, drawn = in_terminal(program)
    assert ("first" in drawn) != ("second" in drawn)
    assert screen(drawn) == ([], True)
    assert printed == "1\n"


def test_a_display_does_not_change_results():
    program = f"""
import numpy as np, jaxops.onnx
model = jaxops.onnx.load({str(MODELS / "bert.script.onnx")!r})
x = np.arange(8).reshape(2, 4)
print(np.asarray(model(x, np.ones_like(x))).tobytes().hex())
"""
    printed, drawn = in_terminal(program)
    assert "compiling main_graph" in drawn
    assert screen(drawn) == ([], True)
    assert in_terminal("del sys.ps1" + program) == (printed, "")


def test_the_command_line_shows_what_it_waits_for(tmp_path):
    small(tmp_path / "small.onnx")
    program = f"del sys.ps1; from jaxops.command_line import main; main(['summary', {str(tmp_path / 'small.onnx')!r}])"
    printed, drawn = in_terminal(program)
    assert "FLOPs" in printed
    assert screen(drawn) == ([], True)


CELL = """
import threading, time
import jaxops.progress as p
p._DELAY = p._IN_NOTEBOOK = 0.1
with p.progress("compiling x"):
    time.sleep(1)
    p.step("part 2 of 2")
    time.sleep(1)
"""


def run_notebook(by_a_person):
    """The notebook of two cells after its run, and (cell, text) of all that was displayed meanwhile."""
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(CELL), nbformat.v4.new_code_cell("1 + 1")]
    shown = []

    class Client(NotebookClient):
        async def async_start_new_kernel_client(self):
            client = await super().async_start_new_kernel_client()
            client.allow_stdin = by_a_person  # as Jupyter says it
            return client

        def process_message(self, message, cell, cell_index):
            if message["header"]["msg_type"] in ("display_data", "update_display_data"):
                shown.append((cell_index, message["content"]["data"].get("text/plain")))
            return super().process_message(message, cell, cell_index)

    Client(book, timeout=300, kernel_name="python3").execute()
    nbformat.validate(book)
    return book, shown


@pytest.mark.filterwarnings("ignore")  # of Jupyter's own machinery
def test_a_notebook_shows_it_and_then_is_clean():
    book, shown = run_notebook(by_a_person=True)
    texts = [text for _, text in shown]
    assert texts[0] == ""
    assert "compiling x · 0 s" in texts
    assert any(text.startswith("compiling x, part 2 of 2 · ") for text in texts[1:-1])
    assert texts[-1] is None
    assert {index for index, _ in shown} == {0}
    (output,) = book.cells[0].outputs
    assert output.data == {}


@pytest.mark.filterwarnings("ignore")
def test_a_notebook_that_a_tool_runs_holds_what_its_cells_print():
    book, shown = run_notebook(by_a_person=False)
    assert shown == []
    assert book.cells[0].outputs == []


def test_work_that_is_interrupted_as_it_begins(monkeypatch):
    def interrupted(part=""):
        raise KeyboardInterrupt

    monkeypatch.setattr(jaxops.progress, "step", interrupted)
    with pytest.raises(KeyboardInterrupt), progress("waiting"):
        pass
    assert jaxops.progress._CURRENT.get() is None
