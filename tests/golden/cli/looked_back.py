"""What the commands that look back show of a story with everything in it."""

from collections.abc import Callable, Iterator

from rich.text import Text

from controlplane.cli.bisecting import found_lines, pointed
from controlplane.cli.differences import difference_lines
from controlplane.cli.explanations import explanation_lines, model_lines
from controlplane.cli.wrapping import wrapped
from events import Role, Status
from projections import (
    ExpressionError,
    compare_fleets,
    explain,
    explain_model,
    find_first,
    parse_expression,
    replay,
)
from tests.golden.stories import STORIES
from tests.support.fleet_builder import (
    C1,
    C2,
    Story,
    address_of,
    claimed,
    deregistered,
    draining,
    expired,
    given,
    held,
    poison,
    ready,
    registered,
    released,
    resumed,
    silent_for,
    weighted,
)

DECODE = {"role": Role.DECODE, "needs": [["prefill"]]}
PREFILL = {"role": Role.PREFILL}
NIGHT = 12 * 3600


def a_bad_night() -> Story:
    """Everything that can keep gpu7 from being routable, one after another."""
    return given(
        weighted(0.5, model="*", reason="canary"),
        registered("p1", **PREFILL),
        claimed("gpu7", 20000, 8),
        registered("gpu1", card=C1, **DECODE),
        draining("p1"),
        silent_for(s=NIGHT),
        held("gpu7", reason="noisy neighbour"),
        registered("gpu7", card=C2, status=Status.STARTING, **DECODE),
        ready("gpu7", reason="warm"),
        ready("gpu7", life=9),
        registered("p2", **PREFILL),
        deregistered("gpu1", reason="scaled down"),
        resumed("gpu7"),
        resumed("gpu7"),
        weighted(0, reason="cordon"),
        silent_for(s=NIGHT),
        weighted(1),
        expired("p2"),
        poison("log.worker.prod.gpu7", b"{}"),
        registered("gpu8", card=C1, address=address_of("gpu7"), **DECODE),
        registered("gpu7", card=C1, **DECODE),
        released(20000, 3),
    )


def long_names() -> Story:
    """Names as clusters give them, and worse."""
    pod, ns = "vllm-decode-7f9c8d6b5-{}", {"namespace": "team-a-production-europe-v2"}
    model = {"model": "meta-llama/Llama-3.1-70B-Instruct"}
    return given(
        registered(pod.format("x2x4z"), card=C1, **ns, **model),
        registered(pod.format("aaaaa"), card=C2, **ns, **model),
        held(pod.format("aaaaa"), **ns, reason="x" * 100),
        registered("größe-日本語-\x1b[31m", model="模型"),
        draining("größe-日本語-\x1b[31m", reason="日本語" * 15),
        expired(pod.format("x2x4z"), **ns),
    )


def _differing(story: Story, first: int, last: int, width: int) -> Iterator[Text]:
    one, two = replay(story, until=first), replay(story, until=last)
    found = compare_fleets(one, two, story)
    return difference_lines(found, (one.digest, two.digest), width)


def _bisected(story: Story, text: str, width: int) -> list[Text]:
    expression = parse_expression(text)
    found = find_first(story, expression)
    assert found is not None
    return found_lines(found, expression, width)


def _pointed(width: int, *texts: str) -> Iterator[Text]:
    for text in texts:
        try:
            parse_expression(text)
        except ExpressionError as error:
            yield from map(Text, pointed(error))
            yield from wrapped(str(error), width)


def looked_back(width: int) -> dict[str, Callable[[], list[Text]]]:
    """The screens by their names."""
    night, long = a_bad_night(), long_names()
    pod = "team-a-production-europe-v2/vllm-decode-7f9c8d6b5-aaaaa"
    odd = "prod/größe-日本語-\x1b[31m"
    return {
        "explain": lambda: list(explanation_lines(explain(night, "prod/gpu7"), width)),
        "explain_then": lambda: list(
            explanation_lines(explain(night, "prod/gpu7", 15), width)
        ),
        "explain_gone": lambda: list(
            explanation_lines(explain(night, "prod/p2"), width)
        ),
        "explain_nobody": lambda: list(
            explanation_lines(explain(night, "prod/gpu9"), width)
        ),
        "explain_long_names": lambda: [
            *explanation_lines(explain(long, pod), width),
            *explanation_lines(explain(long, odd), width),
        ],
        "explain_narrow": lambda: list(
            explanation_lines(explain(night, "prod/gpu7", 15), 60)
        ),
        "explain_model": lambda: list(
            model_lines(explain_model(night, "llama"), width)
        ),
        "explain_model_then": lambda: list(
            model_lines(explain_model(night, "llama", 11), width)
        ),
        "explain_model_namespaces": lambda: list(
            model_lines(explain_model(STORIES["rolling_update"](), "llama"), width)
        ),
        "explain_model_nobody": lambda: list(
            model_lines(explain_model(night, "never"), width)
        ),
        "diff": lambda: list(_differing(STORIES["rolling_update"](), 8, 26, width)),
        "diff_fields": lambda: list(_differing(night, 15, 30, width)),
        "diff_back": lambda: list(_differing(long, 6, 2, width)),
        "diff_none": lambda: list(_differing(night, 3, 4, width)),
        "bisect": lambda: _bisected(
            night, 'count(routable, model="llama", role="decode") < 1', width
        ),
        "bisect_wrong": lambda: list(
            _pointed(
                width,
                'modle("llama").serving == False',
                'worker("prod/gpu7").status == "redy"',
                'known("日本語") and ' * 5 + 'worker("gpu7").routable',
            )
        ),
    }
