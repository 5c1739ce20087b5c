"""What operators' commands and the gates say, in every case."""

from rich.text import Text

from controlplane.cli.decision_lines import (
    Decided,
    drain_lines,
    forget_notes,
    known_notes,
    ready_lines,
    resume_notes,
    weight_notes,
    worker_notes,
)
from controlplane.gate import Deployment, DrainResult, ReadyResult, Unseen
from tests.support.fleet_builder import (
    MODEL,
    NAMESPACE,
    deregistered,
    drained,
    fleet_after,
    given,
    held,
    registered,
    starting,
    weighted,
)

V2 = {"namespace": "prod-v2"}
BUSY = fleet_after(
    registered("w1"),
    registered("w2", **V2),
    weighted(0.25, **V2),
    starting("w3"),
    held("w3"),
)
IDLE = fleet_after(starting("w1"))
LEFT = fleet_after(registered("w1"), deregistered("w1"))
DRAINED = fleet_after(registered("w1"), drained("w1"), weighted(0))
HOLD, DRAIN = (
    next(iter(given(held("w1", drain=drain)))).event for drain in (False, True)
)
LEADERLESS = Unseen.NO_PROJECTOR
W1, W3, NONE = (NAMESPACE, "w1"), (NAMESPACE, "w3"), (NAMESPACE, "none")


def _decided(said: str, notes: object) -> list[Text]:
    decided = Decided(
        kind="hold",
        about={},
        said=said,
        revision=12,
        by="alice@bastion",
        reason="",
        notes=tuple(notes),
    )
    return decided.lines()


def decisions() -> list[Text]:
    """A decision of each kind, with each thing that may have to be said of it."""
    waits = "the hold waits for it"
    cases = [
        ("held prod/w1", worker_notes(BUSY, *W1, waits)),
        ("held prod/w1", worker_notes(LEADERLESS, *W1, waits)),
        ("held prod/none", worker_notes(BUSY, *NONE, waits)),
        ("held prod/\x1b[31mw", ()),
        ("resumed prod/w1", resume_notes(BUSY, *W1, HOLD)),
        ("resumed prod/w1", resume_notes(LEADERLESS, *W1, HOLD)),
        ("resumed prod/w1", resume_notes(Unseen.BEHIND, *W1, HOLD)),
        ("resumed prod/w3", resume_notes(BUSY, *W3, HOLD)),
        ("resumed prod/w1", resume_notes(DRAINED, *W1, DRAIN)),
        ("resumed prod/w1", resume_notes(DRAINED, *W1, HOLD)),
        ("resumed prod/none", resume_notes(BUSY, *NONE, None)),
        ("weight of prod-v2 for llama is 0.25", weight_notes(BUSY, "prod-v2", MODEL)),
        ("weight of prod for llama is 1", weight_notes(IDLE, NAMESPACE, MODEL)),
        ("weight of prod for lama is 1", weight_notes(BUSY, NAMESPACE, "lama")),
        ("weight of prod for * is 0", weight_notes(BUSY, NAMESPACE, "*")),
        ("weight of prod-v3 for * is 0", weight_notes(BUSY, "prod-v3", "*")),
        ("weight of prod for llama is 1", weight_notes(LEADERLESS, NAMESPACE, MODEL)),
        ("llama is busy from kv usage 0.9", known_notes(LEFT, MODEL)),
        ("lama is busy from kv usage 0.9", known_notes(LEFT, "lama")),
        ("llama has no limits", known_notes(LEADERLESS, MODEL)),
        ("forgot llama", forget_notes(LEFT, MODEL)),
        ("forgot lama", forget_notes(LEFT, "lama")),
        ("forgot lama", forget_notes(LEADERLESS, "lama")),
    ]
    return [line for said, notes in cases for line in _decided(said, notes)]


def gates() -> list[Text]:
    """Every outcome of waiting for a deployment, and for a worker to drain."""
    deployment = Deployment(namespace="prod-v2", model=MODEL)
    reasons = {"needs_unmet": 2, "starting": 1}
    shut = ReadyResult(reached=False, missing=("router-a", "router-b"))
    some = ReadyResult(reached=False, missing=("router-b",), ready=4)
    ready = [
        (ReadyResult(reached=True, ready=4), 2),
        (some, 1),
        (ReadyResult(reached=False, ready=4), 1),
        (ReadyResult(reached=False, ready=4), 0),
        (
            ReadyResult(reached=False, missing=shut.missing, ready=1, blockers=reasons),
            2,
        ),
        (shut, 2),
    ]
    states = ["drained", "gone", "draining", "unknown", "away", "never_seen"]
    return [
        line
        for result, live in ready
        for line in ready_lines(result, deployment, 4, 30.0, live)
    ] + [
        line
        for state in states
        for line in drain_lines(
            DrainResult(safe_to_delete=state in ("drained", "gone"), state=state),
            "prod/w1",
            0.5,
        )
    ]
