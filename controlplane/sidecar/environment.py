"""The environment of a child: its ports, by our names and by the engines' own."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final

from controlplane.errors import SettingsError
from projections import PortBlock

ENGINE_PORTS: Final[Mapping[str, tuple[str, ...]]] = {
    "nixl_side_channel": ("VLLM_NIXL_SIDE_CHANNEL_PORT",),
    "mooncake_bootstrap": ("VLLM_MOONCAKE_BOOTSTRAP_PORT",),
    "dp_master": ("VLLM_DP_MASTER_PORT",),
    "vllm": ("VLLM_PORT",),
    "sglang": ("SGLANG_PORT",),
    "kv_events": ("DYN_VLLM_KV_EVENT_PORT",),
    "dynamo_system": ("DYN_SYSTEM_PORT",),
    "forward_pass_metrics": ("DYN_FORWARDPASS_METRIC_PORT",),
}
"""Which variables of which engine carry the first port of a block of that name.

``VLLM_…`` are read in vLLM's ``envs.py``; a data-parallel rank adds its number (times
the tensor-parallel size, in older versions) to the NIXL port, so claim as many.
``VLLM_PORT`` and ``SGLANG_PORT`` are where the engine begins to look for ports of its
own. ``DYN_…`` belong to Dynamo, whose newer versions take the KV-event port from vLLM's
arguments.
"""
NIXL: Final = "nixl_side_channel"
NIXL_HOST: Final = "VLLM_NIXL_SIDE_CHANNEL_HOST"
"""vLLM's default is localhost, which no other host reaches."""


def check_port_names(names: Iterable[str]) -> None:
    """Raise `SettingsError` for two names that would be one variable."""
    seen: dict[str, str] = {}
    for name in names:
        for variable in (_variable(name), f"{_variable(name)}_SIZE"):
            other = seen.setdefault(variable, name)
            if other != name:
                rule = f"it shares the variable {variable} with {other!r}; rename one"
                raise SettingsError(field="ports", value=name, rule=rule)


def port_variables(ports: Mapping[str, PortBlock]) -> dict[str, str]:
    """What a child is told of its ports, whatever it was told before."""
    variables = {}
    for name, block in ports.items():
        variables[_variable(name)] = str(block.start)
        variables[f"{_variable(name)}_SIZE"] = str(block.size)
        for variable in ENGINE_PORTS.get(name, ()):
            variables[variable] = str(block.start)
    return variables


def child_environment(
    inherited: Mapping[str, str], ports: Mapping[str, PortBlock], worker_id: str
) -> dict[str, str]:
    """``inherited`` and what the sidecar adds.

    A claimed port replaces what an image or a template set: that port is not claimed.
    """
    made = {**inherited, **port_variables(ports), "CP_WORKER_ID": worker_id}
    for block in ports.values():
        made["CP_HOST"] = block.host  # one machine has one name
    if NIXL in ports and not inherited.get(NIXL_HOST) and _is_ip(ports[NIXL].host):
        made[NIXL_HOST] = ports[NIXL].host
    return made


def _variable(name: str) -> str:
    return "CP_PORT_" + name.upper().replace("-", "_")


def _is_ip(host: str) -> bool:
    """Whether an engine can listen on ``host`` as it is written."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
