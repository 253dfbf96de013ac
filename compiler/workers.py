"""Worker processes: candidates compile and run in them, so that a crash or a hang costs one candidate and nothing else.

`Pool` keeps processes that each do one job at a time; one that dies, hangs or cannot be trusted any more is replaced.
What the jobs are is up to a handler, of which this file knows nothing: there are `compiling.py` and `measuring.py`.

The processes are new interpreters, not forks (CUDA does not survive one), and not `multiprocessing`'s: they import
nothing of the main program.
"""

from __future__ import annotations

import importlib
import json
import math
import mmap
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from sparseditto.dialects.errors import DeviceError, DittoError, InputError, StepFailed

START_LIMIT_S = 120.0
_OUT_OF_BAND = 1 << 14  # bytes from which an array is shared instead of sent
_GRACE_S = 10.0  # after which a worker whose parent did not end it ends itself
_FOLDER = "ditto-workers-"

Stage = Callable[[str, float], None]
"""A handler calls it as `stage("pack", 60.0)`: what follows is called that and may take that many seconds."""


# --- The parent's side ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One call of a handler's `method` with `payload`; it may take `limit_s` seconds, or what its stages ask for."""

    key: Hashable
    method: str
    payload: Any
    limit_s: float


@dataclass(frozen=True)
class Done:
    """What became of a job: "ok" with a value; "timeout", "crash" or a `DittoError`'s code, and why."""

    key: Hashable
    outcome: str
    value: Any = None
    why: str = ""
    seconds: float = 0.0


