"""Where log lines go and what they look like: for the command line only.

The library never configures logging: it calls ``structlog.get_logger()``, and its
messages are constant, lower-case texts with the values as keys.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

import structlog
from structlog.tracebacks import ExceptionDictTransformer

from .errors import SettingsError

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_STYLES: Final = ("json", "console")


def configure_logging(level: str = "info", style: str = "console") -> None:
    """Write log lines to stderr; for the command line only.

    What other libraries log through the standard library, from warnings up, takes
    the same form. Raises `SettingsError` for a level or style that there is not.
    """
    _one_of("log level", level, LOG_LEVELS)
    _one_of("log style", style, LOG_STYLES)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    ending = _ending(style)
    structlog.configure(
        processors=[*shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    foreign = logging.StreamHandler(sys.stderr)
    removed = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    foreign.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[removed, *ending]
        )
    )
    logging.basicConfig(handlers=[foreign], level=logging.WARNING, force=True)


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
