"""What a page of metrics says of an engine's load, by the engines' own names.

| | vLLM | SGLang |
|---|---|---|
| running | ``vllm:num_requests_running`` | ``sglang:num_running_reqs`` |
| waiting | ``vllm:num_requests_waiting`` | ``sglang:num_queue_reqs``, queues of a \
prefill or decode server |
| KV cache | ``vllm:kv_cache_usage_perc`` | ``sglang:token_usage`` |

Former names are read where there is no current one: ``vllm:gpu_cache_usage_perc`` (vLLM
before 0.9), ``sglang:num_requests_running`` and ``…_waiting`` (SGLang in 2024). Checked
in ``vllm/v1/metrics/loggers.py`` and SGLang's ``metrics_collector.py``.

An engine of several data-parallel ranks has several samples: requests are added up, the
use of the cache is the mean. Ranks that work on the same requests (tensor and pipeline
parallel), or processes that tell of one engine, count once. SGLang's samples with a
``priority`` break down those without one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from .steps import Load

RUNNING: Final = (
    ("vllm:num_requests_running",),
    ("sglang:num_running_reqs",),
    ("sglang:num_requests_running",),
)
"""Alternatives; the samples of all names of one alternative are added up."""
WAITING: Final = (
    ("vllm:num_requests_waiting",),
    (
        "sglang:num_queue_reqs",
        "sglang:num_grammar_queue_reqs",
        "sglang:num_prefill_bootstrap_queue_reqs",
        "sglang:num_prefill_prealloc_queue_reqs",
        "sglang:num_prefill_inflight_queue_reqs",
        "sglang:num_decode_prealloc_queue_reqs",
        "sglang:num_decode_transfer_queue_reqs",
    ),
    ("sglang:num_requests_waiting",),
)
KV_USAGE: Final = (
    ("vllm:kv_cache_usage_perc",),
    ("vllm:gpu_cache_usage_perc",),
    ("sglang:token_usage",),
)
NAMES: Final = frozenset(
    name for kind in (RUNNING, WAITING, KV_USAGE) for names in kind for name in names
)
RANKS: Final = ("model_name", "engine", "dp_rank")
"""Labels by which samples are of different requests."""
COUNT_MAX: Final = 2**31

Samples = dict[str, dict[tuple[str, ...], float]]


def read_load(page: str) -> Load | None:
    """The load that ``page`` tells; None: it knows none of the names.

    Raises ValueError for what is no page of metrics.
    """
    samples = _samples(page)
    running, waiting = _total(samples, RUNNING), _total(samples, WAITING)
    usage = _mean(samples, KV_USAGE)
    if running is None and waiting is None and usage is None:
        return None
    return Load(kv_usage=usage, running=running, waiting=waiting)


def _samples(page: str) -> Samples:
    """The largest value of each rank, by name."""
    found: Samples = {}
    lines = [line for line in page.splitlines() if _name(line) in NAMES]
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            if sample.labels.get("priority") or not math.isfinite(sample.value):
                continue
            rank = tuple(sample.labels.get(label, "") for label in RANKS)
            ranks = found.setdefault(sample.name, {})
            ranks[rank] = max(ranks.get(rank, 0.0), sample.value)
    return found


def _name(line: str) -> str:
    """Of the sample on ``line``. The rest of a long page is not even parsed."""
    return line.partition("{")[0].partition(" ")[0]


def _first(
    samples: Samples, alternatives: Iterable[tuple[str, ...]]
) -> list[Mapping[tuple[str, ...], float]]:
    for names in alternatives:
        found = [samples[name] for name in names if name in samples]
        if found:
            return [*found]
    return []


def _total(samples: Samples, alternatives: Iterable[tuple[str, ...]]) -> int | None:
    found = _first(samples, alternatives)
    if not found:
        return None
    return round(min(sum(sum(ranks.values()) for ranks in found), COUNT_MAX))


def _mean(samples: Samples, alternatives: Iterable[tuple[str, ...]]) -> float | None:
    found = _first(samples, alternatives)
    if not found:
        return None
    values = list(found[0].values())
    return min(1.0, sum(values) / len(values))
