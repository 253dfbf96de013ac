"""`Policy`: rounds of proposing, checking and measuring, with a language model as analyst, planner and critic.

The offline search comes first, so there is a best plan before the model is asked anything; the model can only add to it.
Every answer is read as data (`reading`), held to the legal plans of the task and to what the GPU can run, and what is refused
goes back as text.  A policy ends when its rounds or a budget are spent, or when the model does not answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sparseditto.agent.cost import check_plan
from sparseditto.agent.llm import prompts, reading, schema
from sparseditto.agent.llm.bench import Bench, fastest, told
from sparseditto.agent.llm.budget import Ledger, Limits
from sparseditto.agent.llm.fencing import clean
from sparseditto.agent.llm.model import Abilities, Allowance, Failure, Message, Model, Prompt, Reply, ToolCall
from sparseditto.agent.llm.outcome import Outcome, Proposed, Verdict, line, verdict
from sparseditto.agent.llm.prompts import ANALYST, CRITIC, PLANNER, File
from sparseditto.agent.llm.tools import Tools
from sparseditto.agent.llm.transcript import SCHEMA, Transcript
from sparseditto.agent.memory.trial import Trial
from sparseditto.agent.tuner import FIRST_ROUNDS, NEAR, Answer, Budget, Request, search
from sparseditto.dialects.errors import NotApplicable, PlanError
from sparseditto.passes.composite import Composite
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import find

ATTEMPTS = 3  # at a legal plan in a round
TURNS = 6  # in which a model may call tools before it has to answer
CALLS = 8  # of tools in a turn that are answered
MEASURED = 2  # plans that the tool measures in a round
FAILURES = 3  # calls in a row without an answer, after which a session ends
CALL_S = 180.0  # of one call
ANSWER_TOKENS = 2048
_SLOW = 4.0  # times the best, from which a plan is not measured well
_PAUSE_S = 1.0  # after the first failure, twice as long after each further one
_LONGEST_PAUSE_S = 30.0


class _Stop(Exception):
    """The session ends: the first argument is one word, the second says more."""


class Policy:
    """One session; called with a bench it does what it can there, and `outcome` says what that was."""

    def __init__(
        self,
        model: Model,
        limits: Limits | None = None,
        transcript: Transcript | None = None,
        files: Sequence[File] = (),
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`files` are told to the model as data; `tell` is given a line about each thing that happens."""
        self.model, self.limits = model, limits or Limits()
        self.transcript = transcript or Transcript()
        self.outcome: Outcome | None = None
        self.files, self._tell = tuple(files), tell

    def __call__(self, bench: Bench) -> None:
        session = _Session(self, bench)
        try:
            stopped, why = session.run()
        except KeyboardInterrupt:
            self.outcome = session.end("interrupted", "")
            raise
        self.outcome = session.end(stopped, why)

    def verdict(self, best: Trial | None, trials: Sequence[Trial]) -> Verdict:
        """Whose the best plan of a tuning with these trials is; written to the transcript as its last event."""
        found = verdict(self.outcome, best, trials)
        told = {} if self.outcome is None else self.outcome.to_json()
        told.pop("proposals", None)
        digest, text, us = ("", "", None) if best is None else (best.plan.digest(), best.plan.text(), best.us)
        self.transcript.write("end", **told, who=found.who, verdict=found.why, digest=digest, plan=text, us=us)
        return found

    def tell(self, text: str) -> None:
        self._tell(clean(self.transcript.mask.text(text), 1000))


