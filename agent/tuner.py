"""A measured search over plans: what to measure next, how often, and when to stop.

The strategy is pure.  It is given the plans to begin with, the moves from one plan to others, and a function that
measures; it imports no compiler and touches no device.  With the same seed and the same measurements it does the same.
"""

from __future__ import annotations

import math
import random
import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from sparseditto.agent.space import Move
from sparseditto.dialects.errors import InputError
from sparseditto.passes.plan import Plan

OK = "ok"
DUPLICATE = "duplicate"
HOPELESS = "hopeless"  # so slow, or so long to prepare, that nobody would wait for it
FREE = frozenset({DUPLICATE, HOPELESS, "not-applicable", "bad-plan", "unsupported", "bad-input"})
"""Outcomes that never reach a device: they are not counted as measured candidates."""

FIRST_ROUNDS = 3
MOST_ROUNDS = 24  # of one measurement; several are pooled
LEADERS = 3  # plans whose neighbours are tried in one generation …
NEAR = 1.5  # … and how much slower than the best they may be
LAST_SHARE = 0.1  # of the seconds, kept for telling the leaders apart at the end
_RESOLUTION = 0.003  # no median is known better than to this share of it …
_FEW = 0.06  # … nor, with n samples, than to this share over n: the spread of few samples says little
_SPARE = 64  # plans that may be refused before a search by number of candidates gives up, and eight more for each candidate


@dataclass(frozen=True)
class Budget:
    """How much may be measured: a number of candidates, seconds of wall time, or both (what is spent first ends it)."""

    candidates: int | None = None
    seconds: float | None = None

    @staticmethod
    def parse(text: str) -> Budget:
        """Read `64` (candidates), `20s` or `2m` (time), or both as `64,20s`.  Raises `InputError` on anything else."""
        candidates, seconds = None, None
        for word in text.split(","):
            found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|)\s*", word)
            if found is None or (not found[2] and "." in found[1]) or float(found[1]) == 0:
                raise InputError(f"'{text}' is no budget; write 64 (candidates), 20s (time), or both as 64,20s")
            if found[2]:
                seconds = float(found[1]) * (60 if found[2] == "m" else 1)
            else:
                candidates = int(found[1])
        return Budget(candidates, seconds)


@dataclass(frozen=True)
class Request:
    """A plan to be measured at least `rounds` times.  `cutoff_us`: a slower one need not be measured well."""

    plan: Plan
    rounds: int
    cutoff_us: float | None = None


@dataclass(frozen=True)
class Answer:
    """What became of a request.

    `outcome` is "ok" with times in microseconds, "duplicate" of a kernel that was answered before, or why there are no
    times.  `identity` is equal for plans that give the same kernel (empty: not known).
    """

    plan: Plan
    outcome: str
    samples_us: tuple[float, ...] = ()
    identity: str = ""
    why: str = ""


Evaluate = Callable[[Sequence[Request]], Iterable[Answer]]
"""Measures a batch and gives answers in any order, each as soon as it is there; what it leaves out was not measured."""


class Neighbours(Protocol):
    def __call__(self, plan: Plan, /) -> Sequence[Move]: ...


@dataclass(eq=False)
class Tried:
    """A plan that was proposed, and all that was measured of it.  `parent` is the digest of the plan it came from."""

    plan: Plan
    move: Move | None = None
    parent: str | None = None
    outcome: str = ""
    why: str = ""
    identity: str = ""
    recorded: bool = False
    samples_us: list[float] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.outcome == OK

    @property
    def us(self) -> float:
        """Median, microseconds; infinite where it failed."""
        return statistics.median(self.samples_us) if self.ok else math.inf

    @property
    def iqr_us(self) -> float:
        return spread_us(self.samples_us)


def spread_us(samples: Sequence[float]) -> float:
    """Interquartile range."""
    if len(samples) < 2:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return high - low


def half_us(samples: Sequence[float], noise: float) -> float:
    """Half the width of the median's interval (McGill, Tukey and Larsen 1978: two that do not overlap differ at 95 %).

    `noise` is the least spread that is believed, as a share of the median.
    """
    count, middle = len(samples), statistics.median(samples)
    floor = max(_RESOLUTION, _FEW / count)
    return max(1.57 * max(spread_us(samples), noise * middle) / math.sqrt(count), floor * middle)


