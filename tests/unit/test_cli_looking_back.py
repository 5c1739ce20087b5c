"""``diff``, ``explain`` and ``bisect`` as commands, over an archive: no broker."""

import asyncio
import json

import pytest

import controlplane as cp
from controlplane.archive import export_log
from controlplane.cli.application import main
from controlplane.cli.wrapping import wrapped
from projections import (
    compare_fleets,
    explain,
    explain_model,
    find_first,
    parse_expression,
    replay,
)
from tests.golden.cli.looked_back import a_bad_night
from tests.support.archived import LogCell
from tests.support.fleet_builder import given, registered

STORY = a_bad_night()


async def _export(story, path):
    cell = await LogCell.made("default")
    await cell.tell(story)
    await export_log(cell.log, path)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("archives") / "night.jsonl.zst"
    asyncio.run(_export(STORY, path))
    return str(path)


@pytest.fixture
def answer(archive, capsys):
    """Run a command over the archive: its code, stdout and stderr."""

    def run(*arguments):
        code = main([*arguments, "--from-archive", archive])
        return code, *capsys.readouterr()

    return run


def plain(document):
    """A document as it reads back."""
    return json.loads(cp_json(document))


def cp_json(document):
    return json.dumps(
        document, default=lambda at: at.isoformat().replace("+00:00", "Z")
    )


