"""``log tail``, ``show``, ``stats``, ``verify`` and lenses as commands: no broker.

What is asked for wrongly gets one line and its code.
"""

import asyncio
import json

import pytest

from controlplane.archive import export_log
from controlplane.cli.application import main
from projections import FoldState, fold_all
from tests.golden.stories import STORIES
from tests.support.archived import LogCell
from tests.support.fleet_builder import given, registered

UPDATE = STORIES["rolling_update"]()
POISON = STORIES["poison"]()
LAST = len(UPDATE)
DAY = "2026-01-01"


async def _export(story, path, *, purged=()):
    cell = await LogCell.made("default")
    await cell.tell(story)
    for subject in purged:
        await cell.remove(subject)
    await export_log(cell.log, path)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archives")
    stories = {
        "update": (UPDATE, ()),
        "poison": (POISON, ()),
        "empty": (given(), ()),
        "holes": (UPDATE, ("log.port.10%2E0%2E0%2E1.20002", "log.worker.prod.w2")),
        "headless": (given(*map(registered, "abc")), ("log.worker.prod.a",)),
    }
    for name, (story, purged) in stories.items():
        path = folder / f"{name}.jsonl.zst"
        asyncio.run(_export(story, path, purged=purged))
    return folder


@pytest.fixture
def answer(files, capsys):
    """Run a command over an archive: its code, stdout and stderr."""

    def run(name, *arguments):
        code = main([*arguments, "--from-archive", str(files / f"{name}.jsonl.zst")])
        return code, *capsys.readouterr()

    return run


def documents(out):
    return [json.loads(line) for line in out.splitlines()]


# ---- tail --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "revisions"),
    [
        ((), range(LAST - 19, LAST + 1)),
        (("-n", "3"), range(LAST - 2, LAST + 1)),
        (("-n", "0"), ()),
        (("--since", "1"), range(1, LAST + 1)),
        (("--since", "5", "--until", "7"), (5, 6, 7)),
        (("--since", "5", "-n", "2"), (LAST - 1, LAST)),
        (("--until", "7", "-n", "2"), (6, 7)),
        (
            ("--since", "2026-01-01T00:00:04", "--until", "2026-01-01T00:00:06"),
            (5, 6, 7),
        ),
        (("--type", "worker_expired"), (19,)),
        (("--type", "worker_held", "--type", "worker_resumed.v1"), (18, 22)),
        (("--worker", "prod-v2/w4"), (17, 18, 22, 23)),
        (("--host", "10.0.0.1", "--since", "15"), (15, 16, 20, 21)),
        (("--host", "10.0.0.9"), ()),
        (("--worker", "prod/w2", "--type", "port_released"), (20, 21)),
    ],
)
def test_the_records_that_are_asked_for_are_shown(answer, arguments, revisions):
    code, out, err = answer("update", "log", "tail", *arguments, "-o", "ndjson")
    assert (code, err) == (0, "")
    assert [one["revision"] for one in documents(out)] == [*revisions]
    code, out, _ = answer("update", "log", "tail", *arguments, "-o", "json")
    assert [one["revision"] for one in json.loads(out)] == [*revisions]
    code, out, _ = answer("update", "log", "tail", *arguments)
    assert code == 0
    assert out.startswith("REVISION")
    assert len(out.splitlines()) == 1 + bool(revisions) + len(revisions)


def test_poison_stands_in_its_place_and_is_marked(answer):
    """S43."""
    _, out, _ = answer("poison", "log", "tail", "--type", "poison", "-o", "ndjson")
    found = documents(out)
    assert [one["revision"] for one in found] == [*range(3, 15)]
    assert all(one["event"] is None and one["poison"]["reason"] for one in found)
    _, out, _ = answer("poison", "log", "tail")
    assert out.count("! un") == len(found)


def test_an_empty_log_has_no_records(answer):
    assert answer("empty", "log", "tail", "-o", "json") == (0, "[]\n", "")


def test_a_log_without_its_beginning_is_shown_all_the_same(answer):
    """What cannot be folded can be read."""
    code, out, _ = answer("headless", "log", "tail", "-o", "ndjson")
    assert code == 0
    assert [one["revision"] for one in documents(out)] == [2, 3]
    assert answer("headless", "log", "stats")[0] == 0
    code, _, err = answer("headless", "log", "verify")
    assert code == 65
    assert "revision 2" in err


WRONG = [
    (("tail", "--type", "worker_expird"), 64, "worker_expired"),
    (("tail", "--worker", "w1"), 64, "NAMESPACE/WORKER"),
    (("tail", "--host", ""), 64, "host ''"),
    (("tail", "--since", "soon"), 64, "moment 'soon'"),
    (("tail", "--since", "99"), 75, "ends at revision 26"),
    (("tail", "--until", "99"), 75, "ends at revision 26"),
    (("tail", "--since", "0" * 8 + "-0000-0000-0000-" + "0" * 12), 1, "event id"),
    (("tail", "--lines", "-1"), 64, "--lines"),
    (("tail", "--follow"), 64, "--from-archive is not valid with --follow"),
    (("tail", "--follow", "--until", "3"), 64, "--until is not valid with --follow"),
    (("tail", "--follow", "-o", "json"), 64, "ndjson"),
    (("show", "99"), 75, "ends at revision 26"),
    (("show", "0"), 1, "the log begins at 1"),
    (("show", "soon"), 64, "moment 'soon'"),
    (("show",), 64, "log show --help"),
]


