"""Run a command, and print its exit code, wall time, processor time and peak memory as JSON into a file.

A process inherits the peak of the process that started it: exec keeps ``signal->maxrss``. This process is smaller than any
contender, whatever the benchmark has in memory.

Usage: ``python -I -S launch.py RESULT COMMAND...``
"""

import os
import sys
import time

begin = time.perf_counter()
_, status, usage = os.wait4(os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ), 0)
wall = time.perf_counter() - begin
with open(sys.argv[1], "w", encoding="ascii") as out:
    print(
        f'{{"code": {os.waitstatus_to_exitcode(status)}, "wall": {wall}, '
        f'"cpu": {usage.ru_utime + usage.ru_stime}, "peak": {usage.ru_maxrss * 1024}}}',
        file=out,
    )
