"""What the commands share: arguments, messages, exit codes, and the process that a command runs in."""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import json
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparseditto.dialects.errors import DittoError, did_you_mean

FAULTS = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
DATABASE_VARIABLE = "SPARSEDITTO_DB"
OK, CHECK_FAILED, BAD_INPUT, INTERNAL_FAULT, INTERRUPTED, CUT_SHORT = 0, 1, 2, 3, 128 + signal.SIGINT, 128 + signal.SIGPIPE


def note(program: str, message: str) -> None:
    """A note for the person, on standard error."""
    print(f"{program}: {message}", file=sys.stderr)


def natural(text: str) -> int:
    """An argument that is a number from 0 on."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 0 on")
    return int(text)


def default_output(entry: str) -> Path:
    """The package of an entry in the current folder, whatever characters the entry's name has."""
    return Path(re.sub(r"[^\w.-]|^\.+", "_", entry) + ".ditto")


def emit_json(data: Any) -> None:
    json.dump(data, sys.stdout, indent=1)
    print()


def add_operand_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that say what is compiled: a function, its operands and their sizes, and the GPU."""
    parser.add_argument(
        "--bind",
        metavar="OPERAND=FILE",
        action="append",
        default=[],
        help="bind a matrix (.mtx, .tns, .npz, .npy) or array (.npy), or a number to a scalar",
    )
    parser.add_argument("--size", metavar="NAME=N", action="append", default=[], help="size of a dimension (K=64, B.1=64)")
    parser.add_argument("--entry", metavar="NAME", help="the function to compile, where there are several")
    parser.add_argument(
        "--target", metavar="CHIP", default="sm_90", help="the chip or GPU to compile for (default %(default)s)"
    )


def add_load_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--load",
        metavar="FILE",
        action="append",
        default=[],
        type=Path,
        help="a Python file that registers passes, or a composite pass (.json)",
    )


def add_kernel_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments by which a kernel is compiled."""
    add_operand_arguments(parser)
    parser.add_argument("--plan", metavar="PLAN", help="a plan: its text, a JSON file, or a package that has it")
    add_load_argument(parser)
    parser.add_argument(
        "--print-ir-after", metavar="STAGE", action="append", default=[], help="print the IR after S0 … S5 (or all)"
    )
    parser.add_argument("--dump-ir", metavar="DIR", type=Path, help="write the IR of every stage there")


def add_database_arguments(parser: argparse.ArgumentParser) -> None:
    """Which tuning database is used: `database_of` reads them."""
    chosen = parser.add_mutually_exclusive_group()
    add_database_argument(chosen)
    chosen.add_argument("--no-db", action="store_true", help="use no tuning database")


def add_database_argument(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--db", metavar="FILE", type=Path, help=f"the tuning database (default: ${DATABASE_VARIABLE}, else one for each user)"
    )


def database_of(args: argparse.Namespace) -> Path | None:
    """The tuning database that the arguments, the environment or the user's data folder name; None for none."""
    if getattr(args, "no_db", False):
        return None
    if args.db is not None:
        return Path(args.db)
    if named := os.environ.get(DATABASE_VARIABLE):
        return Path(named)
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not data.is_absolute():  # as the XDG base directory specification has it
        data = Path("~/.local/share").expanduser()
    return data / "sparseditto" / "tuning.sqlite3"


def database_to_read(args: argparse.Namespace) -> Path | None:
    """`database_of`, but None where nobody has made the one that is there by default; one that `--db` names must be there."""
    path = database_of(args)
    return path if path is None or args.db is not None or path.is_file() else None


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def guarded(program: str, work: Callable[[], int], reads_stdin: bool = False) -> int:
    """Run a command in a child process and return its exit code.

    MLIR is built with assertions, which end the process.  When the child dies of such a fault it is run once more with each
    step's input recorded, so that the command which repeats the fault can be named.
    """
    _mend_streams()
    if reads_stdin:
        _spool_stdin()
    pid = _fork(program, work, None)
    status = _wait(pid)
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    number = os.WTERMSIG(status)
    if number == signal.SIGINT:
        return INTERRUPTED
    if number not in FAULTS:
        note(program, f"ended by {signal.Signals(number).name}")
        return 128 + number
    note(program, f"internal fault: the compiler was ended by {signal.Signals(number).name}")
    folder = Path(tempfile.mkdtemp(prefix="ditto-failure-"))
    if reads_stdin:
        os.lseek(0, 0, os.SEEK_SET)
    _wait(_fork(program, work, folder))
    command = folder / "reproduce.txt"
    if command.is_file():
        print(f"  reproduce: {command.read_text()}", file=sys.stderr)
    else:
        print(f"  reproduce: {shlex.join([program, *sys.argv[1:]])}", file=sys.stderr)
    return INTERNAL_FAULT


