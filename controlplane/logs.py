"""Log lines: how the library says them, and how the command line shows them.

The library speaks through the standard library's loggers below ``controlplane``, so an
application decides where its lines go; without a word of it only warnings show. The
messages are constant, lower-case texts with the values as keys. Only the command line
configures anything.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, cast

import structlog
from structlog.tracebacks import ExceptionDictTransformer

from .errors import SettingsError

ROOT: Final = "controlplane"
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_STYLES: Final = ("json", "console")


def _for_whoever_listens(
    logger: Any,  # noqa: ANN401 - structlog's own signature
    method: str,
    event: structlog.typing.EventDict,
) -> Any:  # noqa: ANN401
    """Whole for our own handler; else a line of text that any handler can show."""
    if _is_ours(logging.getLogger()):
        return structlog.stdlib.ProcessorFormatter.wrap_for_formatter(
            logger, method, event
        )
    message = str(event.pop("event", ""))
    event.pop("level", None)
    failure = event.pop("exc_info", None)
    values = " ".join(f"{key}={value!r}" for key, value in event.items())
    text = f"{message}: {values}" if values else message
    return ((text,), {"exc_info": failure} if failure else {})


def _is_ours(root: logging.Logger) -> bool:
    return any(
        isinstance(handler.formatter, structlog.stdlib.ProcessorFormatter)
        for handler in root.handlers
    )


_SAYING: Final[list[structlog.typing.Processor]] = [
    structlog.stdlib.filter_by_level,
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    _for_whoever_listens,
]


def get_logger(room: str) -> structlog.stdlib.BoundLogger:
    """The logger of a room: ``controlplane.{room}`` of the standard library."""
    logger: Any = structlog.wrap_logger(
        logging.getLogger(f"{ROOT}.{room}"),
        processors=_SAYING,
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return cast("structlog.stdlib.BoundLogger", logger)


def configure_logging(level: str = "info", style: str = "console") -> None:
    """Write log lines to stderr; for the command line only.

    What other libraries log, from warnings up, takes the same form. Raises
    `SettingsError` for a level or style that there is not.
    """
    _one_of("log level", level, LOG_LEVELS)
    _one_of("log style", style, LOG_STYLES)
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_log_level],
            processors=[
                stamp,
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_ending(style),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger(ROOT).setLevel(level.upper())


def _ending(style: str) -> list[structlog.typing.Processor]:
    # Never the locals of a frame: credentials live in them.
    if style == "json":
        without_locals = ExceptionDictTransformer(show_locals=False)
        return [
            structlog.processors.ExceptionRenderer(without_locals),
            structlog.processors.JSONRenderer(),
        ]
    plain = structlog.dev.plain_traceback
    return [
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=plain
        )
    ]


def _one_of(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        rule = f"must be one of {', '.join(allowed)}"
        raise SettingsError(field=field, value=value, rule=rule)
