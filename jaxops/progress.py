"""Progress of long-running work: lines of the logger "jaxops", and a display when a person is waiting.

The display is for the command line, for a prompt of Python in a terminal, and for a notebook that a person runs:
nothing is drawn for a script. It appears after two seconds, and is drawn by a thread that ends with the work.
"""

import contextlib
import contextvars
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from jaxops.shown_text import one_line

# Seconds until something is drawn, and between two pictures of it in a terminal and in a notebook.
_DELAY, _IN_TERMINAL, _IN_NOTEBOOK = 2.0, 0.1, 1.0
_LONGEST = 120  # characters: names come from files
_LOGGER = logging.getLogger("jaxops")
_LOGGER.addHandler(logging.NullHandler())
_Drawing = Callable[[], AbstractContextManager[Callable[[str], None]]]


@dataclass(eq=False)
class _Display:
    """A line that names the work. prompts: whether a terminal shows it only if Python has a prompt."""

    prompts: bool
    text: str = ""
    _done: threading.Event | None = None
    _thread: threading.Thread | None = None

    def show(self, text: str) -> None:
        """Shows the text from now on."""
        self.text = text
        if self._thread is not None:
            return
        if _is_notebook():
            draw, seconds = _in_notebook, _IN_NOTEBOOK
        elif (not self.prompts or hasattr(sys, "ps1")) and sys.stderr is not None and sys.stderr.isatty():
            draw, seconds = _in_terminal, _IN_TERMINAL
        else:
            return
        self._done = threading.Event()
        # Copies the context: IPython uses it to find the cell of the display.
        arguments = self._run, self._done, draw, seconds
        self._thread = threading.Thread(target=contextvars.copy_context().run, args=arguments, daemon=True)
        self._thread.start()

    def _run(self, done: threading.Event, draw: _Drawing, seconds: float) -> None:
        begin = time.monotonic()
        if done.wait(_DELAY) or not _DRAWN.acquire(blocking=False):
            return
        try:
            with draw() as update:
                while True:
                    update(f"{self.text} · {time.monotonic() - begin:.0f} s" if self.text else "")
                    if done.wait(seconds):
                        return
        except ModuleNotFoundError:  # without rich, the lines of the logger are all there is
            return
        finally:
            _DRAWN.release()

    def close(self) -> None:
        """Takes the picture away."""
        if self._done is not None and self._thread is not None:
            self._done.set()
            self._thread.join()


class _Work:
    """A block of work: the context manager that `progress` returns, which takes the same arguments."""

    def __init__(self, what: str, begun: bool, prompts: bool) -> None:
        self.what, self._begun, self._prompts = what, begun, prompts

    def __enter__(self) -> None:
        self._outer = _CURRENT.get()
        self.display = _Display(self._prompts) if self._outer is None else self._outer.display
        self._text, self._begin, self._token = self.display.text, time.monotonic(), _CURRENT.set(self)
        try:
            if self._begun:
                step()
        except BaseException as error:  # Ctrl-C, say: `with` leaves a block only that it has entered
            self.__exit__(type(error))
            raise

    def __exit__(self, kind: object, *_: object) -> None:
        if self._begun and kind is None:
            _LOGGER.debug("%s: %.2f s", one_line(self.what, _LONGEST), time.monotonic() - self._begin)
        _CURRENT.reset(self._token)
        if self._outer is None:
            self.display.close()
        else:
            self.display.text = self._text


_CURRENT: contextvars.ContextVar[_Work | None] = contextvars.ContextVar("progress", default=None)
_DRAWN = threading.Lock()  # held by the one display that is drawn


def progress(what: str, *, begun: bool = True, prompts: bool = True) -> AbstractContextManager[None]:
    """Reports `what` for the block, and displays it if it takes long.

    what: such as "loading bert.onnx". begun: False if there may be nothing to do, as in a call that may find its
    program compiled; the first `step` starts the display. prompts: False if a terminal shows it without a prompt, too.
    """
    return _Work(what, begun, prompts)


def step(part: str = "") -> None:
    """Says that the work of the block around this call begins, or a part of it, such as "part 2 of 3"."""
    work = _CURRENT.get()
    if work is not None:
        text = one_line(f"{work.what}, {part}" if part else work.what, _LONGEST)
        _LOGGER.info("%s", text)
        work.display.show(text)


def say(fact: str) -> None:
    """Logs a fact about work that is done."""
    _LOGGER.info("%s", one_line(fact, _LONGEST))


def explain(work: str, way: str, reason: str) -> None:
    """Says at the level DEBUG in which way something is done, and why."""
    if _LOGGER.isEnabledFor(logging.DEBUG):  # calls of small programs say it, too
        _LOGGER.debug("%s", one_line(f"{work or 'a model'}: {way}, since {reason}", 2 * _LONGEST))


def _is_notebook() -> bool:
    """Returns True if a person runs the cell: interactive front ends allow stdin; nbconvert and the like do not."""
    ipython: Any = sys.modules.get("IPython")
    shell: Any = None if ipython is None else ipython.get_ipython()
    request = shell.get_parent() if hasattr(shell, "get_parent") else {}
    return bool(request.get("content", {}).get("allow_stdin"))


@contextlib.contextmanager
def _in_terminal() -> Iterator[Callable[[str], None]]:
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    spinner = Spinner("dots")
    options: dict[str, Any] = dict.fromkeys(("auto_refresh", "redirect_stdout", "redirect_stderr"), False)
    with Live(spinner, console=Console(stderr=True), transient=True, **options) as live:

        def update(text: str) -> None:
            spinner.update(text=Text(text, no_wrap=True, overflow="ellipsis"))
            live.refresh()

        yield update


@contextlib.contextmanager
def _in_notebook() -> Iterator[Callable[[str], None]]:
    # Not by rich, which needs ipywidgets for a picture that changes.
    from IPython.display import DisplayHandle

    handle = DisplayHandle()
    handle.display({"text/plain": ""}, raw=True)
    yield lambda text: handle.update({"text/plain": text}, raw=True)
    handle.update({}, raw=True)