def _fork(program: str, work: Callable[[], int], record: Path | None) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = INTERNAL_FAULT
    try:
        if record is not None:
            _silence()
            from sparseditto.compiler import pipeline

            pipeline.record_to(record)
        code = run_and_report(program, work)
    finally:
        code = _flush(code)
        os._exit(code)


def _flush(code: int) -> int:
    """Flush both streams; a reader that went away is not our fault."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        return code or CUT_SHORT
    except OSError:
        return code or BAD_INPUT  # there is no room for it
    return code


def _silence() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (1, 2):
        os.dup2(null, fd)


def _mend_streams() -> None:
    """A closed stream swallows what is written to it; a character that a stream cannot show is escaped."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (it lives as long as the process)
        elif isinstance(getattr(sys, name), io.TextIOWrapper):
            getattr(sys, name).reconfigure(errors="backslashreplace")


def _spool_stdin() -> None:
    """Keep standard input in a file, so that a run that repeats a fault reads the same."""
    with tempfile.TemporaryFile() as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.seek(0)
        os.dup2(file.fileno(), 0)


def _wait(pid: int) -> int:
    """How the child ended.  What asks this process alone to end is handed on to it."""

    def hand_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def interrupt(number: int, _: object) -> None:
        # From a terminal the child got it too; one that is still there after a while did not.
        signal.signal(signal.SIGALRM, lambda *_: hand_on(signal.SIGINT, None))
        signal.setitimer(signal.ITIMER_REAL, 0.5)

    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: hand_on, signal.SIGHUP: hand_on}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        return os.waitpid(pid, 0)[1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def run_and_report(program: str, work: Callable[[], int]) -> int:
    """Run a command; turn what it raises into one message and an exit code."""
    try:
        return work()
    except DittoError as e:
        print(f"{program}: {e.code}: {e}", file=sys.stderr)
        return e.exit_code
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it may come twice
        print(f"{program}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return CUT_SHORT
    except OSError as e:
        if e.errno != errno.ENOSPC:
            return _internal_fault(program, e)
        print(f"{program}: bad-input: cannot write: {e.strerror}", file=sys.stderr)
        return BAD_INPUT
    except MemoryError as e:
        print(f"{program}: bad-input: not enough memory: {e}", file=sys.stderr)
        return BAD_INPUT
    except Exception as e:
        return _internal_fault(program, e)


def _internal_fault(program: str, error: Exception) -> int:
    """Report an exception that nobody expected; its traceback is kept in a file."""
    folder = Path(tempfile.mkdtemp(prefix="ditto-failure-"))
    (folder / "traceback.txt").write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    print(f"{program}: internal fault: {type(error).__name__}: {error} (see {folder / 'traceback.txt'})", file=sys.stderr)
    print(f"  reproduce: {shlex.join([program, *sys.argv[1:]])}", file=sys.stderr)
    return INTERNAL_FAULT


class Parser(argparse.ArgumentParser):
    """argparse that takes no abbreviations, suggests the nearest option or command, and exits with 2."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(allow_abbrev=False, **keywords)

    def error(self, message: str) -> Any:
        self.print_usage(sys.stderr)
        print(f"{self.prog}: bad-input: {message}{self._nearest(message)}", file=sys.stderr)
        raise SystemExit(BAD_INPUT)

    def _nearest(self, message: str) -> str:
        """A suggestion for the option or the command that `message` does not know."""
        known = list(self._option_string_actions)
        for action in self._subparsers._group_actions if self._subparsers else ():
            for name, command in dict(action.choices or {}).items():  # an unknown option of a command is told here
                known += [name, *getattr(command, "_option_string_actions", ())]
        unknown = re.search(r"unrecognized arguments: (\S+)|invalid choice: '([^']*)'", message)
        return did_you_mean((unknown[1] or unknown[2]).split("=")[0], known) if unknown else ""
