"""Answers of a model as plans: parsed as JSON, every name and value checked, nothing executed.

Each refusal is a `PlanError` whose text goes back to the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparseditto.agent.llm.fencing import clean
from sparseditto.agent.llm.schema import NEW
from sparseditto.agent.space import Space
from sparseditto.dialects.errors import PlanError, did_you_mean
from sparseditto.passes.base import Bottleneck
from sparseditto.passes.composite import Composite, read, registered_meanwhile
from sparseditto.passes.plan import Plan

BEST = "best"
"""As the base of an edit: the fastest plan so far."""
LONGEST = 1 << 16  # characters of an answer
MOST_STEPS = 48
_SHOWN = 80  # characters of a wrong word that are repeated
_THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL)  # what some servers leave before the answer of a model that reasons
_PASS = re.compile(r"[a-z][a-z0-9-]{0,63}")
_WORD = re.compile(r"[A-Za-z0-9_.+-]{1,64}")


@dataclass(frozen=True)
class Analysis:
    """What limits the problem, in the words of the passes, the most important first; why; and what to try."""

    limits: tuple[Bottleneck, ...]
    why: str
    ideas: tuple[str, ...]


@dataclass(frozen=True)
class Proposal:
    """A legal plan, why it should be tried, and the composite pass that came with it."""

    plan: Plan
    reason: str
    composite: Composite | None = None


def analysis(text: str) -> Analysis:
    """Raises `PlanError` where the answer is not what `schema.analysis` asks for."""
    data = _object(decoded(text), ("limits", "why", "ideas"), "the analysis")
    known = {b.value: b for b in Bottleneck}
    words = _texts(data.get("limits", []), "limits")
    for word in words:
        if word not in known:
            raise PlanError(
                f"'{clean(word, _SHOWN)}' is no bottleneck{did_you_mean(word, known)}; there are {', '.join(known)}"
            )
    ideas = tuple(clean(idea, 400) for idea in _texts(data.get("ideas", []), "ideas")[:8])
    return Analysis(tuple(known[word] for word in dict.fromkeys(words)), clean(str(data.get("why", "")), 1500), ideas)


def proposal(text: str, space: Space, known: Mapping[str, Plan]) -> Proposal:
    """The plan that an answer proposes.  `known` are the plans that an edit may start from, by digest or as `BEST`.

    Raises `PlanError` where the answer is not what `schema.proposal` asks for, or its plan is not legal for the task.
    """
    data = _object(decoded(text), ("reason", "composite", "plan"), "the answer")
    steps, reason = _steps(data.get("plan"), known), clean(str(data.get("reason") or ""), 1000)
    if data.get("composite") is None:
        if NEW in steps:
            raise PlanError(f"a step is '{NEW}', but 'composite' does not say what that stands for")
        return Proposal(_legal(steps, space), reason)
    composite = _composite(data["composite"])
    steps = [composite.name if text == NEW else text for text in steps]
    if composite.name not in {text.split("{")[0] for text in steps}:
        raise PlanError(f"no step of the plan is '{NEW}', so it does not show what '{composite.name}' is worth")
    with registered_meanwhile(composite):
        return Proposal(_legal(steps, space), reason, composite)


def plan(data: Any, space: Space) -> Plan:
    """A list of steps as a plan that is legal for the task.  Raises `PlanError`."""
    return _legal([step(item) for item in _list(data, "plan")], space)


def decoded(text: str) -> dict[str, Any]:
    """The JSON object that an answer is, whatever stands before and behind it.  Raises `PlanError` where there is none."""
    if len(text) > LONGEST:
        raise PlanError(f"the answer has {len(text)} characters, and may have {LONGEST}")
    answer = _THOUGHTS.sub("", text)
    start = answer.find("{")
    if start < 0:
        raise PlanError("the answer holds no JSON object; answer with one, and nothing else")
    try:
        found, _ = json.JSONDecoder(parse_constant=_no_constant).raw_decode(answer, start)
    except RecursionError as e:
        raise PlanError("the answer's JSON is nested too deeply") from e
    except ValueError as e:
        raise PlanError(f"the answer is no JSON: {clean(str(e), 200)}; answer with one object, and nothing else") from e
    return dict(found)


def step(data: Any) -> str:
    """One step, `{"pass": NAME, "options": {…}}`, as a plan's text writes it.  Raises `PlanError`."""
    data = _object(data, ("pass", "options"), "a step")
    name, options = data.get("pass"), data.get("options") or {}
    if not isinstance(name, str) or not _PASS.fullmatch(name):
        raise PlanError(f"'{clean(str(name), _SHOWN)}' is no name of a pass")
    if not isinstance(options, Mapping):
        raise PlanError("its options are no object", where=name)
    spelled = " ".join(f"{_option(key, name)}={_value(value, name)}" for key, value in options.items())
    return f"{name}{{{spelled}}}" if spelled else name