class _Session:
    """A policy at work on a bench."""

    def __init__(self, policy: Policy, bench: Bench) -> None:
        self.policy, self.bench, self.model = policy, bench, policy.model
        self.ledger = Ledger(policy.limits)
        self.log = policy.transcript
        self.abilities = Abilities()
        self.context = prompts.context(bench, policy.files)
        self.proposals: list[Proposed] = []
        self.composites: list[str] = []  # names of those that were kept
        self.number = 0
        self.by_tool = 0
        self.failures = 0
        self.analysis: reading.Analysis | None = None
        self.planner = next(iter(fastest(bench.trials())), None)
        self.tools = Tools(bench, self._measure_for_tool)

    def run(self) -> tuple[str, str]:
        """Why it stopped: a word, and more."""
        try:
            self._begin()
            self._analyse()
            for number in range(1, self.policy.limits.rounds + 1):
                self.number = number
                self._round()
            stopped, why = "rounds", ""
        except _Stop as stop:
            stopped, why = str(stop.args[0]), str(stop.args[1])
        self._compare()
        return stopped, why

    def end(self, stopped: str, why: str) -> Outcome:
        if why:
            self.policy.tell(f"the session ends: {why}")
        return Outcome(
            model=self.model.name,
            stopped=stopped,
            why=clean(self.log.mask.text(why), 1000),
            rounds=self.number,
            calls=self.ledger.calls,
            tokens=self.ledger.tokens,
            cost=self.ledger.cost,
            seconds=self.ledger.seconds,
            planner="" if self.planner is None else self.planner.plan.digest(),
            planner_us=None if self.planner is None else self._trial(self.planner.plan).us,
            proposals=tuple(self.proposals),
            composites=tuple(self.composites),
        )

    # --- The beginning --------------------------------------------------------------------------------

    def _begin(self) -> None:
        found = self.model.abilities(self._seconds())
        self.abilities = found if isinstance(found, Abilities) else Abilities()
        self.log.write(
            "session",
            schema=SCHEMA,
            model=self.model.name,
            abilities=asdict(self.abilities),
            limits=self.policy.limits.to_json(),
            context=self.context,
        )
        best = self.planner
        numbers = {} if best is None else {"digest": best.plan.digest(), "plan": best.plan.text(), "us": best.us}
        self.log.write("planner", tried=len(self.bench.trials()), **numbers)
        if isinstance(found, Failure):
            raise _Stop("model", found.why)
        if self.policy.limits.cost is not None and not self.abilities.priced:
            raise _Stop("cost", f"no price of {self.model.name} is known, so a budget in dollars cannot be kept; use tokens")

    def _analyse(self) -> None:
        """Have the analyst say what limits the task; a session goes on without what cannot be read."""
        messages = self._messages(ANALYST)
        text = self._ask(ANALYST, messages, schema.analysis(), tools=False)
        try:
            self.analysis = reading.analysis(text)
        except PlanError as e:
            self.policy.tell(f"the analysis cannot be read: {e}")
        else:
            self.policy.tell(f"analyst: limited by {', '.join(b.value for b in self.analysis.limits) or 'nothing'}")

    def _messages(self, role: str) -> list[Message]:
        proposals = [line(p) for p in self.proposals[-2 * ATTEMPTS :]]
        added = [f"Now a pass: {schema.entry(find(name))}" for name in self.composites]
        question = prompts.question(role, self.context, self.bench, self.analysis, [*proposals, *added])
        return [{"role": "system", "content": prompts.system()}, {"role": "user", "content": question}]

    # --- A round --------------------------------------------------------------------------------------

    def _round(self) -> None:
        """One legal plan, measured; or a refusal that the model has had several attempts to mend."""
        self.by_tool = 0
        role = CRITIC if any(p.us is not None for p in self.proposals) else PLANNER
        messages = self._messages(role)
        for _ in range(ATTEMPTS):
            text = self._ask(role, messages, schema.proposal(), tools=True)
            try:
                found = reading.proposal(text, self.bench.space, self._known())
                self._admit(found.plan)
            except (PlanError, NotApplicable) as e:
                self._note(Proposed(self.number, role, None, e.code, clean(str(e), 1000)))
                refusal = f"Refused: {clean(str(e), 1000)}\nAnswer again, with another one."
                messages += [{"role": "assistant", "content": text or "(nothing)"}, {"role": "user", "content": refusal}]
                continue
            trial = self._measure(found.plan, role, found.reason)
            if found.composite is not None and trial.us is not None:
                self._keep(found.composite)
            return

    def _keep(self, composite: Composite) -> None:
        """Have a composite pass whose plan works offered from now on."""
        try:
            self.bench.keep(composite)
        except PlanError as e:
            why = clean(str(e), 1000)
        else:
            why = ""
            self.composites.append(composite.name)
        self.log.write("composite", round=self.number, definition=composite.to_json(), kept=not why, why=why)
        self.policy.tell(f"the composite pass '{composite.name}' " + (f"is not kept: {why}" if why else "is kept"))

    def _known(self) -> dict[str, Plan]:
        """Plans that an edit may start from."""
        trials = self.bench.trials()
        known = {t.plan.digest(): t.plan for t in trials}
        ranking = fastest(trials)
        return {**known, reading.BEST: ranking[0].plan} if ranking else known

    def _admit(self, plan: Plan) -> None:
        """Raises `NotApplicable` for a plan that was tried before, or that the GPU cannot run."""
        tried = next((t for t in self.bench.trials() if t.plan.digest() == plan.digest()), None)
        if tried is not None:
            raise NotApplicable(f"the plan {plan.digest()} was tried before ({told(tried, self.bench)})")
        context = self.bench.space.context
        if context.features is not None:
            check_plan(plan, context.task, context.features, context.gpu)

    def _measure(self, plan: Plan, role: str, reason: str) -> Trial:
        self._check()
        best = next(iter(fastest(self.bench.trials())), None)
        cutoff = None if best is None or best.us is None else _SLOW * best.us
        answers = list(self._evaluate([Request(plan, FIRST_ROUNDS, cutoff)]))
        if not answers:
            self._note(
                Proposed(self.number, role, plan, "timeout", "the seconds were spent before it was measured", None, reason)
            )
            raise _Stop("seconds", "")
        trial = self._trial(plan)
        self._note(Proposed(self.number, role, plan, trial.outcome, told(trial, self.bench), trial.us, reason))
        return trial

    def _evaluate(self, requests: Sequence[Request]) -> Iterable[Answer]:
        return self.bench.evaluate(requests, self.ledger.left_s())

    def _measure_for_tool(self, plan: Plan) -> str:
        if self.by_tool == MEASURED:
            raise NotApplicable(f"{MEASURED} plans were measured in this round; answer now")
        self._admit(plan)
        self.by_tool += 1
        return told(self._measure(plan, "tool", ""), self.bench)

    def _trial(self, plan: Plan) -> Trial:
        return next(t for t in self.bench.trials() if t.plan.digest() == plan.digest())

    def _note(self, proposed: Proposed) -> None:
        self.proposals.append(proposed)
        digest, text = ("", None) if proposed.plan is None else (proposed.plan.digest(), proposed.plan.text())
        values = {key: getattr(proposed, key) for key in ("round", "role", "outcome", "why", "us", "reason")}
        self.log.write("proposal", **values, digest=digest, plan=text)
        self.policy.tell(f"round {proposed.round} of {self.policy.limits.rounds}: {line(proposed)}")

    # --- Asking ---------------------------------------------------------------------------------------

    def _ask(self, role: str, messages: list[Message], answer: Mapping[str, Any], tools: bool) -> str:
        """The text of an answer, after whatever tools the model has called."""
        offered = self.tools.offered() if tools and self.abilities.tools else ()
        shape = answer if self.abilities.schema else None
        for turn in range(TURNS + 1):
            reply = self._call(Prompt(role, tuple(messages), shape, offered if turn < TURNS else ()))
            if not reply.calls or turn == TURNS:
                return reply.text
            messages.append(_with_calls(reply))
            for place, call in enumerate(reply.calls):
                said = self._use(call) if place < CALLS else f"refused: {CALLS} calls at a time are answered"
                messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
        raise AssertionError("the last turn returns")

    def _use(self, call: ToolCall) -> str:
        self._check()
        said = self.tools.answer(call)
        self.log.write("tool", round=self.number, name=call.name, arguments=call.arguments, answer=said)
        return said

    def _call(self, prompt: Prompt) -> Reply:
        """An answer, after as many attempts as a session has patience for.  Raises `_Stop`."""
        while True:
            self._check()
            allowance = Allowance(self._seconds(), ANSWER_TOKENS, self.ledger.left_tokens(), self.ledger.left_cost())
            start = self.ledger.seconds
            reply = self.model.complete(prompt, allowance)
            self.ledger.charge(reply.tokens, reply.cost)
            self._log_call(prompt, reply, self.ledger.seconds - start)
            if isinstance(reply, Reply):
                self.failures = 0
                return reply
            self.failures += 1
            self.policy.tell(f"{prompt.role}: no answer: {reply.why}")
            if reply.lasting or self.failures == FAILURES:
                raise _Stop("model", reply.why)
            pause = reply.retry_after_s if reply.retry_after_s is not None else _PAUSE_S * 2 ** (self.failures - 1)
            self.model.wait(max(0.0, min(pause, _LONGEST_PAUSE_S, self.ledger.left_s())))

    def _log_call(self, prompt: Prompt, reply: Reply | Failure, seconds: float) -> None:
        kept = {"reply": reply.to_json()} if isinstance(reply, Reply) else {"failure": reply.to_json()}
        tools = [tool["function"]["name"] for tool in prompt.tools]
        messages = [_shortened(message, self.context) for message in prompt.messages]
        values = {"role": prompt.role, "messages": messages, "tools": tools, "seconds": round(seconds, 3)}
        self.log.write("call", round=self.number, **values, **kept)

    def _seconds(self) -> float:
        return min(CALL_S, self.ledger.left_s())

    def _check(self) -> None:
        """Raises `_Stop` where a budget is spent."""
        if (name := self.ledger.exhausted()) is not None:
            raise _Stop(name, "")

    # --- The end --------------------------------------------------------------------------------------

    def _compare(self) -> None:
        """Measure the model's best plan and the planner's again, in turn, where they are near each other."""
        mine = {p.plan.digest() for p in self.proposals if p.plan is not None and p.us is not None}
        ours = next((t for t in fastest(self.bench.trials()) if t.plan.digest() in mine), None)
        theirs = None if self.planner is None else self._trial(self.planner.plan)
        left = self.ledger.left_s()
        if ours is None or theirs is None or ours.us is None or theirs.us is None or ours.us > NEAR * theirs.us or left <= 0:
            return
        budget = Budget(candidates=2, seconds=None if left == math.inf else left)
        search([ours.plan, theirs.plan], lambda plan: (), self._evaluate, budget, seed_share=1.0)


def _with_calls(reply: Reply) -> Message:
    calls = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in reply.calls]
    return {"role": "assistant", "content": reply.text or None, "tool_calls": calls}


def _shortened(message: Message, context: str) -> Message:
    """The message as a transcript has it, which holds the context of the session once."""
    return {**message, "content": (message["content"] or "").replace(context, "(the session's context)")}
