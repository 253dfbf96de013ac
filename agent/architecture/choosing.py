"""The GPU that a chip, a person or a driver means."""

from __future__ import annotations

import functools

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.building import named
from sparseditto.agent.architecture.table import known, lookup
from sparseditto.dialects.errors import InputError
from sparseditto.dialects.target import CHIPS, Target

MEASURED = "H200 SXM"  # the GPU on which the numbers of the planner, the prior and the cost model were found


@functools.cache
def place_of(name: str) -> tuple[Target, Architecture, tuple[str, ...]]:
    """The target and the GPU that a chip (sm_90) or a GPU's name means, and what a person should know.

    Of several GPUs with a chip `MEASURED` counts, else the first of the table.  Raises `InputError` for a name
    of neither, and for a chip that no known GPU has.
    """
    if name not in CHIPS:
        if lookup(name) is None and name.startswith("sm_"):
            Target.named(name)  # raises with suggestions
        architecture = named(name)
        return architecture.target(), architecture, ()
    alike = [gpu for gpu in known() if named(gpu).target().chip == name.rstrip("a")]
    if not alike:
        raise InputError(f"no known GPU has the chip {name}; name one (--target 'A100-80GB')")
    chosen = MEASURED if MEASURED in alike else alike[0]
    note = (f"{name} is taken to be the {chosen} (--target NAME for {', '.join(alike)})",) if len(alike) > 1 else ()
    return Target.named(name), named(chosen), note


def at_hand(name: str) -> Architecture | None:
    """The GPU that a driver calls `name`; None where the table does not know it."""
    return named(name) if lookup(name) is not None else None
