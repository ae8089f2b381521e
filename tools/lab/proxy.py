"""A proxy that records what clients and a broker say to each other: two files for each connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
_BLOCK = 1 << 16


class Proxy:
    """Listens on ``port`` of 127.0.0.1 from the beginning; the broker, started then, advertises that port.

    Connections wait for ``lead_to``: an old broker's own controller is among the first. Each leaves ``NN.requests`` and
    ``NN.responses`` in ``folder``, numbered as they came.
    """

    def __init__(self, folder: Path) -> None:
        self._target = 0
        self._known = threading.Event()
        self._folder = folder
        self._count = 0
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients."""
        return f"{HOST}:{self.port}"

    def lead_to(self, port: int) -> None:
        """The broker listens there."""
        self._target = port
        self._known.set()

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):  # its peer may be faster
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                self._known.wait()
                broker = socket.create_connection((HOST, self._target))
            except OSError:
                return
            self._sockets += (client, broker)
            stem = f"{self._count:02}"
            self._count += 1
            self._start(self._pass_on, client, broker, self._folder / f"{stem}.requests")
            self._start(self._pass_on, broker, client, self._folder / f"{stem}.responses")

    def _pass_on(self, source: socket.socket, sink: socket.socket, path: Path) -> None:
        with path.open("wb", buffering=0) as record:
            try:
                while block := source.recv(_BLOCK):
                    record.write(block)
                    sink.sendall(block)
                sink.shutdown(socket.SHUT_WR)
            except OSError:
                return
