"""Our programs without the wait for their imports, which is most of what a short run takes: lit starts them hundreds of times.

`python warm.py serve SOCKET` imports the programs once and forks for every run, until its standard input is closed;
`python warm.py SOCKET PROGRAM ARGUMENT...` has it run a program, with the folder, environment, standard streams and exit
code of its own.  The installed programs themselves are run by `tests/test_cli.py`.
"""

import array
import json
import os
import socket
import sys

SECONDS = 60  # of processor time that a run may take, as nobody else ends it when lit's own limit has passed
GONE = 70  # the exit code where a run ended without one


def main() -> int:
    if sys.argv[1] == "serve":
        return serve(sys.argv[2])
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        streams = socket.SCM_RIGHTS, array.array("i", [0, 1, 2])
        connection.sendmsg([b" "], [(socket.SOL_SOCKET, *streams)])
        request = {"arguments": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        code = connection.recv(1)
        return code[0] if code else GONE


def serve(path: str) -> int:
    import importlib
    import select
    import signal

    from sparseditto.compiler.cli import main as sparseditto
    from sparseditto.compiler.cli import opt
    from sparseditto.passes.registry import registry

    importlib.import_module("sparseditto.compiler.driver")  # the programs import it where they need it
    registry()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # lit ends what it started
    programs = {"sparseditto": sparseditto.main, "ditto-opt": opt.main}
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(64)
        print("ready", flush=True)
        while server in select.select([server, sys.stdin], [], [])[0]:
            connection, _ = server.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                server.close()
                run(connection, programs)
                os._exit(0)
            connection.close()
            reap()
    return 0


def reap() -> None:
    """Forget the runs that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def run(connection: socket.socket, programs: dict) -> None:
    """Run one program in this process and tell its exit code."""
    import resource

    streams = array.array("i")
    _, sent, _, _ = connection.recvmsg(1, socket.CMSG_LEN(3 * streams.itemsize))
    streams.frombytes(sent[0][2])
    for target, (stream, name, mode) in enumerate(zip(streams, ("stdin", "stdout", "stderr"), "rww", strict=True)):
        os.dup2(stream, target)
        os.close(stream)
        setattr(sys, name, os.fdopen(target, mode, buffering=1, closefd=False))
    with connection.makefile("rb") as file:
        request = json.load(file)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]
    try:
        code = programs[sys.argv[0]](sys.argv[1:])
    except SystemExit as e:
        code = e.code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(bytes([code]))


if __name__ == "__main__":
    sys.exit(main())
