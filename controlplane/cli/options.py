"""The options that commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from cyclopts import Parameter

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
Format: TypeAlias = Literal["table", "json", "ndjson"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """What every command takes."""

    debug: bool = False
    """Show the traceback of an error."""
    log_level: LogLevel | None = None
    """Log to stderr from this level up."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class InCell(Common):
    """What every command that works in a cell takes."""

    cell: Annotated[str | None, Parameter(env_var="CP_CELL")] = None
    """The cell; else "default"."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Connecting(InCell):
    """What every command that needs a broker takes."""

    url: Annotated[str | None, Parameter(env_var="NATS_URL")] = None
    """The broker, or several with commas; else nats://127.0.0.1:4222."""
    creds: Annotated[str | None, Parameter(env_var="NATS_CREDS")] = None
    """A file of NATS credentials."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Listing(Connecting):
    """What every command that lists something takes."""

    output: Annotated[Format, Parameter(name=("--output", "-o"))] = "table"
    """A table for people, one JSON document, or a document a line."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Deciding(Listing):
    """What every command that decides something takes."""

    reason: str = ""
    """Why; kept in the log with the decision."""
    by: str | None = None
    """Who decides; else user@host."""


COMMON: Final = Common()
IN_CELL: Final = InCell()
CONNECTING: Final = Connecting()
LISTING: Final = Listing()
DECIDING: Final = Deciding()