@dataclass(frozen=True)
class Found:
    """What a search did: all plans in the order of proposal, and why it stopped.

    `stopped` is "bound" (close enough), "candidates", "time", "exhausted" (no legal neighbour of any plan is left),
    "refused" (too many plans did not apply) or "interrupted".
    """

    trials: tuple[Tried, ...]
    stopped: str

    def ranking(self) -> list[Tried]:
        """Those that were measured, the fastest first."""
        return sorted((t for t in self.trials if t.ok), key=lambda t: t.us)


def search(
    seeds: Sequence[Plan],
    neighbours: Neighbours,
    evaluate_batch: Evaluate,
    budget: Budget,
    bound_us: float | None = None,
    *,
    seen: Mapping[str, Answer] | None = None,
    batch: int = 16,
    seed_share: float = 0.5,
    within: float = 0.05,
    seed: int = 0,
    most_rounds: int = MOST_ROUNDS,
    clock: Callable[[], float] = time.monotonic,
) -> Found:
    """Measure seeds, then neighbours of the best, until a plan is `within` that share of `bound_us` or the budget is spent.

    Each plan is measured a few times; those whose intervals overlap with the best one's are measured more often, in
    ever smaller number, until they are told apart or `most_rounds` are asked for.  Of a budget of candidates the seeds
    get `seed_share`; `batch` is the most that is asked for at a time.  No plan is proposed twice, and `seen` answers for
    those (by digest) that an earlier search measured; these count as candidates too, so that a repeated search ends where
    the first did.
    KeyboardInterrupt ends it and keeps what was measured.
    """
    run = _Search(neighbours, evaluate_batch, budget, bound_us, seen or {}, batch, seed_share, within, seed, most_rounds, clock)
    return run.run(seeds)


class _Stop(Exception):
    """The search ends; the argument says why."""