def _steps(data: Any, known: Mapping[str, Plan]) -> list[str]:
    """The steps of an answer's plan as text; what a composite pass stands for is not put in yet."""
    if not isinstance(data, Mapping):
        return [step(item) for item in _list(data, "plan")]
    edit = _object(data, ("base", "changes"), "the edit")
    base = str(edit.get("base", BEST))
    if base not in known:
        raise PlanError(f"the edit's base '{clean(base, _SHOWN)}' is none of the plans in the history; say {BEST}, or a digest")
    return edited([str(s) for s in known[base].steps], edit.get("changes"))


def edited(steps: Sequence[str], changes: Any) -> list[str]:
    """The steps with changes made, whose positions are those before any of them.  Raises `PlanError`."""
    inserted: dict[int, list[str]] = {}
    replaced: dict[int, list[str]] = {}
    for change in _list(changes, "changes"):
        change = _object(change, ("at", "do", "step"), "a change")
        at, do = change.get("at"), change.get("do")
        if do not in ("insert", "replace", "remove"):
            raise PlanError(f"'{clean(str(do), _SHOWN)}' is no change; say insert, replace or remove")
        last = len(steps) if do == "insert" else len(steps) - 1
        if not isinstance(at, int) or isinstance(at, bool) or not 0 <= at <= last:
            raise PlanError(f"{do} at {clean(str(at), _SHOWN)}: the plan has steps 0 to {len(steps) - 1}")
        if do == "insert":
            inserted.setdefault(at, []).append(step(change.get("step")))
        elif at in replaced:
            raise PlanError(f"step {at} is changed twice")
        else:
            replaced[at] = [] if do == "remove" else [step(change.get("step"))]
    found: list[str] = []
    for at in range(len(steps) + 1):
        found += inserted.get(at, [])
        found += replaced.get(at, list(steps[at : at + 1]))
    return found


def _legal(steps: Sequence[str], space: Space) -> Plan:
    if not 0 < len(steps) <= MOST_STEPS:
        raise PlanError(f"a plan of {len(steps)} steps; it may have 1 to {MOST_STEPS}")
    return space.checked(Plan.parse(",".join(steps)).steps)


def _composite(data: Any) -> Composite:
    """A composite pass, whose parameters may stand in a list (as `schema` asks for) or under their names."""
    parameters = data.get("parameters") if isinstance(data, Mapping) else None
    if not isinstance(parameters, list):
        return read(data)
    named: dict[str, Any] = {}
    for parameter in parameters:
        name = str(_object(parameter, ("name", "default", "choices", "help"), "a parameter").get("name"))
        if name in named:
            raise PlanError(f"two parameters are called '{clean(name, _SHOWN)}'")
        named[name] = {key: value for key, value in parameter.items() if key != "name"}
    return read({**data, "parameters": named})


def _option(key: str, name: str) -> str:
    if not _PASS.fullmatch(key):
        raise PlanError(f"'{clean(key, _SHOWN)}' is no name of an option", where=name)
    return key


def _value(value: Any, name: str) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if not isinstance(value, (bool, int, float, str)) or not _WORD.fullmatch(text):
        raise PlanError(f"'{clean(text, _SHOWN)}' is no value of an option", where=name)
    return text


def _object(data: Any, keys: Sequence[str], what: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise PlanError(f"{what} is no object with {', '.join(keys)}")
    unknown = next((key for key in data if key not in keys), None)
    if unknown is not None:
        raise PlanError(f"{what} has '{clean(unknown, _SHOWN)}'{did_you_mean(unknown, keys)}; it may have {', '.join(keys)}")
    return data


def _list(data: Any, what: str) -> list[Any]:
    if not isinstance(data, list) or not 0 < len(data) <= MOST_STEPS:
        raise PlanError(f"'{what}' is no list of 1 to {MOST_STEPS}")
    return data


def _texts(data: Any, what: str) -> list[str]:
    if not isinstance(data, list) or not all(isinstance(word, str) for word in data):
        raise PlanError(f"'{what}' is no list of text")
    return list(data)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