@pytest.mark.parametrize(("arguments", "code", "said"), WRONG)
def test_what_is_asked_for_wrongly_gets_one_line_and_a_code(
    answer, arguments, code, said
):
    found, out, err = answer("update", "log", *arguments)
    assert (found, out) == (code, "")
    assert err.count("\n") == 1
    assert said in err


# ---- show --------------------------------------------------------------------------
def test_one_record_is_shown_whole(answer):
    record = UPDATE[18]
    for point in ("19", record.event.event_id, "2026-01-01T00:00:38Z"):
        code, out, _ = answer("update", "log", "show", point, "-o", "json")
        assert code == 0
        document = json.loads(out)
        assert document["revision"] == 19
        assert document["event"]["silent_for_s"] == record.event.silent_for_s
    assert "silent_for_s    12.0" in answer("update", "log", "show", "19")[1]


def test_a_record_that_was_purged_is_told_from_one_that_is_not_there_yet(answer):
    """S47b."""
    code, out, err = answer("holes", "log", "show", "6")
    assert (code, out) == (1, "")
    assert "revision 6: it was purged" in err


# ---- stats -------------------------------------------------------------------------
def test_the_counts_are_exact_as_json_and_a_table_for_people(answer):
    _, out, _ = answer("poison", "log", "stats", "-o", "json")
    document = json.loads(out)
    assert document["records"] == len(POISON)
    assert document["bytes"] == sum(map(len, POISON.payloads))
    assert document["storage"] is None
    assert document["removed"] == 0
    kinds = {one["type"]: one["records"] for one in document["types"]}
    assert kinds["unknown"] + kinds["undecodable"] == 12
    code, out, _ = answer("poison", "log", "stats")
    assert code == 0
    assert "! undecodable" in out


def test_what_was_purged_is_counted(answer):
    """S47b."""
    _, out, _ = answer("holes", "log", "stats", "-o", "json")
    document = json.loads(out)
    assert (document["last_revision"], document["removed"]) == (LAST, 5)
    assert "5 removed" in answer("holes", "log", "stats")[1]


# ---- verify ------------------------------------------------------------------------
def test_an_archive_is_verified_alone(answer):
    code, out, _ = answer("update", "log", "verify", "-o", "json")
    assert code == 0
    document = json.loads(out)
    state = fold_all(FoldState(), UPDATE)
    assert document["ok"] is True
    assert document["digest"] == state.fleet_state.digest
    assert document["ports_digest"] == state.ports.digest
    code, out, _ = answer("holes", "log", "verify")
    assert code == 0
    assert "5 removed" in out


def test_a_damaged_archive_is_said_to_be(files, capsys):
    path = files / "hurt.jsonl.zst"
    content = (files / "update.jsonl.zst").read_bytes()
    path.write_bytes(content[: len(content) // 2])
    for command in ("tail", "stats", "verify"):
        code = main(["log", command, "--from-archive", str(path)])
        out, err = capsys.readouterr()
        assert (code, out) == (65, "")
        assert err.count("\n") == 1


# ---- the lens ----------------------------------------------------------------------
def test_a_replay_through_a_lens_shows_that_alone(answer):
    code, out, _ = answer(
        "update", "replay", "--namespace", "prod-v2", "--until", "12", "-o", "json"
    )
    assert code == 0
    document = json.loads(out)
    whole = json.loads(answer("update", "replay", "--until", "12", "-o", "json")[1])
    assert document["digest"] == whole["digest"]
    assert document["known_models"] == whole["known_models"]
    (model,) = document["models"]
    (worker_set,) = model["worker_sets"]
    assert worker_set["namespace"] == "prod-v2"
    assert worker_set in whole["models"][0]["worker_sets"]


def test_a_lens_that_shows_nobody_says_so(answer):
    code, out, _ = answer(
        "update", "replay", "--model", "llama", "--namespace", "nobody"
    )
    assert code == 0
    assert out.startswith("no worker of model llama in namespace nobody\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--as-seen-by", "r1"), "--from-archive is not valid with --as-seen-by"),
        (("--as-seen-by", "r1", "--step"), "--step is not valid with --as-seen-by"),
        (("--step", "--ports"), "--ports is not valid with --step"),
        (("--step",), "--step needs a terminal"),
        (("--step", "-o", "json"), "it is a screen"),
        (("--namespace", "a.b"), "namespace 'a.b'"),
    ],
)
def test_what_cannot_be_had_together_is_refused(answer, arguments, said):
    code, out, err = answer("update", "replay", *arguments)
    assert (code, out) == (64, "")
    assert said in err


def test_a_router_s_reports_are_in_no_archive(answer):
    code, _, err = answer("update", "explain", "prod/w1", "--router", "r1")
    assert code == 64
    assert "--router is not valid with --from-archive" in err
