"""``wait``: the gate of a roll-out."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter, validators

from controlplane.gate import Deployment
from controlplane.presence import WaitResult
from events import ModelName, Namespace, Revision, Role

from .decision_lines import ready_lines
from .exits import NO, OK, UsageError
from .opening import opened
from .options import LISTING, Listing
from .printing import print_document, print_lines
from .running import run
from .tables import wait_line
from .whole import Whole

Seconds = Annotated[float, Parameter(validator=validators.Number(gte=0))]
WholeNumber = Annotated[Whole, Parameter(validator=validators.Number(gte=0))]
Least = Annotated[Whole, Parameter(validator=validators.Number(gte=1))]
RoleName = Literal["aggregated", "prefill", "decode", "encode"]
Routers = Literal["all"] | int


def wait(
    *,
    revision: WholeNumber | None = None,
    namespace: Namespace | None = None,
    model: ModelName | None = None,
    min_ready: Least | None = None,
    role: RoleName | None = None,
    routers: str = "all",
    timeout: Seconds = 30.0,
    options: Listing = LISTING,
) -> int:
    """Wait until routers have a revision, or a deployment: 0 when they do, else 1.

    Either --revision, or --namespace, --model and --min-ready together.

    Parameters
    ----------
    revision
        The revision that their views must include.
    namespace
        The deployment's namespace.
    model
        The model (or adapter) that it serves.
    min_ready
        So many of its workers must be routable.
    role
        Count workers of this role; else those at which a request may start.
    routers
        "all", or how many.
    timeout
        Seconds.

    options
        What commands of its kind share.

    """
    wanted = _wanted_routers(routers)
    named = (namespace, model, min_ready)
    if revision is not None and (*named, role) == (None,) * 4:
        return run(lambda: _wait(revision, wanted, timeout, options), options)
    if revision is not None or namespace is None or model is None or min_ready is None:
        message = (
            "wait takes --revision N, or else --namespace, --model and --min-ready "
            "together"
        )
        raise UsageError(message)
    deployment = Deployment(
        namespace=namespace, model=model, role=None if role is None else Role(role)
    )
    return run(
        lambda: _wait_ready(deployment, min_ready, wanted, timeout, options), options
    )


def _wanted_routers(text: str) -> Routers:
    if text == "all":
        return "all"
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        message = f"routers {text!r} is not valid: 'all', or a count of at least 1"
        raise UsageError(message)
    return int(text)


async def _wait(
    revision: Revision, wanted: Routers, timeout_s: float, options: Listing
) -> int:
    async with opened(options) as plane:
        result = await plane.wait(revision, wanted, timeout_s)
        live = sum(router.live for router in await plane.routers())
    if options.output == "table":
        print_lines([wait_line(result, revision, timeout_s, live)])
    else:
        _print_result(result)
    return OK if result.reached else NO


async def _wait_ready(
    deployment: Deployment,
    least: int,
    wanted: Routers,
    timeout_s: float,
    options: Listing,
) -> int:
    async with opened(options) as plane:
        result = await plane.wait_ready(
            deployment.namespace,
            deployment.model,
            least,
            wanted,
            timeout_s,
            role=deployment.role,
        )
        live = sum(router.live for router in await plane.routers())
    if options.output == "table":
        print_lines(ready_lines(result, deployment, least, timeout_s, live))
    else:
        _print_result(result)
    return OK if result.reached else NO


def _print_result(result: WaitResult) -> None:
    """Print the document of a gate: its keys are the same for all."""
    print_document({"reached": result.reached, "missing": result.missing})