def test_explain_says_what_the_library_says(answer):
    code, out, err = answer("explain", "prod/gpu7", "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out) == plain(explain(STORY, "prod/gpu7").document())
    code, out, _ = answer("explain", "prod/gpu7", "--at", "15", "-o", "json")
    assert json.loads(out) == plain(explain(STORY, "prod/gpu7", 15).document())
    code, out, _ = answer("explain", "prod/gpu7", "-o", "ndjson")
    chain = [json.loads(line) for line in out.splitlines()]
    assert chain == plain(explain(STORY, "prod/gpu7").document())["chain"]


@pytest.mark.parametrize(
    ("at", "revision"),
    [
        ("2026-01-01T12:00:14", 15),
        (STORY[14].event.event_id, 15),
        ("15", 15),
        ("2027-01-01T00:00:00+01:00", 29),
    ],
)
def test_a_moment_is_said_in_any_form(answer, at, revision):
    for what in (("prod/gpu7",), ("model", "llama")):
        code, out, _ = answer("explain", *what, "--at", at, "-o", "json")
        assert (code, json.loads(out)["revision"]) == (0, revision)


def test_a_moment_before_the_log_began_is_wrong_usage(answer):
    for arguments in (
        ("explain", "prod/gpu7", "--at", "-36500d"),
        ("diff", "2025-01-01", "15"),
        ("bisect", "--first", "True", "--after", "2025-01-01"),
    ):
        code, out, err = answer(*arguments)
        assert (code, out) == (64, "")
        assert "is before the log's first record" in err


def test_explain_a_model_says_what_the_library_says(answer):
    code, out, err = answer("explain", "model", "llama", "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out) == plain(explain_model(STORY, "llama").document())
    code, out, _ = answer("explain", "model", "llama", "-o", "ndjson")
    (place,) = [json.loads(line) for line in out.splitlines()]
    assert place["namespace"] == "prod"
    code, out, _ = answer("explain", "model", "llama")
    assert "llama is not served: 503" in out


def test_who_never_was_is_a_no(answer):
    code, out, _ = answer("explain", "prod/gpu9")
    assert (code, "was never registered" in out) == (1, True)
    code, out, _ = answer("explain", "model", "never", "-o", "json")
    assert (code, json.loads(out)["state"]) == (1, "not_found")


def test_diff_says_what_the_library_says(answer):
    one, two = replay(STORY, until=15), replay(STORY)
    expected = plain(compare_fleets(one, two, STORY).document())
    code, out, err = answer("diff", "15", "29", "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out) == expected
    assert list(expected) == ["from", "to", "removed", "changed", "added", "others"]
    code, out, _ = answer("diff", "15", "29", "-o", "ndjson")
    kinds = [json.loads(line)["kind"] for line in out.splitlines()]
    assert kinds == ["removed", "changed", "added", "other", "other", "other"]
    code, out, _ = answer("diff", "29", "15")
    assert "revision 29 to 15" in out
    code, out, _ = answer("diff", "3", "4", "-o", "json")
    assert (code, set(json.loads(out))) == (
        0,
        {"from", "to", "removed", "changed", "added"},
    )


def test_two_archives_differ(archive, tmp_path, capsys):
    later = tmp_path / "other.jsonl.zst"
    asyncio.run(_export(given(registered("w1")), later))
    assert main(["diff", archive, str(later), "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["from"], document["to"]) == (29, 1)
    assert [(w["worker"], w["revision"]) for w in document["added"]] == (
        [("prod/w1", None)]
    )
    assert main(["diff", archive, archive]) == 0
    assert "no difference" in capsys.readouterr().out
    assert main(["diff", archive, "15", "--from-archive", archive, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["added"][0]["revision"] == 18


@pytest.mark.parametrize("flag", [(), ("--monotone",)])
def test_bisect_finds_the_record(answer, flag):
    text = 'model("llama").serving == False'
    for expression, revision in ((text, 12), ('known("llama")', 2)):
        code, out, err = answer("bisect", "--first", expression, "-o", "json", *flag)
        assert (code, err) == (0, "")
        document = json.loads(out)
        assert document.keys() == {"revision", "recorded_at", "record"}
        if not flag or revision == 2:
            assert document["revision"] == revision
        assert document["record"]["revision"] == document["revision"]
    found = find_first(STORY, parse_expression(text))
    code, out, _ = answer("bisect", "--first", text)
    assert f"revision {found.record.revision}," in out
    assert replay(STORY, until=found.record.revision).digest in out


@pytest.mark.parametrize("flag", [(), ("--monotone",)])
def test_bisect_may_begin_later(answer, flag):
    text = 'worker("prod/gpu7").routable == False'
    code, out, _ = answer(
        "bisect", "--first", text, "--after", "22", "-o", "ndjson", *flag
    )
    assert (code, json.loads(out)["revision"]) == (0, 23)
    code, out, err = answer("bisect", "--first", 'known("x")', "--after", "22", *flag)
    assert (code, out) == (1, "")
    assert "it never holds after revision 22 up to revision 29" in err
    code, _, err = answer("bisect", "--first", 'known("x")', "--after", "29", *flag)
    assert code == 1


def test_what_never_holds_is_a_no(answer):
    code, out, err = answer("bisect", "--first", 'known("never")', "-o", "json")
    assert (code, out) == (1, "")
    assert err == ('controlplane: it never holds up to revision 29: known("never")\n')


@pytest.mark.parametrize("flag", [(), ("--monotone",)])
def test_a_model_that_nobody_knows_is_noted(answer, flag):
    text = 'count(routable, model="lama") < 3'
    code, out, err = answer("bisect", "--first", text, "-o", "json", *flag)
    assert (code, json.loads(out)["revision"]) == (0, 1)
    assert err == "note: no model named 'lama' is known at revision 29\n"


def test_a_wrong_expression_has_a_caret(answer):
    code, out, err = answer("bisect", "--first", 'modle("llama").serving')
    assert (code, out) == (64, "")
    assert err.splitlines() == [
        '  modle("llama").serving',
        "  ^^^^^",
        (
            "controlplane: the expression is not valid at column 1: "
            "no word 'modle'; did you mean model?"
        ),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("explain", "gpu7"), "worker 'gpu7' is not valid: NAMESPACE/WORKER"),
        (("explain", "a.b/gpu7"), "namespace 'a.b' is not valid"),
        (("explain", "prod/gpu7", "llama"), "explain NS/WORKER, or explain model NAME"),
        (("explain", "model"), "explain NS/WORKER, or explain model NAME"),
        (("explain", "model", "*"), "model '*' is not valid"),
        (("explain", "prod/gpu7", "--at", "noon"), "moment 'noon' is not valid"),
        (("diff", "1", "/nowhere"), "moment '/nowhere' is not valid"),
        (("bisect", "--first", "True", "--after", "x"), "moment 'x' is not valid"),
        (("bisect",), "--first"),
        (("diff", "1"), "two"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_is_one_line(arguments, said, answer):
    code, out, err = answer(*arguments)
    assert (code, out) == (64, "")
    assert err.count("\n") == 1
    assert said.lower() in err.lower()


def test_a_revision_beyond_the_end_is_not_there_yet(answer):
    for arguments in (
        ("explain", "prod/gpu7", "--at", "99"),
        ("diff", "1", "99"),
        ("bisect", "--first", "True", "--after", "99"),
    ):
        code, out, err = answer(*arguments)
        assert (code, out) == (75, "")
        assert "the log ends at revision 29, before 99" in err


def test_a_file_that_is_no_archive_is_bad_data(tmp_path, capsys):
    path = tmp_path / "empty"
    path.write_bytes(b"")
    for arguments in (
        ["explain", "prod/w1", "--from-archive", str(path)],
        ["diff", str(path), str(path)],
        ["bisect", "--first", "True", "--from-archive", str(path)],
    ):
        assert main(arguments) == 65
        assert capsys.readouterr().err.count("\n") == 1


def test_the_library_has_both():
    one, two = cp.replay(STORY, until=15), cp.replay(STORY)
    assert cp.diff(one, two).document()["to"] == 29
    assert cp.explain(STORY, "prod/gpu7", until=15).state == "blocked"


def test_words_that_fit_nowhere_are_broken():
    lines = [
        text.plain
        for text in wrapped("ab " + "x" * 45 + " 日本語" * 9, 24, indent="    ")
    ]
    assert lines[0] == "    ab"
    assert lines[1] == "    " + "x" * 20
    assert "".join(lines).replace(" ", "") == "ab" + "x" * 45 + "日本語" * 9
    assert wrapped("", 24)[0].plain == ""
