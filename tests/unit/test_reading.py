"""Foreign bytes: every decoder answers or says nothing; none of them raises."""

import pytest

from controlplane.beats import decode_beat, decode_canary, decode_notice
from controlplane.broker import CoreMessage
from controlplane.viewfeed import SEQUENCE_HEADER, decode_head, live_entry
from events import Undecodable, decode
from projections import Fleet, SnapshotUnusableError, decode_snapshot, decode_view

LEVELS = 5_000
GARBAGE = {
    "nothing": b"",
    "text": b"nope",
    "not utf-8": b'{"type":"\xff\xfe"}',
    "null": b"null",
    "deep json": b"[" * LEVELS + b"]" * LEVELS,
    "deep json inside": b'{"x":' * LEVELS + b"1" + b"}" * LEVELS,
    "deep msgpack": b"\x91" * LEVELS + b"\xc0",
    "deep msgpack inside": b"\x81\xa1x" + b"\x91" * LEVELS + b"\xc0",
    "huge msgpack array": b"\xdd\xff\xff\xff\xff",
}
DECODERS = (decode_beat, decode_notice, decode_canary, decode_head, decode_view)


@pytest.mark.parametrize("payload", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("decoder", DECODERS, ids=lambda d: d.__name__)
def test_a_decoder_says_nothing_about_garbage(decoder, payload):
    assert decoder(payload) is None


@pytest.mark.parametrize("payload", GARBAGE.values(), ids=GARBAGE)
def test_garbage_in_the_log_snapshots_and_documents_is_named(payload):
    assert isinstance(decode("log.worker.prod.w1", payload), Undecodable)
    with pytest.raises(SnapshotUnusableError):
        decode_snapshot(payload)
    with pytest.raises(ValueError, match="not a view document"):
        Fleet.from_json(payload)


@pytest.mark.parametrize("text", ["", "x", "-1", "9" * 5000, "٣", "1.5"])
def test_a_live_message_without_a_real_sequence_is_none(text):
    message = CoreMessage(subject="s", payload=b"", headers={SEQUENCE_HEADER: text})
    assert live_entry(message) is None