class _Search:
    def __init__(
        self,
        neighbours: Neighbours,
        evaluate: Evaluate,
        budget: Budget,
        bound_us: float | None,
        seen: Mapping[str, Answer],
        batch: int,
        seed_share: float,
        within: float,
        seed: int,
        most_rounds: int,
        clock: Callable[[], float],
    ) -> None:
        self.neighbours, self.evaluate, self.budget, self.seen = neighbours, evaluate, budget, seen
        self.batch, self.seed_share, self.most_rounds, self.clock = batch, seed_share, most_rounds, clock
        self.goal_us = None if bound_us is None else bound_us * (1 + within)
        self.start = clock()
        self.trials: dict[str, Tried] = {}
        self.identities: dict[str, str] = {}
        self.moves: dict[
            str, dict[str, Move]
        ] = {}  # by digest of the plan that they start from, then of the one that they give
        self.luck = _Luck()
        self.random = random.Random(seed)

    def run(self, seeds: Sequence[Plan]) -> Found:
        try:
            stopped = self._search(seeds)
        except KeyboardInterrupt:
            stopped = "interrupted"
        return Found(tuple(t for t in self.trials.values() if t.outcome), stopped)

    def _search(self, seeds: Sequence[Plan]) -> str:
        try:
            fresh = [Tried(plan) for plan in {p.digest(): p for p in seeds}.values()]
            share = math.inf if self.budget.candidates is None else math.ceil(self.seed_share * self.budget.candidates)
            while fresh and self._spent() < share:
                count = int(min(len(fresh), self.batch, share - self._spent()))
                self._try(fresh[:count])
                fresh = fresh[count:]
            self._separate(keep=max(2, len(self.trials) // 2))
            while True:
                self._check()
                self._try(self._proposals())
                self._separate(keep=4, most=self.most_rounds // 2)
        except _Stop as stop:
            reason = str(stop)
        try:
            if reason != "time" or self._left_s() > 0:
                self._separate(keep=4)
        except _Stop:
            pass
        return reason

    # --- Budget ---------------------------------------------------------------------------------------

    def _left_s(self) -> float:
        seconds = self.budget.seconds
        return math.inf if seconds is None else self.start + seconds - self.clock()

    def _spent(self) -> int:
        return sum(t.outcome not in FREE for t in self.trials.values())

    def _left_candidates(self) -> float:
        return math.inf if self.budget.candidates is None else self.budget.candidates - self._spent()

    def _check(self) -> None:
        """Raise `_Stop` when the search may end before another plan is tried."""
        if self.goal_us is not None and any(t.us <= self.goal_us for t in self.trials.values()):
            raise _Stop("bound")
        if self._left_candidates() <= 0:
            raise _Stop("candidates")
        if self.budget.candidates is not None and len(self.trials) > 8 * self.budget.candidates + _SPARE:
            raise _Stop("refused")
        if self.budget.seconds is not None and self._left_s() <= LAST_SHARE * self.budget.seconds:
            raise _Stop("time")

    # --- Measuring ------------------------------------------------------------------------------------

    def _try(self, fresh: Sequence[Tried]) -> None:
        """Measure plans for the first time, no more than may be."""
        waiting = list(fresh)
        while waiting:
            self._check()
            count = int(min(len(waiting), self._left_candidates()))
            now, waiting = waiting[:count], waiting[count:]
            for tried in now:
                self.trials[tried.plan.digest()] = tried
            self._measure(now, FIRST_ROUNDS)
            for tried in now:
                self.luck.learn(tried, self.trials.get(tried.parent or ""))

    def _measure(self, tried: Sequence[Tried], rounds: int) -> None:
        best = self._best()
        cutoff = None if best is None or rounds > FIRST_ROUNDS else 4 * best.us
        requests = []
        for t in tried:
            known = self.seen.get(t.plan.digest()) if not t.outcome else None
            if known is not None:
                t.recorded = True
                self._take(t, known)
            else:
                requests.append(Request(t.plan, rounds, cutoff))
        with _closing(self.evaluate(requests) if requests else ()) as answers:
            for answer in answers:
                self._take(self.trials[answer.plan.digest()], answer)
                if self._left_s() <= 0:
                    break
        if self._left_s() <= 0:
            raise _Stop("time")

    def _take(self, tried: Tried, answer: Answer) -> None:
        """Note an answer; one that gives the same kernel as an earlier one is a duplicate, whatever it measured."""
        digest = tried.plan.digest()
        first = self.identities.setdefault(answer.identity, digest) if answer.identity else digest
        tried.outcome, tried.why, tried.identity = answer.outcome, answer.why, answer.identity
        if answer.outcome == OK and first != digest:
            tried.outcome, tried.why = DUPLICATE, f"gives the same kernel as {first}"
        elif answer.outcome == OK:
            tried.samples_us += answer.samples_us

    def _best(self) -> Tried | None:
        best = min(self.trials.values(), key=lambda t: t.us, default=None)
        return best if best is not None and best.ok else None

    def _noise(self) -> float:
        """What is usual of the interquartile range over the median."""
        return statistics.median([0.0, 0.0, *(t.iqr_us / t.us for t in self.trials.values() if t.ok and t.us > 0)][1:])

    def _separate(self, keep: int, most: int | None = None) -> None:
        """Measure those that could be the best again, ever fewer and ever longer, until one is left."""
        rounds, most = FIRST_ROUNDS, self.most_rounds if most is None else most
        while rounds < most and (best := self._best()) is not None:
            noise = self._noise()
            high = best.us + half_us(best.samples_us, noise)
            near = (t for t in self.trials.values() if t.ok and t.us - half_us(t.samples_us, noise) <= high)
            close = sorted(near, key=lambda t: t.us)[:keep]
            unsure = [t for t in close if len(t.samples_us) < 2 * most]
            if len(close) < 2 or not unsure or all(t.recorded for t in close):
                return
            rounds = min(2 * rounds, most)
            self._measure(unsure, rounds)
            keep = max(2, keep // 2)

    # --- Proposing ------------------------------------------------------------------------------------

    def _proposals(self) -> list[Tried]:
        """The next generation: promising moves from the leaders, and one from any plan.  Raises `_Stop` when none is left."""
        size = self.batch
        if self.budget.candidates is not None:
            size = min(size, max(4, int(self._left_candidates()) // 2))
        chosen: dict[str, Tried] = {}
        ranking = sorted((t for t in self.trials.values() if t.ok), key=lambda t: t.us) or list(self.trials.values())
        leaders = [t for t in ranking[:LEADERS] if not t.ok or t.us <= NEAR * ranking[0].us]
        self._choose(chosen, leaders, size - 1 if len(ranking) > len(leaders) else size)
        stragglers = ranking[len(leaders) :]
        if stragglers and len(chosen) < size:
            self._choose(chosen, [self.random.choice(stragglers)], min(size, len(chosen) + 1))
        for tried in stragglers:
            if chosen:
                break
            self._choose(chosen, [tried], size)
        if not chosen:
            raise _Stop("exhausted")
        return list(chosen.values())

    def _choose(self, chosen: dict[str, Tried], parents: Sequence[Tried], size: int) -> None:
        """Fill `chosen` up to `size` from the parents in turn, the best move of each first, no move from two parents."""
        labels = {t.move.label for t in chosen.values() if t.move is not None}
        queues = [iter(self._open_moves(parent)) for parent in parents]
        pairs = list(zip(parents, queues, strict=True))
        while pairs and len(chosen) < size:
            for parent, queue in list(pairs):
                digest, move = next(((d, m) for d, m in queue if d not in chosen and m.label not in labels), ("", None))
                if move is None:
                    pairs.remove((parent, queue))
                elif len(chosen) < size:
                    labels.add(move.label)
                    chosen[digest] = Tried(move.plan, move, parent.plan.digest())

    def _open_moves(self, parent: Tried) -> list[tuple[str, Move]]:
        """Moves to plans that were not tried, with these plans' digests; one of each subject before a second one."""
        start = parent.plan.digest()
        if start not in self.moves:
            self.moves[start] = {move.plan.digest(): move for move in self.neighbours(parent.plan)}
        moves = self.moves[start] = {d: m for d, m in self.moves[start].items() if d not in self.trials}
        turn: dict[str, int] = {}
        keyed = []
        for place, (digest, move) in enumerate(sorted(moves.items(), key=lambda item: self.luck.key(item[1]))):
            nth = turn[move.subject] = turn.get(move.subject, -1) + 1
            keyed.append(((self.luck.hopeless(move), nth, place), (digest, move)))
        return [found for _, found in sorted(keyed, key=lambda pair: pair[0])]


@contextmanager
def _closing(answers: Iterable[Answer]) -> Iterator[Iterable[Answer]]:
    """Ends the generator behind `answers` in any case, so that it stops what it has started."""
    try:
        yield answers
    finally:
        close = getattr(answers, "close", None)
        if close is not None:
            close()


class _Luck:
    """What each kind of move has brought so far: how often nothing, and the mean gain where it was measured."""

    _HOPE = 0.02  # gain (as a logarithm) that is expected of a kind of move that was not tried yet

    def __init__(self) -> None:
        self.useless: dict[str, int] = {}
        self.gains: dict[str, list[float]] = {}

    def learn(self, tried: Tried, parent: Tried | None) -> None:
        if tried.move is None or parent is None:
            return
        for name in (tried.move.label, tried.move.subject):
            if tried.outcome in FREE or not tried.ok:
                self.useless[name] = self.useless.get(name, 0) + 1
            elif parent.ok:
                self.gains.setdefault(name, []).append(math.log(parent.us / tried.us) if tried.us > 0 else 0.0)

    def hopeless(self, move: Move) -> bool:
        """Whether such moves have only failed: the very same one, or three of the kind."""
        return any(
            self.useless.get(name, 0) >= count and name not in self.gains
            for name, count in ((move.label, 1), (move.subject, 3))
        )

    def key(self, move: Move) -> float:
        """Sorts the most promising first, by what is predicted, and what the move gained before or half its kind's best."""
        if move.label in self.gains:
            return -move.hope - statistics.fmean(self.gains[move.label])
        if move.subject in self.gains:
            return -move.hope - max(self.gains[move.subject]) / 2
        return -move.hope - self._HOPE
