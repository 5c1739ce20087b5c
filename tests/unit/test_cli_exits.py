"""Each error has a code that says who has to do something, and one line."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from controlplane import errors
from controlplane.archive import (
    ArchiveDamagedError,
    ArchiveMissingError,
    ArchiveNewerError,
    ArchiveTruncatedError,
    ExportRefusedError,
    ExportStoppedError,
    ImportRefusedError,
)
from controlplane.cli import main
from controlplane.cli.exits import (
    AdapterNameError,
    CellMissingError,
    NotYetError,
    UsageError,
    exit_code,
    from_arguments,
    sentence,
)
from controlplane.cli.records import record_document
from controlplane.playback import (
    EventNotFoundError,
    MomentAheadError,
    MomentInvalidError,
    MomentTooEarlyError,
    RecordRemovedError,
    RouterElsewhereError,
    RouterUnseenError,
    TypeUnknownError,
    parse_point,
)
from controlplane.sidecar import ChildNotHealthyError, ChildNotStartedError
from events import InvalidIdentityError, UndecodableRecordError, json_schema
from projections import (
    DivergenceError,
    ModelNotFoundError,
    ModelUnavailableError,
    SnapshotUnusableError,
)
from tests.golden.stories import STORIES, every_event

URL = "nats://127.0.0.1:1"
FILE = Path("log.jsonl.zst")
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
CODES = [
    (ModelNotFoundError(model="m"), 1),
    (ModelUnavailableError(model="m", reasons={"held": 1}), 1),
    (errors.ModelInUseError(model="m", workers=["prod/w1"]), 1),
    (AdapterNameError(adapter="sql", models=["llama"]), 1),
    (UsageError("x"), 64),
    (InvalidIdentityError(field="cell", value="X", rule="lower case"), 64),
    (UndecodableRecordError(subject="log.x", reason="not JSON"), 65),
    (SnapshotUnusableError(reason="damaged"), 65),
    (errors.HistoryTruncatedError(first=7), 65),
    (errors.ImportUnfinishedError(place=2, of=7), 65),
    (ArchiveMissingError(FILE, "no such file"), 65),
    (ArchiveTruncatedError(FILE, after=7), 65),
    (ArchiveDamagedError(FILE, after=7, why="not zstd"), 65),
    (ArchiveNewerError(FILE, found=2, known=1), 65),
    (ExportRefusedError("x"), 1),
    (ExportStoppedError(FILE, OSError(28, "No space left on device")), 75),
    (ImportRefusedError("x"), 1),
    (MomentInvalidError("x"), 64),
    (MomentTooEarlyError(time=NOON, began=NOON), 64),
    (EventNotFoundError(event_id="x", last=7), 1),
    (RecordRemovedError(revision=3, first=1), 1),
    (RouterUnseenError("x"), 1),
    (RouterElsewhereError("x"), 65),
    (TypeUnknownError("x", ["worker_held"]), 64),
    (MomentAheadError(revision=9, last=7), 75),
    (errors.HistoryForkedError(reason="another id", revision=7), 65),
    (errors.LogUnavailableError(url=URL, doing="connecting"), 69),
    (DivergenceError(where="7", expected="a", got="b"), 70),
    (ZeroDivisionError("division by zero"), 70),
    (NotYetError("no view yet"), 75),
    (errors.LogFullError(stream="CP_X_LOG", reason="maximum bytes"), 75),
    (errors.PortsExhaustedError(wanted=8, free=9, largest_hole=7, resting=2), 75),
    (TimeoutError(), 75),
    (OSError(28, "No space left on device"), 75),
    (errors.LeaseLostError(namespace="ns", worker_id="w", reason="taken"), 75),
    (ChildNotStartedError(command="vllm", reason="No such file"), 75),
    (ChildNotHealthyError(within_s=5.0, last_answer="503"), 75),
    (
        errors.IncarnationSupersededError(
            namespace="ns", worker_id="w", incarnation="a", by="b"
        ),
        78,
    ),
    (CellMissingError(cell="c", url=URL, missing=("CP_C_LOG",)), 78),
    (errors.StreamMissingError(url=URL, doing="reading", reason="not found"), 78),
    (errors.TopologyDriftError(differences=["stream A: b is c", "d"]), 78),
    (errors.SettingsError(field="JetStream", value="disabled", rule="enabled"), 78),
]


@pytest.mark.parametrize(
    ("error", "code"), CODES, ids=[type(error).__name__ for error, _ in CODES]
)
def test_every_error_has_its_code_and_one_line(error, code):
    assert exit_code(error) == code
    said = sentence(error)
    assert said
    assert "\n" not in said
    assert code != 70 or "--debug" in said


USAGE = [
    ["nosuch"],
    ["models", "--nosuch"],
    ["models", "-o", "yaml"],
    ["models", "--cell", "Upper"],
    ["models", "--url", "foo://x"],
    ["models", "--url", "127.0.0.1:99999"],
    ["models", "--log-level", "loud"],
    ["run", "--", "vllm"],
    ["run", "--model", "m"],
    ["run", "--model", "m", "--", "vllm", "{grpc}"],
    ["run", "--model", "m", "--ports", "kv", "--", "vllm"],
    ["run", "--model", "m", "--lease-ttl", "1", "--", "vllm"],
    ["run", "--model", "m", "vllm", "--port", "1"],
    ["run", "--model", "m", "--capacity", "max_num_seqs=-5", "--", "vllm"],
    ["run", "--model", "m", "--capacity", "max_num_seqs=1.5", "--", "vllm"],
    ["run", "--model", "m", "--card", "kv_block_size=-1", "--", "vllm"],
    ["run", "--model", "m", "--adapter", "m", "--", "vllm"],
    ["run", "--model", "m", "--health", "http://u:p@h/health", "--", "vllm"],
    ["run", "--model", "m", "--metrics", "http://u@h/metrics", "--", "vllm"],
    ["run", "--model", "m", "--adapters-url", "http://u:p@h/", "--", "vllm"],
    ["pick"],
    ["pick", "*"],
    ["pick", "m" * 257],
    ["pick", "m", "--role", "router"],
    ["pick", "m", "--namespace", "a.b"],
    ["pick", "m", "-n", "0"],
    ["wait"],
    ["wait", "--revision", "-1"],
    ["wait", "--revision", "1", "--routers", "0"],
    ["wait", "--revision", "1", "--routers", "some"],
    ["wait", "--revision", "1", "--timeout", "nan"],
    ["wait", "--revision", "1", "--min-ready", "2"],
    ["wait", "--revision", "1", "--role", "decode"],
    ["wait", "--namespace", "prod", "--model", "m"],
    ["wait", "--namespace", "a.b", "--model", "m", "--min-ready", "1"],
    ["wait", "--namespace", "prod", "--model", "*", "--min-ready", "1"],
    ["wait", "--namespace", "prod", "--model", "m", "--min-ready", "0"],
    ["hold"],
    ["hold", "w1"],
    ["hold", "/w1"],
    ["hold", "prod/"],
    ["hold", "a.b/w1"],
    ["hold", "prod/" + "w" * 129],
    ["hold", "prod/w1", "--by", ""],
    ["hold", "prod/w1", "--reason", "x" * 1025],
    ["resume", "w1"],
    ["drain", "w1"],
    ["drain", "prod/w1", "--wait", "--timeout", "-1"],
    ["weight", "prod", "m"],
    ["weight", "prod", "m", "nan"],
    ["weight", "prod", "m", "inf"],
    ["weight", "prod", "m", "-0.5"],
    ["weight", "prod", "m", "half"],
    ["weight", "a.b", "m", "1"],
    ["weight", "prod", "", "1"],
    ["thresholds", "m"],
    ["thresholds", "m", "--none", "--busy-running", "1"],
    ["thresholds", "*", "--none"],
    ["thresholds", "m", "--busy-kv-usage", "90"],
    ["thresholds", "m", "--busy-kv-usage", "nan"],
    ["thresholds", "m", "--busy-waiting", "0"],
    ["forget", "*"],
    ["watch", "-o", "json"],
    ["log", "tail", "-n", "-1"],
    ["log", "tail", "--follow", "-o", "json"],
    ["replay", "--until", "yesterday"],
    ["replay", "--until", "-5"],
    ["log", "export"],
    ["log", "import"],
    ["ports", "--host", ""],
    ["ports", "--host", "h" * 254],
    ["ports", "--within", "20000"],
    ["ports", "--within", "20000-"],
    ["ports", "--within", "30000-20000"],
    ["ports", "--within", "1023-20000"],
    ["ports", "--within", "20000-65536"],
    ["ports", "--within", "20000-٣٠٠٠٠"],
    ["ports", "--within", "2" * 5000 + "-30000"],
    ["ports", "-o", "yaml"],
    ["projector", "--http", "9780"],
    ["up", "--port", "65536"],
    ["up", "--cell", "Upper"],
    ["init", "--replicas", "2"],
]


@pytest.mark.parametrize("arguments", USAGE, ids=" ".join)
def test_a_wrong_call_is_one_line_and_64_before_anything_is_sent(
    arguments, capsys, monkeypatch
):
    monkeypatch.setenv("NATS_URL", URL)
    assert main(arguments) == 64
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("controlplane: ")
    assert said.err.count("\n") == 1


def test_without_its_archive_a_replay_is_bad_data_and_asks_no_broker(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("NATS_URL", URL)
    (tmp_path / "notes").write_text("hello")
    for name, says in (("nosuch", "cannot be opened"), ("notes", "is damaged")):
        assert main(["replay", "--from-archive", str(tmp_path / name)]) == 65
        said = capsys.readouterr()
        assert said.out == ""
        assert says in said.err
        assert said.err.count("\n") == 1


def test_with_debug_the_traceback_comes_first(capsys):
    assert main(["models", "--cell", "Upper", "--debug"]) == 64
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert said.splitlines()[-1].startswith("controlplane: cell 'Upper'")


def test_what_is_refused_of_an_argument_is_usage():
    with pytest.raises(UsageError), from_arguments():
        raise errors.SettingsError(field="http", value="x", rule="host:port")


def test_version_and_help_are_answers(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("controlplane ")
    assert main(["--help"]) == 0
    assert "replay" in capsys.readouterr().out


def test_the_schema_is_the_events_schema(capsys):
    assert main(["schema"]) == 0
    expected = json.loads(json.dumps(json_schema()))
    assert json.loads(capsys.readouterr().out) == expected


@pytest.mark.parametrize("url", ["http://a", "a:port", "nats://", "a,:4222", "[::1"])
def test_urls_that_will_not_do_are_wrong_usage(url, capsys):
    assert main(["models", "--url", url]) == 64
    said = capsys.readouterr().err
    assert "url" in said
    assert "nats://10.0.0.7:4222" in said


def test_until_is_a_moment_of_the_log_itself(tmp_path):
    assert parse_point("12") == 12
    assert parse_point("-10m") == timedelta(minutes=-10)
    east = parse_point("2026-01-31T14:00:00+02:00")
    assert east == datetime(2026, 1, 31, 12, tzinfo=UTC)
    path = tmp_path / "router.ckpt"
    path.touch()
    for text in (str(path), "yesterday"):
        with pytest.raises(MomentInvalidError, match=r"or an event's id$"):
            parse_point(text)


@pytest.mark.parametrize("story", [every_event, *STORIES.values()])
def test_every_record_has_a_document_with_the_same_keys(story):
    for record in story():
        document = record_document(record)
        assert set(document) == {
            "revision",
            "recorded_at",
            "subject",
            "event",
            "poison",
        }
        assert (document["event"] is None) == (document["poison"] is not None)
