"""What a router had at a moment, as lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec
from rich.text import Text

from controlplane.playback import Sighting, Testimony, WhyPicked
from events import Record, Revision
from projections import Explanation

from .differences import difference_lines
from .explanations import explanation_lines
from .lens import Lens
from .records import record_parts
from .tables import BAD, FAINT, GOOD, ODD, models_table, replay_footer
from .wrapping import wrapped

LABEL: Final = 10
_STATES: Final = {
    "routable": "routable",
    "blocked": "not routable",
    "gone": "gone",
    "never_registered": "never registered",
}


def testimony_lines(found: Testimony, lens: Lens, width: int) -> Iterator[Text]:
    """The router's words, its fleet, and what the log said that it lacked."""
    most = found.sighting.revision_at_most(found.log.revision)
    yield from sighting_lines(found.sighting, width)
    yield from _revisions(found.sighting, most, width)
    yield from _log(found, width)
    if not found.agrees:
        said = (
            f"digest {found.sighting.said.digest} is not that of the log at this "
            "revision: what it had is not what follows; see: controlplane log verify"
        )
        yield from _labelled("! wrong", said, width, BAD)
    yield Text()
    seen = lens.over(found.had.fleet)
    yield from models_table(seen, width)
    yield from replay_footer(found.had, width)
    yield Text()
    yield from wrapped("what the log said beyond that:", width, style="bold")
    digests = (found.had.fleet.digest, found.log.fleet.digest)
    yield from difference_lines(lens.over_difference(found.difference), digests, width)


def sighting_lines(found: Sighting, width: int) -> Iterator[Text]:
    """What the router reported last, how old its picture was, whom it kept away."""
    said = found.said
    yield from wrapped(f"{said.name} at {_time(found.at)}", width, style="bold")
    ago = f"{found.report_age_s:.1f} s before"
    words = f"{_clock(found.said_at)}, {ago}: {found.report.reason} ({said.source})"
    yield from _labelled("reported", words, width)
    if found.next_at is None:
        then = "nothing since"
    elif found.next is not None:
        then = f"{_clock(found.next_at)}: {found.next.reason}"
    yield from _labelled("then", then, width)
    yield from _labelled("was", _condition(found), width, _style(found))
    names = ", ".join(found.ejected)
    yield from _labelled("ejected", names or "nobody", width, ODD if names else "")


def _condition(found: Sighting) -> str:
    stale_for_s, exact = found.stale
    most = "" if exact else "at most "
    stale = f"stale for {most}{stale_for_s:.1f} s"
    if found.stopped:
        return "stopped"
    if found.said.epoch is None:
        return "without any view yet"
    if found.was_cut_off:
        return f"out of contact, {stale}"
    if found.silent:
        return f"silent for {found.report_age_s:.0f} s, {stale}"
    return stale


def _style(found: Sighting) -> str:
    odd = found.stopped or found.silent or found.was_cut_off
    return BAD if odd or found.said.epoch is None else ""


def _revisions(found: Sighting, most: Revision, width: int) -> Iterator[Text]:
    low = found.said.revision
    words = f"revision {low}"
    if most > low:
        words = f"revision {low} for certain, up to {most} perhaps"
    yield from _labelled("had", words, width)


def _log(found: Testimony, width: int) -> Iterator[Text]:
    log = found.log
    when = log.fold_state.recorded_at
    at = "" if when is None else f", of {_clock(when)}"
    ahead = f", {found.lag} ahead" if found.lag else ""
    words = f"was at revision {log.revision}{at}{ahead}"
    yield from _labelled("the log", words, width)


# ---- one worker ----------------------------------------------------------------
def why_picked_lines(why: WhyPicked, width: int) -> Iterator[Text]:
    """The answer; what the router had; what the log said; the records between."""
    said, style = _answer(why)
    yield from wrapped(said, width, style=style)
    yield Text()
    yield from sighting_lines(why.sighting, width)
    yield from _labelled("had", _stood(why.had), width)
    if why.at_most.revision > why.had.revision:
        yield from _labelled("perhaps", _stood(why.at_most), width)
    yield Text()
    yield from wrapped("what the log said then:", width, style="bold")
    unseen = [link for link in why.log.chain if link.revision > why.had.revision]
    said_then = msgspec.structs.replace(why.log, chain=tuple(unseen))
    yield from explanation_lines(said_then, width)
    if why.following is not None:
        yield Text()
        yield from wrapped(_following(why.following), width, style=FAINT)


def _answer(why: WhyPicked) -> tuple[str, str]:
    """In a sentence, why the router could pick the worker, or could not."""
    router, worker = why.sighting.said.name, why.log.name
    match why.picked:
        case "no":
            return f"{router} would not pick {worker} then: {_why_not(why)}", GOOD
        case "maybe":
            turned = max(why.had.since or 0, why.at_most.since or 0)
            said = (
                f"{router} may have picked {worker}: what changed that stands at "
                f"revision {turned}, and it got there at some time between its reports"
            )
            return said, ODD
        case _:
            return f"{router} would pick {worker} then: {_why(why)}", BAD


def _why(why: WhyPicked) -> str:
    found, log = why.sighting, why.log
    if log.state != "routable":
        since = "" if log.since is None else f" since revision {log.since}"
        lost = ", without contact" if found.was_cut_off else ""
        return (
            f"it still had revision {why.had.revision}{lost}, where the worker was "
            f"routable; in the log it was {_STATES[log.state]}{since}"
        )
    silent = why.silent_since
    if silent is not None and why.following is not None:
        later_s = (why.following.recorded_at - found.at).total_seconds()
        return (
            "so would everybody: in the log it was routable, too. Its last beat came "
            f"at {_clock(silent)}, and it expired {later_s:.1f} s after this moment, "
            f"at revision {why.following.revision}"
        )
    return "it was routable, in the log, too"


def _why_not(why: WhyPicked) -> str:
    found = why.sighting
    if found.stopped:
        return "it had stopped"
    if found.said.epoch is None:
        return "it had no view yet"
    if found.has_ejected((why.log.namespace, why.log.worker_id)):
        return "it had ejected it, after a connection failed"
    since = why.had.since
    when = "" if since is None else f" since revision {since}"
    return (
        f"it had it as {_STATES[why.had.state]}{when}; a request that it had sent "
        "before may still have been under way"
    )


def _stood(found: Explanation) -> str:
    reasons = ", ".join(reason.blocker for reason in found.reasons)
    why = f" ({reasons})" if reasons else ""
    since = "" if found.since is None else f" since revision {found.since}"
    return f"revision {found.revision}: {_STATES[found.state]}{why}{since}"


def _following(record: Record) -> str:
    kind, _, what = record_parts(record)
    detail = f" ({what})" if what else ""
    return (
        f"next of it, which nobody knew yet: {kind.plain}{detail} at revision "
        f"{record.revision}, {_time(record.recorded_at)}"
    )


def _labelled(label: str, said: str, width: int, style: str = "") -> Iterator[Text]:
    indent = " " * LABEL
    first, *rest = wrapped(said, width, indent=indent, style=style)
    yield Text(f"{label:<{LABEL}}", style=FAINT).append(
        first.plain[LABEL:], style=style
    )
    yield from rest


def _clock(time: datetime) -> str:
    return f"{time:%T}.{time.microsecond // 100_000}"


def _time(time: datetime) -> str:
    return f"{time:%F} {_clock(time)} UTC"
