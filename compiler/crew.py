"""The worker processes of a tuning on one device: some compile, one measures.

Little is imported here, so that they can start before the process that gives them work has imported what it needs itself.
"""

from __future__ import annotations

import os

from sparseditto.compiler.workers import Pool
from sparseditto.dialects.errors import InputError

DEVICES = ("cuda", "simt")
COMPILER = "sparseditto.compiler.compiling:Compiler"
MEASURER = "sparseditto.compiler.measuring:Measurer"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # a compiler needs no more
_MOST_WORKERS = 16
_AT_ONCE = 4  # compilers that start with the measuring process; more would slow it down, and are started when there is work


class Crew:
    """`workers` processes that compile (default: one a processor, 16 at most), and one that measures on `device`.

    `ordinal` says on which of several GPUs.  Raises `InputError` for a device that there is not, and for no workers.
    """

    def __init__(self, device: str = "cuda", workers: int | None = None, ordinal: int = 0) -> None:
        if device not in DEVICES:
            raise InputError(f"no device is named '{device}'; there are {' and '.join(DEVICES)}")
        if workers is not None and workers < 1:
            raise InputError(f"workers={workers}: at least one is needed")
        self.device, self.ordinal = device, ordinal
        self.workers = workers or min(_MOST_WORKERS, len(os.sched_getaffinity(0)))
        self._pools: tuple[Pool, Pool] | None = None

    @property
    def started(self) -> bool:
        return self._pools is not None

    def pools(self) -> tuple[Pool, Pool]:
        """The pools that compile and measure, started."""
        if self._pools is None:
            options = {"device": self.device, "ordinal": self.ordinal}
            beside = "sparseditto.compiler.runtimes.awake:wake" if self.device == "cuda" else ""
            self._pools = Pool(COMPILER, self.workers, environment=ONE_THREAD), Pool(MEASURER, 1, options, beside=beside)
            compilers, measurer = self._pools
            measurer.start()
            compilers.start(_AT_ONCE)
        return self._pools

    def close(self) -> None:
        """End all of them; `pools` then starts new ones."""
        if self._pools is not None:
            for pool in self._pools:
                pool.close()
            self._pools = None
