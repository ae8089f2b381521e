"""The signals that end a command: Ctrl-C, the SIGTERM of a service manager, and the SIGHUP of a closed terminal.

The command line handles them; importing kseg changes nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # the module signal makes enumerations of its constants, which takes 0.5 ms

#: Number -> name. Windows lacks SIGHUP.
ENDING: Mapping[int, str] = {
    getattr(signal, name): name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
}

_Handlers = dict[int, Any]


class Interrupted(KeyboardInterrupt):
    """One of the signals came. Code that cleans up after Ctrl-C cleans up after all of them."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__("interrupted" if number == signal.SIGINT else f"ended by {ENDING[number]}")
        self.ctrl_c = number == signal.SIGINT
        #: As shells report it.
        self.exit_code = 128 + number


#: The signal that ``raised`` raised last. Code in C can put an exception of its own in its place: an import in a compiled
#: module fails with "cannot import name".
_received: list[Interrupted] = []
#: Seconds after which a signal is raised again.
_AGAIN = 0.25


def signal_behind(error: BaseException) -> Interrupted | None:
    """Return the signal that caused an exception, None if none did. Python wraps one that comes while it makes a class."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, Interrupted):
        cause = cause.__cause__
    return cause or next(iter(_received), None)


def settled() -> None:
    """Do not raise the last signal again: its exception was handled, and the command continues."""
    if _received and hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _repeat(number: int) -> None:
    """Raise a signal again, until the block of ``raised`` ends.

    The first exception can be dropped: Python drops one in a destructor or in a callback of a weak reference, DuckDB and
    imports in compiled modules some of those in functions that they call. While it is handled, ``_interrupt`` does nothing.
    """
    if hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) == signal.SIG_DFL:  # Windows lacks the timer
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(number))
        signal.setitimer(signal.ITIMER_REAL, _AGAIN, _AGAIN)


@contextmanager
def raised() -> Iterator[None]:
    """Raise Interrupted for a signal in this block. After the block a signal ends the process at once.

    A signal that is ignored, such as SIGHUP by nohup, stays ignored.
    """
    _received.clear()
    taken = [number for number, handler in handlers().items() if handler != signal.SIG_IGN]
    restore(dict.fromkeys(taken, _interrupt))
    hook = sys.unraisablehook
    sys.unraisablehook = partial(_unless_interrupted, hook)
    try:
        yield
    except KeyboardInterrupt as error:
        _close_generators(error)
        raise
    finally:
        settled()
        sys.unraisablehook = hook
        restore(dict.fromkeys(taken, signal.SIG_DFL))


def _unless_interrupted(hook: Callable[[Any], object], dropped: sys.UnraisableHookArgs) -> None:
    """Report an exception that Python dropped, unless it is that of a signal, which is raised again."""
    if not isinstance(dropped.exc_value, Interrupted):
        hook(dropped)


def _close_generators(error: BaseException) -> None:
    """Drop the variables in the frames of an exception: a waiting generator, such as one with workers, ends then."""
    traceback = error.__traceback__
    while traceback:
        with suppress(RuntimeError):  # the frame still runs
            traceback.tb_frame.clear()
        traceback = traceback.tb_next


def _interrupt(number: int, _: object) -> None:
    """Raise Interrupted. While an earlier one is handled, do nothing: the clean-up must not be ended halfway.

    timeout(1) sends its signal twice, and a shell sends Ctrl-C as often as it is pressed.
    """
    error = sys.exc_info()[1]
    while error and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    if not error:
        _received[:] = [Interrupted(number)]
        _repeat(number)
        raise _received[0]


def handlers() -> _Handlers:
    """Return the handlers of the signals, as far as Python knows them. Only the main thread can set handlers."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    known = {number: signal.getsignal(number) for number in ENDING}
    return {number: handler for number, handler in known.items() if handler is not None}


def restore(before: _Handlers) -> None:
    """Set the handlers that ``handlers`` returned."""
    for number, handler in before.items():
        signal.signal(number, handler)


@contextmanager
def delayed() -> Iterator[Sequence[int]]:
    """Delay the signals until the block ends, so that a created file is registered for its removal.

    Yields the numbers of those that came, so that a block that waits can end.
    """
    came: list[int] = []
    before = {number: handler for number, handler in handlers().items() if callable(handler)}
    restore(dict.fromkeys(before, lambda number, _: came.append(number)))
    try:
        yield came
    finally:
        restore(before)
        for number in came[:1]:
            signal.raise_signal(number)


@contextmanager
def blocked() -> Iterator[None]:
    """Block the signals in this thread and in the processes and threads that it starts."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore() -> None:
    """Ignore the signals, also those that were blocked until now."""
    restore(dict.fromkeys(ENDING, signal.SIG_IGN))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
