"""Worker processes: ordered results, a bounded look-ahead, and no process that is left over."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kseg.errors import KsegError
from kseg.format.storage.file_access import current, file_access
from kseg.format.storage.process_pool import KILLED, add_progress, context, map_ordered, process_pool

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


def _slow_first(number: int) -> int:
    time.sleep(0.2 if number == 0 else 0)
    return number


def _fail_at_three(number: int) -> int:
    if number == 3:
        raise KsegError("three")
    return number


def _die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def _read(count: int) -> None:
    add_progress(count)


def _rate() -> float | None:
    return current().limit.rate


def test_results_come_in_the_order_of_the_arguments() -> None:
    """A slow first call delays the results of the others, which keep their order."""
    with process_pool(2) as pool:
        assert list(map_ordered(pool, _slow_first, range(20))) == list(range(20))


def test_the_look_ahead_is_bounded() -> None:
    """At most ``ahead`` arguments are requested before their results: a million files take no more memory than ten."""
    requested = []

    def numbers() -> Iterator[int]:
        for number in range(100):
            requested.append(number)
            yield number

    with process_pool(2) as pool:
        for result in map_ordered(pool, abs, numbers()):
            assert len(requested) <= result + pool.ahead + 1


def test_an_exception_of_a_call_ends_the_workers() -> None:
    """Results before it are returned, then it is raised; no worker remains."""
    results: list[int] = []
    with pytest.raises(KsegError, match="three"), process_pool(2) as pool:
        results.extend(map_ordered(pool, _fail_at_three, range(50)))
    assert results == [0, 1, 2]
    assert _no_worker()


@posix
def test_a_killed_worker_is_one_clear_error() -> None:
    """As when the kernel kills a process for its memory."""
    with pytest.raises(KsegError) as raised, process_pool(2) as pool:
        list(map_ordered(pool, _die, range(5)))
    assert str(raised.value) == KILLED
    assert _no_worker()


def test_workers_end_at_once_with_the_block() -> None:
    """An exception of the consumer, such as a closed pipe, kills calls that would run for minutes."""
    with suppress(BrokenPipeError), process_pool(2) as pool:
        next(map_ordered(pool, _sleep, [0, 600, 600]))
        raise BrokenPipeError
    assert _no_worker()


def test_a_failing_pool_leaves_the_workers_of_another_alone() -> None:
    """Two threads of a program can use kseg: the end of one pool kills its own workers only."""
    with process_pool(2) as first:
        assert next(map_ordered(first, abs, [-1])) == 1
        with pytest.raises(KsegError), process_pool(2) as second:
            list(map_ordered(second, _fail_at_three, [3]))
        assert list(map_ordered(first, abs, [-2, -3])) == [2, 3]


def test_progress_of_all_workers_is_summed() -> None:
    """``progress`` gets the bytes of all calls, also those added by the last one."""
    done: list[int] = []
    with process_pool(2, done.append) as pool:
        list(map_ordered(pool, _read, range(10)))
    assert sum(done) == sum(range(10))


def test_processes_share_the_rate_limit() -> None:
    """Workers and this process get equal parts, and the whole limit applies again afterwards."""
    with file_access(max_rate=900):
        with process_pool(2) as pool:
            assert pool.result(pool.submit(_rate)) == current().limit.rate == 300
        assert current().limit.rate == 900


@pytest.mark.slow
@pytest.mark.skipif(context().get_start_method() != "fork", reason="workers have no objects of this process")
def test_no_collection_in_a_worker_meets_objects_of_its_parent() -> None:
    """Objects of other libraries refer to threads that a forked process lacks: collections have crashed on them."""
    parent, early = os.getpid(), context().Value("q", 0)

    def count(*_: object) -> None:
        if os.getpid() != parent and not gc.get_freeze_count():
            early.get_obj().value += 1

    before = gc.get_threshold()
    gc.callbacks.append(count)
    try:
        gc.set_threshold(1)
        with process_pool(2) as pool:
            assert pool.result(pool.submit(gc.get_freeze_count)) > 1000
            assert pool.result(pool.submit(gc.isenabled))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(count)
    assert early.get_obj().value == 0
    assert gc.isenabled()


@pytest.mark.slow
@posix
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_its_parent(ending: signal.Signals, tmp_path: Path) -> None:
    """Workers in a long call end when the parent is interrupted, terminated or killed."""
    program = (
        "import os, sys, time\n"
        "from kseg.format.storage.process_pool import map_ordered, process_pool\n"
        "def work(name):\n"
        "    open(os.path.join(sys.argv[1], str(os.getpid())), 'w').close()\n"
        "    time.sleep(600)\n"
        "with process_pool(2) as pool:\n"
        "    list(map_ordered(pool, work, 'ab'))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stderr=subprocess.DEVNULL)
    while len(list(tmp_path.iterdir())) < 2:
        assert parent.poll() is None
        time.sleep(0.05)
    parent.send_signal(ending)
    parent.wait(300)
    workers = [int(path.name) for path in tmp_path.iterdir()]
    deadline = time.monotonic() + 300
    while any(map(_runs, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [pid for pid in workers if _runs(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def _no_worker() -> bool:
    """Return whether all workers end soon; the thread of an executor may be about to reap them."""
    deadline = time.monotonic() + 300
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not multiprocessing.active_children()


@pytest.mark.slow
@posix
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_is_reported_by_the_parent_alone(ending: signal.Signals) -> None:
    """Ctrl-C, and the SIGTERM of a service manager, reach idle and busy workers, too. They print nothing."""
    program = (
        "import os, signal, time\n"
        "from kseg.format.storage.process_pool import map_ordered, process_pool\n"
        "parent = os.getpid()\n"
        "def interrupt(*_):\n"
        "    time.sleep(os.getpid() == parent)\n"  # so that a worker has the time to print a traceback
        "    raise KeyboardInterrupt\n"
        "signal.signal(signal.SIGINT, interrupt)\n"
        "signal.signal(signal.SIGTERM, interrupt)\n"
        "try:\n"
        "    with process_pool(3) as pool:\n"
        "        for _ in map_ordered(pool, time.sleep, [0, 600]):\n"
        "            print('ready', flush=True)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert parent.stdout
    assert parent.stdout.readline() == b"ready\n"
    os.killpg(parent.pid, ending)
    assert parent.communicate(timeout=300) == (b"interrupted\n", b"")


@posix
def test_a_signal_while_the_workers_start_ends_them() -> None:
    """The kernel can deliver it to another thread, in which it is not blocked: the pool must know its workers by then."""
    program = (
        "import os, signal, threading, time\n"
        "from concurrent.futures import process\n"
        "from kseg.format.storage import interrupts\n"
        "from kseg.format.storage.process_pool import process_pool\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "launch = process.ProcessPoolExecutor._launch_processes\n"
        "def launch_and_signal(executor):\n"
        "    launch(executor)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(0.1)\n"
        "process.ProcessPoolExecutor._launch_processes = launch_and_signal\n"
        "try:\n"
        "    with interrupts.raised(), process_pool(2) as pool:\n"
        "        pool.submit(time.sleep, 0)\n"
        "        print('continued')\n"
        "except interrupts.Interrupted as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=300, check=False)
    assert (done.stdout, done.stderr) == (b"ended by SIGTERM\n", b"")


def _runs(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()