class Shared:
    """An object whose large arrays lie in memory that processes share; it is written once and read by all workers."""

    def __init__(self, value: Any) -> None:
        buffers: list[memoryview] = []

        def keep(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes >= _OUT_OF_BAND:
                buffers.append(raw)
                return False
            return True

        self.data = pickle.dumps(value, protocol=5, buffer_callback=keep)
        self.spans: list[tuple[int, int]] = []
        end = 0
        for raw in buffers:
            start = -(-end // 64) * 64
            end = start + raw.nbytes
            self.spans.append((start, end))
        self.size = max(end, 1)
        self.file = os.memfd_create("ditto-shared")
        try:
            os.ftruncate(self.file, self.size)
            for raw, (start, _) in zip(buffers, self.spans, strict=True):
                _write_all(self.file, raw, start)
        except OSError as e:
            os.close(self.file)
            raise InputError(f"not enough memory to share {self.size >> 20} MiB with the workers: {e.strerror}") from e

    def send(self, connection: Connection, process: int) -> None:
        connection.send((self.data, self.spans, self.size))
        reduction.send_handle(connection, self.file, process)

    @staticmethod
    def receive(connection: Connection) -> Any:
        data, spans, size = connection.recv()
        file = reduction.recv_handle(connection)
        try:
            memory = memoryview(mmap.mmap(file, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE))
        finally:
            os.close(file)
        return pickle.loads(data, buffers=[memory[start:end] for start, end in spans])

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


def _write_all(file: int, raw: memoryview, at: int) -> None:
    done = 0
    while done < raw.nbytes:
        done += os.pwrite(file, raw[done : done + (1 << 30)], at + done)


@dataclass(eq=False)
class _Worker:
    """One process.  `generation` is the set-up that it has; `deadline` is when what it does must be done."""

    process: subprocess.Popen[bytes]
    connection: Connection
    log: Any
    deadline: float
    limit_s: float = START_LIMIT_S
    stage: str = "start"
    ready: bool = False
    generation: int = 0
    job: Job | None = None
    started: float = 0.0

    def end(self) -> None:
        """Kill and reap it.  A process that the kernel cannot end at once (a GPU at work) is waited for, for a while."""
        self.process.kill()
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.log.close()

    def last_words(self) -> str:
        """How it ended, with the end of what it wrote to standard error."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        code = self.process.poll()
        how = f"ended by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with exit code {code}"
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, self.log.tell() - 4096))
        lines = [line for line in self.log.read().decode(errors="replace").splitlines() if line.strip()]
        told = next((line for line in lines if "Assertion" in line or "LLVM ERROR" in line), lines[-1] if lines else "")
        return f"{how}: {told.strip()}" if told else how


class Pool:
    """Up to `count` worker processes with the same handler, started when there are jobs for them.

    `handler` is `module:Class`; the class is called with `options`, and its `hello()` is the pool's `hello`.
    While its module is imported, the function `beside`, a name as that one, runs with `options` in a thread.
    """

    def __init__(
        self,
        handler: str,
        count: int,
        options: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        beside: str = "",
    ) -> None:
        self.handler, self.count, self.options, self.beside = handler, count, dict(options or {}), beside
        self.environment = {**os.environ, **(environment or {})}
        self.hello: Any = None
        self.replaced = 0
        self._workers: list[_Worker] = []
        self._queue: deque[Job] = deque()
        self._cancelled: set[int] = set()
        self._shared: list[Shared] = []
        self._generation = 0
        self._folder = tempfile.TemporaryDirectory(prefix=_FOLDER)
        self._failures = 0

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes, whatever they are doing."""
        self._queue.clear()
        while self._workers:
            self._workers.pop().end()
        self._folder.cleanup()

    def setup(self, shared: Sequence[Shared]) -> None:
        """What each worker gets, through its handler's `setup`, before its next job.  The caller keeps and closes `shared`."""
        self._shared = list(shared)
        self._generation += 1

    def start(self, count: int | None = None) -> None:
        """Start workers now, so that they are ready when the first job comes."""
        while len(self._workers) < min(self.count, self.count if count is None else count):
            self._workers.append(self._start())

    def submit(self, job: Job, first: bool = False) -> None:
        """Have a job done after all others, or before all that have not begun."""
        if first:
            self._queue.appendleft(job)
        else:
            self._queue.append(job)
        self._dispatch()

    def cancel(self) -> None:
        """Forget what is queued, and what comes of the jobs that are under way."""
        self._queue.clear()
        self._cancelled |= {id(w.job) for w in self._workers if w.job is not None}

    def connections(self) -> list[Connection]:
        return [w.connection for w in self._workers]

    def deadline(self) -> float:
        """When `collect` must be called at the latest; infinite when nothing is under way."""
        return min((w.deadline for w in self._workers), default=math.inf)

    def collect(self) -> list[Done]:
        """What has been finished since.  Raises `DeviceError` or `StepFailed` when workers cannot start at all."""
        done: list[Done] = []
        for worker in list(self._workers):
            try:
                while worker in self._workers and worker.connection.poll(0):
                    done += self._message(worker, worker.connection.recv())
            except (EOFError, OSError):
                done += self._lost(worker, "crash", worker.last_words())
                continue
            if worker in self._workers and time.monotonic() > worker.deadline:
                done += self._lost(worker, "timeout", f"'{worker.stage}' did not end within {worker.limit_s:g} s")
        self._dispatch()
        return done

    def _message(self, worker: _Worker, message: Any) -> list[Done]:
        kind, *rest = message
        if kind == "ready":
            worker.ready, worker.deadline, self.hello = True, math.inf, rest[0]
            self._failures = 0
        elif kind == "failed":
            code, text = rest
            raise (DeviceError if code == DeviceError.code else StepFailed)(text, where="worker")
        elif kind == "stage":
            worker.stage, worker.limit_s = rest
            worker.deadline = time.monotonic() + worker.limit_s
        elif kind == "done":
            outcome, value, why, healthy = rest
            return self._finished(worker, outcome, value, why, healthy)
        return []

    def _finished(self, worker: _Worker, outcome: str, value: Any, why: str, healthy: bool) -> list[Done]:
        job, seconds = worker.job, time.monotonic() - worker.started
        worker.job, worker.deadline = None, math.inf
        if not healthy:
            self._replace(worker)
        if job is None or self._is_cancelled(job):
            return []
        return [Done(job.key, outcome, value, why, seconds)]

    def _is_cancelled(self, job: Job) -> bool:
        cancelled = id(job) in self._cancelled
        self._cancelled.discard(id(job))
        return cancelled

    def _lost(self, worker: _Worker, outcome: str, why: str) -> list[Done]:
        """A worker that is dead or must be killed."""
        ready = worker.ready
        done = self._finished(worker, outcome, None, why, healthy=False)
        if not ready:
            self._failures += 1
            if self._failures >= 3:
                raise StepFailed(f"workers cannot start: {why}", where="worker")
        return done

    def _replace(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.end()
        self.replaced += 1
        self._workers.append(self._start())

    def _dispatch(self) -> None:
        free = [w for w in self._workers if w.ready and w.job is None]
        while self._queue and free:
            worker, job = free.pop(), self._queue.popleft()
            try:
                self._give(worker, job)
            except OSError:  # it died meanwhile: collect() will notice
                self._queue.appendleft(job)
                worker.job = None
        starting = sum(not w.ready for w in self._workers)
        while len(self._queue) > starting and len(self._workers) < self.count:
            self._workers.append(self._start())
            starting += 1

    def _give(self, worker: _Worker, job: Job) -> None:
        if worker.generation != self._generation:
            worker.connection.send(("setup", len(self._shared)))
            for shared in self._shared:
                shared.send(worker.connection, worker.process.pid)
            worker.generation = self._generation
        worker.connection.send(("job", job.method, job.payload, job.limit_s))
        worker.job, worker.stage, worker.limit_s = job, job.method, job.limit_s
        worker.started = time.monotonic()
        worker.deadline = worker.started + job.limit_s

    def _start(self) -> _Worker:
        ours, theirs = socket.socketpair()
        log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        code = f"import sys; sys.path[:] = {sys.path!r}; from sparseditto.compiler.workers import serve; serve()"
        command = [sys.executable, "-c", code, str(theirs.fileno()), self.handler, json.dumps(self.options), self.beside]
        environment = {**self.environment, "TMPDIR": self._folder.name}
        with theirs:
            process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the parent
            )
        return _Worker(process, Connection(ours.detach()), log, time.monotonic() + START_LIMIT_S)


def gather(pools: Iterable[Pool], timeout_s: float = math.inf) -> Iterator[tuple[Pool, Done]]:
    """Wait until something happens in one of the pools, or `timeout_s` have passed; yields what was finished."""
    pools = list(pools)
    due = min(pool.deadline() for pool in pools) - time.monotonic()
    limit = min(due + 0.01, timeout_s)
    wait([c for pool in pools for c in pool.connections()], None if limit == math.inf else max(0.0, limit))
    for pool in pools:
        for done in pool.collect():
            yield pool, done


# --- The workers' side ----------------------------------------------------------------------------------


def serve() -> None:
    """The main program of a worker: a socket, a handler, its options, and what runs beside its import are the arguments."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection, options = Connection(int(sys.argv[1])), json.loads(sys.argv[3])
    if beside := sys.argv[4]:
        threading.Thread(target=_named(beside), args=(options,), daemon=True).start()
    try:
        handler = _named(sys.argv[2])(options)
        hello = handler.hello()
    except DittoError as e:
        connection.send(("failed", e.code, e.message))
    else:
        connection.send(("ready", hello))
        with suppress(EOFError, OSError):
            _serve(connection, handler)
        folder = Path(os.environ.get("TMPDIR", ""))  # the parent was killed, and cannot do this
        if folder.name.startswith(_FOLDER):
            shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a broken CUDA context must not be torn down politely


def _named(text: str) -> Any:
    """What `module:name` names."""
    module, _, name = text.partition(":")
    return getattr(importlib.import_module(module), name)


def _serve(connection: Connection, handler: Any) -> None:
    def stage(name: str, limit_s: float) -> None:
        connection.send(("stage", name, limit_s))
        signal.setitimer(signal.ITIMER_REAL, limit_s + _GRACE_S)

    while True:
        message = connection.recv()
        if message[0] == "setup":
            handler.setup(*[Shared.receive(connection) for _ in range(message[1])])
            continue
        _, method, payload, limit_s = message
        signal.setitimer(signal.ITIMER_REAL, limit_s + _GRACE_S)  # ends the process even where Python cannot run
        answer = _answer(handler, method, payload, stage)
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.send(("done", *answer))


def _answer(handler: Any, method: str, payload: Any, stage: Stage) -> tuple[str, Any, str, bool]:
    """Outcome, value, reason, and whether this process can go on."""
    try:
        return "ok", getattr(handler, method)(payload, stage), "", True
    except DittoError as e:  # without the command that repeats it: that names a file which goes away
        return e.code, None, f"{e.where}: {e.message}" if e.where else e.message, bool(handler.healthy())
    except MemoryError as e:
        return "crash", None, f"not enough memory: {e}", False
    except Exception as e:
        return "crash", None, f"{type(e).__name__}: {e}", bool(handler.healthy())
