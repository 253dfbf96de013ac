"""The one exception tree.  Each class means a different next move for whoever catches it.

The command line and the agent catch `DittoError` and nothing wider; the exit code that a class stands
for is its `exit_code` (2: the input is at fault, 3: the compiler is, 1: a check said no).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class DittoError(Exception):
    """Root of everything that SparseDitto raises on purpose.

    `message` says what is wrong and what to do; `where` names the file, line, operand or pass.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *, where: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class InputError(DittoError):
    """A file or an argument is wrong; a person has to mend it."""

    code = "bad-input"


class PlanError(DittoError):
    """A plan or a pipeline names what does not exist, or is for something else."""

    code = "bad-plan"


class NotApplicable(DittoError):
    """A pass does not apply to this IR; pick another one."""

    code = "not-applicable"


class Unsupported(DittoError):
    """The input is valid, but nothing here can compile it."""

    code = "unsupported"


class CheckFailed(DittoError):
    """The kernel ran and its result is wrong, or the emulator caught a fault in it."""

    code = "check-failed"
    exit_code = 1


class DeviceError(DittoError):
    """The GPU or its driver is absent, too old for the kernel, or refused a call."""

    code = "device"


class StepFailed(DittoError):
    """A compiler step failed on IR that it should take; `reproduce` is the command that shows it."""

    code = "step-failed"
    exit_code = 3

    def __init__(self, message: str, *, where: str | None = None, reproduce: str | None = None) -> None:
        super().__init__(message, where=where)
        self.reproduce = reproduce

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n  reproduce: {self.reproduce}" if self.reproduce else text


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` for the nearest of `known`, or an empty string when none is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""
