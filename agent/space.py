"""The plans that there are for a task: seeds to begin a search with, and the neighbours of a plan.

Everything here follows from what the passes declare (kinds, forms, options with choices), so a pass that is registered
is used at once.  `Plan` refuses what no order allows; a pass may still refuse the IR, which costs one compilation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, pairwise, permutations, product, zip_longest
from typing import Any

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.choosing import place_of
from sparseditto.agent.features import Features
from sparseditto.agent.machine import Machine
from sparseditto.agent.planner import Task, ranked
from sparseditto.dialects.errors import PlanError
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Kind, Pass
from sparseditto.passes.plan import Plan, expanded
from sparseditto.passes.registry import registry

_KINDS = (Kind.REPRESENTATION, Kind.SCHEDULE, Kind.MAPPING)
_VARIED = 0.8  # standard deviation of row lengths over their mean, from which rows count as skewed
_LONG = 16.0  # longest row over the mean row, the same

Steps = tuple[Pass, ...]


@dataclass(frozen=True)
class Context:
    """What a plan is chosen from: the task, the features of the matrix (None: not known), the chip and the GPU.

    `architecture` is the GPU that the plan is for; without one it is the one that is meant by the chip (`place_of`).

    A pass that knows better than its choices which parameters are worth a try has a class method
    `candidates(context: Context) -> Iterable[Pass]`, the best first; nothing else is then proposed of it.
    """

    task: Task
    features: Features | None = None
    target: Target = dataclasses.field(default_factory=Target)
    architecture: Architecture | None = None

    @property
    def gpu(self) -> Architecture:
        """The GPU that the plan is for."""
        return self.architecture or place_of(self.target.chip)[1]

    @property
    def machine(self) -> Machine:
        """What the rules read of that GPU."""
        return Machine.of(self.gpu)


@dataclass(frozen=True)
class Move:
    """A plan one change away.  `label` says the change (`unroll.factor=8`, `+unroll`), `subject` what it is about.

    `hope` is the natural logarithm of the speedup that somebody predicts.
    """

    plan: Plan
    label: str
    subject: str
    hope: float = 0.0


class Space:
    """The legal, complete plans of one task.  `passes` are those to choose from (default: all that are registered)."""

    def __init__(self, context: Context, passes: Mapping[str, type[Pass]] | None = None) -> None:
        self.context = context
        found = registry() if passes is None else passes
        self._passes = {name: cls for name, cls in found.items() if cls.kind is not Kind.LOWERING}
        self._variants: dict[str, Steps] = {}

    def plan(self, steps: Sequence[Pass]) -> Plan | None:
        """The plan of these steps, or None when it is illegal, incomplete or impossible for the task."""
        try:
            return self.checked(steps)
        except PlanError:
            return None

    def checked(self, steps: Sequence[Pass]) -> Plan:
        """The plan of these steps.  Raises `PlanError` which says why there is none."""
        steps = expanded(steps)
        encoded = any(step.kind is Kind.REPRESENTATION for step in steps)
        if _repeats(steps):
            raise PlanError("a pass stands twice where it works on the same part of the matrix")
        if encoded and not self.context.task.choose_format:
            raise PlanError("the kernel pins how the matrix is stored; leave out representation passes")
        if not encoded and self.context.task.choose_format:
            raise PlanError("a plan begins with a representation pass, which says how the matrix is stored")
        if not self._possible(steps):
            raise PlanError("the nest does not end up on blocks, or a pass needs dense columns where there are none")
        return Plan(steps, self.context.task.kernel)

    def _possible(self, steps: Sequence[Pass]) -> bool:
        """Whether the nest ends up on blocks, and no step needs dense columns where there are none."""
        forms = {Form.ROWS} if self.context.task.columns in (0, 1) else {Form.ROWS, Form.COLUMNS}
        waiting = [set(forms)]
        for step in steps:
            if Form.COLUMNS in step.requires and Form.COLUMNS not in forms:
                return False
            if Form.PARTS in step.provides:
                waiting.append(set(forms))
            if step.starts_part and waiting:
                forms = waiting.pop()
            else:
                forms.update(step.provides)
                forms.difference_update(step.removes)
        return Form.BLOCKS in forms

    # --- Neighbours -----------------------------------------------------------------------------------

    def neighbours(self, plan: Plan) -> list[Plan]:
        """The plans of `moves`."""
        return [move.plan for move in self.moves(plan)]

    def moves(self, plan: Plan) -> list[Move]:
        """Every legal plan one change away, once.

        A change is an option one choice further, columns traded for lanes, a pass replaced, added, removed or moved, or the
        matrix split in two parts that are scheduled alike but for how the rows of the second are mapped.
        """
        found: dict[str, Move] = {}
        steps = plan.steps
        kinds = (self._changes, self._trades, self._replacements, self._additions, self._splits)
        for changed, label, subject in (change for kind in kinds for change in kind(steps)):
            self._add(found, plan, changed, label, subject)
        for k, step in enumerate(steps):
            self._add(found, plan, (*steps[:k], *steps[k + 1 :]), f"-{step.name}", f"-{step.name}")
        for k, (a, b) in enumerate(pairwise(steps)):
            label = f"{b.name}<{a.name}"
            self._add(found, plan, (*steps[:k], b, a, *steps[k + 2 :]), label, label)
        return list(found.values())

    def _add(self, found: dict[str, Move], plan: Plan, steps: Steps, label: str, subject: str) -> None:
        made = self.plan(steps)
        if made is not None and made != plan:
            found.setdefault(made.digest(), Move(made, label, subject))

    def _changes(self, steps: Steps) -> Iterator[tuple[Steps, str, str]]:
        for k, step in enumerate(steps):
            for option, other in self._adjacent(step):
                subject = f"{step.name}.{option}"
                label = f"{subject}={other.options()[option]}"
                yield (*steps[:k], other, *steps[k + 1 :]), label, subject

    def _trades(self, steps: Steps) -> Iterator[tuple[Steps, str, str]]:
        """One number up and one down, of two steps that share out the columns: either alone leaves lanes idle, or too few."""
        sharing = [k for k, step in enumerate(steps) if Form.COLUMNS in step.requires or Form.THREADS in step.provides]
        for j, k in permutations(sharing, 2):
            for (more, first), (fewer, second) in product(self._adjacent(steps[j]), self._adjacent(steps[k])):
                if _rises(steps[j], first, more) and _rises(second, steps[k], fewer):
                    changed = list(steps)
                    changed[j], changed[k] = first, second
                    subjects = f"{first.name}.{more}", f"{second.name}.{fewer}"
                    label = f"{subjects[0]}={first.options()[more]} {subjects[1]}={second.options()[fewer]}"
                    yield tuple(changed), label, " ".join(subjects)

    def _replacements(self, steps: Steps) -> Iterator[tuple[Steps, str, str]]:
        """A pass for another that provides something of the same."""
        for k, step in enumerate(steps):
            for cls in self._absent(steps):
                if _alike(step, cls) and self._may_stand(steps[:k], cls, steps[k + 1 :]):
                    for variant in self.variants(cls):
                        yield (*steps[:k], variant, *steps[k + 1 :]), f"{step.name}>{variant}", f"{step.name}>{cls.name}"

    def _additions(self, steps: Steps) -> Iterator[tuple[Steps, str, str]]:
        """A pass that is not there, at every place, and with it one that provides what it requires, where that is missing.

        Steps of a composite pass take the places of those that are there for the same.
        """
        for cls in self._absent(steps):
            variants = self.variants(cls)
            places = [k for k in _places(steps, cls.kind) if any(self.plan(_put(steps, v, k)) for v in variants[:1])]
            for variant, k in product(variants, places):
                yield _put(steps, variant, k), f"+{variant}", f"+{cls.name}"
            for helper in self._helpers(cls, steps):
                for k in _places(steps, cls.kind):
                    for variant in variants[:1]:
                        added = (*steps[:k], *self.variants(helper)[:1], variant, *steps[k:])
                        yield added, f"+{helper.name}+{variant}", f"+{cls.name}"

    def _splits(self, steps: Steps) -> Iterator[tuple[Steps, str, str]]:
        """The matrix in parts, each with the passes that it has now, or the second with its rows mapped in another way."""
        turns = [cls() for cls in self._passes.values() if cls.starts_part]
        for cls in self._absent(steps):
            if turns and Form.PARTS in cls.provides:
                for variant, k in product(self.variants(cls), range(len(steps) + 1)):
                    for second in (steps[k:], *self._mapped_otherwise(steps[k:])):
                        yield (*steps[:k], variant, *steps[k:], turns[0], *second), f"+{variant}", f"+{cls.name}"

    def _mapped_otherwise(self, steps: Steps) -> Iterator[Steps]:
        """The steps with the rows mapped by each other pass, with what that suggests first."""
        for k, step in enumerate(steps):
            for cls in self._absent(steps) if Form.THREADS in step.provides else ():
                if Form.THREADS in cls.provides:
                    rest = [s for s in steps[k + 1 :] if not set(s.provides) & set(cls.provides)]
                    yield (*steps[:k], *self.variants(cls)[:1], *rest)

    def _may_stand(self, before: Steps, cls: type[Pass], after: Steps) -> bool:
        """Whether a pass is legal between these steps, which its options have no part in."""
        return any(self.plan((*before, variant, *after)) is not None for variant in self.variants(cls)[:1])

    def _absent(self, steps: Steps) -> list[type[Pass]]:
        """Passes that some part of the matrix lacks."""
        names = set.intersection(*({step.name for step in part} for part in _parts(steps)))
        return [cls for name, cls in self._passes.items() if name not in names]

    def _helpers(self, cls: type[Pass], steps: Steps) -> list[type[Pass]]:
        """Passes that provide what `cls` requires and no step provides; a composite pass has to bring these itself."""
        there = {Form.ROWS, Form.COLUMNS}.union(*(step.provides for step in steps))
        missing = set(cls.requires) - there if cls.kind in _KINDS else set()
        return [other for other in self._absent(steps) if other.kind in _KINDS and missing & set(other.provides)]

    # --- Options --------------------------------------------------------------------------------------

    def variants(self, cls: type[Pass]) -> Steps:
        """The pass with its defaults, then with each option at each other choice, the nearest first."""
        if cls.name not in self._variants:
            declared = getattr(cls, "candidates", None)
            self._variants[cls.name] = tuple(declared(self.context)) if declared is not None else _variants(cls())
        return self._variants[cls.name]

    def composites_in(self, plan: Plan) -> list[Pass]:
        """The composite passes all of whose steps the plan holds, of those that the search proposes."""
        variants = (v for cls in self._passes.values() if cls.kind is Kind.COMPOSITE for v in self.variants(cls))
        return [variant for variant in variants if set(variant.expand()) <= set(plan.steps)]

    def _adjacent(self, step: Pass) -> Iterator[tuple[str, Pass]]:
        """(option, step) for each option one choice up or down; words have no order, so any other word."""
        if hasattr(type(step), "candidates"):
            yield from _one_option_away(step, self.variants(type(step)))
            return
        for field in dataclasses.fields(step):
            value = getattr(step, field.name)
            for choice in _near(_choices(field), value):
                yield field.name.replace("_", "-"), dataclasses.replace(step, **{field.name: choice})

    # --- Seeds ----------------------------------------------------------------------------------------

    def seeds(self, urgent: Set[Bottleneck] = frozenset(), suggested: Sequence[Plan] | None = None) -> Iterator[Plan]:
        """The plans that structure suggests, then those unlike the first and each other, what is likely to help first.

        A pass is likely to help that relieves what is `urgent` (nothing: what the features say); `suggested` are in place of
        those of the planner.
        """
        context = self.context
        first = suggested or ranked(context.task, context.features, context.target, context.gpu)
        urgent = urgent or _urgent(context.features)
        found = set()
        for plan in chain(first, (move.plan for move in self._unlike(first[0], urgent))):
            if plan.digest() not in found:
                found.add(plan.digest())
                yield plan

    def _unlike(self, base: Plan, urgent: Set[Bottleneck]) -> Iterator[Move]:
        """One change away from `base`, kinds of changes in turn; then two, where the first maps the rows in another way."""
        moves = self.moves(base)
        mappers = _spread([m for m in moves if self._is_replacement(base, m)])
        helpful = [m for m in moves if m.label.startswith("+") and self._relieves(m, urgent)]
        others = [m for m in moves if m.label.startswith("+") and not self._relieves(m, urgent)]
        removals = [m for m in moves if m.label.startswith("-")]
        subjects = {f"{step.name}.{option}" for step in base.steps for option in step.options()}
        options = [m for m in moves if m.subject in subjects]
        groups = [_spread(helpful), _spread([*mappers, *self._far(base)]), _spread(others), _spread(removals), _spread(options)]
        yield from (move for row in zip_longest(*groups) for move in row if move is not None)
        for mapper in mappers:
            moves = self.moves(mapper.plan)
            yield from _spread([m for m in moves if m.label.startswith("+") and self._relieves(m, urgent)])

    def _far(self, base: Plan) -> Iterator[Move]:
        """The rows mapped as in `base`, with each option of that at every choice."""
        for k, step in enumerate(base.steps):
            if Form.THREADS in step.provides:
                for variant in _variants(step)[1:]:
                    made = self.plan((*base.steps[:k], variant, *base.steps[k + 1 :]))
                    if made is not None:
                        yield Move(made, str(variant), step.name)

    def _is_replacement(self, base: Plan, move: Move) -> bool:
        """Whether the move puts another pass where the rows are mapped."""
        mappers = {step.name for step in base.steps if Form.THREADS in step.provides}
        return move.subject.split(">")[0] in mappers and ">" in move.subject

    def _relieves(self, move: Move, urgent: Set[Bottleneck]) -> bool:
        return bool(urgent & set(self._passes[move.subject.lstrip("+")].relieves))


def _urgent(features: Features | None) -> set[Bottleneck]:
    """What is likely to limit a plain kernel on such a matrix."""
    if features is not None and (
        features.variation > _VARIED or features.max_row > _LONG * max(features.mean_row, 1.0)  # a few rows hold up all others
    ):
        return {Bottleneck.IMBALANCE}
    return {Bottleneck.BANDWIDTH, Bottleneck.LATENCY}


def _spread(moves: Sequence[Move]) -> list[Move]:
    """The same moves, subject after subject in turn, so that the first ones differ most."""
    by_subject: dict[str, list[Move]] = {}
    for move in moves:
        by_subject.setdefault(move.subject, []).append(move)
    return [move for row in zip_longest(*by_subject.values()) for move in row if move is not None]


def _parts(steps: Steps) -> list[Steps]:
    """The steps from one turn of parts to the next."""
    turns = [k for k, step in enumerate(steps) if step.starts_part]
    return [steps[a:b] for a, b in pairwise([0, *turns, len(steps)])]


def _places(steps: Steps, kind: Kind) -> list[int]:
    """Where a step of that kind may be put in, as the order of kinds goes."""
    if kind is Kind.COMPOSITE:  # its steps have places of their own
        return list(range(len(steps) + 1))
    ranks = [_KINDS.index(step.kind) for step in steps]
    rank = _KINDS.index(kind)
    after = [k == 0 or ranks[k - 1] <= rank for k in range(len(steps) + 1)]
    before = [k == len(steps) or rank <= ranks[k] or steps[k].starts_part for k in range(len(steps) + 1)]
    return [k for k, fits in enumerate(map(all, zip(after, before, strict=True))) if fits]


def _put(steps: Steps, added: Pass, k: int) -> Steps:
    """The steps with a pass at a place; or with what a composite pass stands for, from that place on."""
    return _merged(steps, added.expand(), k) if added.kind is Kind.COMPOSITE else (*steps[:k], added, *steps[k:])


def _merged(steps: Steps, added: Steps, start: int) -> Steps:
    """The steps with others among them, in their order: each in the place of one that is there for the same, else at the first
    place of its kind from `start` on; at the last one where it maps, as what is on blocks already can be mapped further.
    """
    merged, at = list(steps), 0
    for k, step in enumerate(added):
        old = [j for j, other in enumerate(merged) if not any(other is new for new in added[:k])]
        like = [j for j in old if merged[j].name == step.name or _alike(merged[j], step)]
        if like:
            at = like[0]
            merged[at] = step
        else:
            places = [j for j in _places(tuple(merged), step.kind) if j >= max(at, start)] or [at]
            at = places[-1 if step.kind is Kind.MAPPING else 0]
            merged.insert(at, step)
        at += 1
    return tuple(merged)


def _alike(step: Pass, other: Pass | type[Pass]) -> bool:
    """Whether both are there for the same: a format, or a form of the nest."""
    return step.kind is other.kind and (step.kind is Kind.REPRESENTATION or bool(set(step.provides) & set(other.provides)))


def _repeats(steps: Sequence[Pass]) -> bool:
    """Whether a pass works on the same nest twice."""
    names: set[str] = set()
    waiting: list[set[str]] = []  # names of the passes that have worked on the parts that come later
    for step in steps:
        if step.starts_part:
            names = waiting.pop() if waiting else names
        elif step.name in names:
            return True
        else:
            names.add(step.name)
            waiting += [set(names)] if Form.PARTS in step.provides else []
    return False


def _choices(field: dataclasses.Field[Any]) -> tuple[Any, ...]:
    """The domain of an option; empty where it is not finite."""
    declared = field.metadata.get("choices")
    if declared is not None:
        return tuple(declared)
    return (False, True) if getattr(field.type, "__name__", field.type) == "bool" else ()


def _rises(before: Pass, after: Pass, option: str) -> bool:
    """Whether a number among the options is larger after than before."""
    values = before.options()[option], after.options()[option]
    return _is_ordered(values) and bool(values[0] < values[1])


def _is_ordered(choices: Iterable[Any]) -> bool:
    return all(isinstance(c, (int, float)) and not isinstance(c, bool) for c in choices)


def _ordered(choices: Sequence[Any], value: Any) -> list[Any]:
    """The choices, those near to `value` first; the larger first of two that are as near."""
    if not _is_ordered(choices) or not choices:
        return list(choices)
    ranks = {c: rank for rank, c in enumerate(sorted({*choices, value}))}
    return sorted(choices, key=lambda c: (abs(ranks[c] - ranks[value]), -ranks[c]))


def _near(choices: Sequence[Any], value: Any) -> list[Any]:
    """The choices next to `value`: the one above and the one below; all others where they have no order."""
    if not _is_ordered(choices):
        return [c for c in choices if c != value]
    above, below = [c for c in choices if c > value], [c for c in choices if c < value]
    return [*([min(above)] if above else []), *([max(below)] if below else [])]


def _variants(default: Pass) -> Steps:
    """`default`, then each option at each other choice, all options in turn."""
    rows = [
        [dataclasses.replace(default, **{field.name: c}) for c in _ordered(_choices(field), getattr(default, field.name))]
        for field in dataclasses.fields(default)
    ]
    in_turn = [step for row in zip_longest(*rows) for step in row if step is not None]
    return tuple(dict.fromkeys([default, *in_turn]))


def _one_option_away(step: Pass, declared: Steps) -> Iterator[tuple[str, Pass]]:
    mine = step.options()
    for other in declared:
        differs = [key for key, value in other.options().items() if mine[key] != value]
        if len(differs) == 1:
            yield differs[0], other
