"""A server on loopback that speaks OpenAI's chat completions, streamed, and misbehaves on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

Behaviour = Callable[["Handler"], None]
"""Answers one request."""
_GONE = (BrokenPipeError, ConnectionResetError)
_LONGEST_S = 30.0  # that a behaviour without end goes on


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.headers, body))
        script = self.server.script
        behaviour = script.pop(0) if len(script) > 1 else script[0]
        with suppress(*_GONE):
            behaviour(self)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Nothing on standard error."""

    def begin(self, code: int = 200, kind: str = "text/event-stream", **headers: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def event(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        data = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "test-model", "choices": [choice], **more}
        self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())
        self.wfile.flush()

    def end(self, finish: str = "stop", usage: tuple[int, int] = (100, 10)) -> None:
        self.event({}, finish)
        counts = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
        data = {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "test-model",
            "choices": [],
            "usage": counts,
        }
        self.wfile.write(f"data: {json.dumps(data)}\n\ndata: [DONE]\n\n".encode())


class Server(ThreadingHTTPServer):
    """`script` is what is done with one request after the other, the last of it with all that follow."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Behaviour] = []
        self.requests: list[tuple[Message, dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def will(self, *script: Behaviour) -> None:
        self.script, self.requests = list(script), []


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


# --- Behaviours -----------------------------------------------------------------------------------------


def say(answer: Any, usage: tuple[int, int] = (100, 10)) -> Behaviour:
    """Stream `answer`, as JSON unless it is text already, in pieces."""
    text = answer if isinstance(answer, str) else json.dumps(answer)

    def behave(handler: Handler) -> None:
        handler.begin()
        for start in range(0, len(text), 40):
            handler.event({"role": "assistant", "content": text[start : start + 40]})
        handler.end(usage=usage)

    return behave


def call_tools(*calls: tuple[str, Any]) -> Behaviour:
    """Ask for tools, by name and arguments."""
    made = [
        {"index": k, "id": f"call{k}", "type": "function", "function": {"name": name, "arguments": _text(arguments)}}
        for k, (name, arguments) in enumerate(calls)
    ]

    def behave(handler: Handler) -> None:
        handler.begin()
        handler.event({"role": "assistant", "content": None, "tool_calls": made})
        handler.end("tool_calls")

    return behave


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def refuse(code: int, message: str = "no", **headers: str) -> Behaviour:
    def behave(handler: Handler) -> None:
        handler.begin(code, "application/json", **headers)
        handler.wfile.write(json.dumps({"error": {"message": message, "type": "error", "code": code}}).encode())

    return behave


def refuse_and_repeat_the_key(handler: Handler) -> None:
    refuse(401, f"Incorrect API key provided; got the header Authorization: {handler.headers['Authorization']}")(handler)


def truncate(answer: Any) -> Behaviour:
    """Half of an answer, and the connection is closed."""
    text = json.dumps(answer)

    def behave(handler: Handler) -> None:
        handler.begin()
        handler.event({"role": "assistant", "content": text[: len(text) // 2]})

    return behave


def hang(handler: Handler) -> None:
    """Not a byte."""
    _until_gone(handler, lambda: time.sleep(0.05))


def ping(handler: Handler) -> None:
    """Bytes for ever, of which none is part of an answer."""
    handler.begin()
    _until_gone(handler, lambda: handler.wfile.write(b": still here\n\n") and time.sleep(0.01))


def babble(handler: Handler) -> None:
    """An answer without end, which does not even repeat itself."""
    handler.begin()
    numbers = count()
    _until_gone(handler, lambda: handler.event({"content": f"and {next(numbers)} " * 100}))


def garbage(handler: Handler) -> None:
    """What is no stream of events."""
    handler.begin()
    handler.wfile.write(b"data: {]\n\n<html>\x00\xff" * 20)


def redirect(handler: Handler) -> None:
    """To itself, for ever."""
    handler.begin(307, Location=f"{handler.server.url}/chat/completions")


def hang_up(handler: Handler) -> None:
    """The connection is closed, without a word."""


def page(handler: Handler) -> None:
    """What something that is no model server answers."""
    handler.begin(200, "text/html")
    handler.wfile.write(b"<html><body>It works!</body></html>")


def one_line(handler: Handler) -> None:
    """An event that does not end, 256 KiB at a time."""
    handler.begin()
    handler.wfile.write(b"data: ")
    _until_gone(handler, lambda: handler.wfile.write(b"x" * (1 << 18)) and time.sleep(0.01))


def _until_gone(handler: Handler, step: Callable[[], Any]) -> None:
    end = time.monotonic() + _LONGEST_S
    with suppress(*_GONE):
        while time.monotonic() < end and handler.server.script:
            step()


def plan(*steps: tuple[str, dict[str, Any]] | str) -> list[dict[str, Any]]:
    """Steps as a model writes them."""
    pairs = [(step, {}) if isinstance(step, str) else step for step in steps]
    return [{"pass": name, "options": options} for name, options in pairs]


def proposal(steps: Sequence[dict[str, Any]], reason: str = "fewer threads") -> dict[str, Any]:
    return {"reason": reason, "plan": list(steps)}


ANALYSIS = {"limits": ["launch"], "why": "the matrix is tiny", "ideas": ["fewer threads"]}
GOOD = plan(
    "set-encoding", "accumulate-registers", "rows-to-threads", ("coarsen-rows", {"rows": 16}), ("map-blocks", {"threads": 32})
)
"""Under emulation the fastest plan of a matrix of 120 rows: one block of 32 threads."""
