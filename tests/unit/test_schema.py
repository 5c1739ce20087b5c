"""The schema that other languages get is satisfied by real payloads, by few else."""

import json
from pathlib import Path

import pytest

from events import EVENT_TYPES, json_schema
from tests.unit.json_schema import complaints

GOLDEN = Path(__file__).parents[1] / "golden" / "events"
SCHEMA = json_schema()
PAYLOADS = [json.loads(path.read_bytes()) for path in sorted(GOLDEN.glob("*.json"))]


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload["type"])
def test_real_payloads_satisfy_the_schema(payload):
    assert complaints(SCHEMA, payload, SCHEMA) == []


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload["type"])
def test_payloads_that_lack_something_do_not(payload):
    for name in ("type", "event_id", "at"):
        lacking = {k: v for k, v in payload.items() if k != name}
        assert complaints(SCHEMA, lacking, SCHEMA)


def test_wrong_values_do_not_satisfy_the_schema():
    good = next(p for p in PAYLOADS if p["type"] == "worker_registered.v1")
    for wrong in (
        {"status": "asleep"},
        {"lease_ttl_s": "ten"},
        {"capacity": {"total_kv_blocks": 2**63}},
        {"labels": {"a": 1}},
        {"type": "worker_registered.v9"},
    ):
        assert complaints(SCHEMA, {**good, **wrong}, SCHEMA), wrong


def test_the_schema_names_every_event():
    named = {
        definition["properties"]["type"]["enum"][0]
        for definition in SCHEMA["$defs"].values()
        if "type" in definition.get("properties", {})
    }
    assert named == set(EVENT_TYPES)
    assert SCHEMA["$schema"].endswith("2020-12/schema")
    assert SCHEMA["title"]
