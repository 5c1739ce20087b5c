"""Where nats-py's exceptions and JetStream's error codes become the project's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import nats.errors

from controlplane.broker import Outgoing
from controlplane.broker.wire import ApiError
from controlplane.errors import (
    AppendConflictError,
    AppendOutcomeUnknownError,
    LogFullError,
    LogUnavailableError,
    SettingsError,
    StreamMissingError,
)
from events.errors import ControlPlaneError

WRONG_LAST_SEQUENCE: Final = 10071
WRONG_LAST_SEQUENCE_IN_BATCH: Final = 10164
DUPLICATE_IN_BATCH: Final = 10201
DUPLICATE_IN_FLIGHT: Final = 10158
ATOMIC_DISABLED: Final = 10174
BATCH_INCOMPLETE: Final = 10176
BATCHES_IN_FLIGHT: Final = 10210
TOO_MANY_REQUESTS: Final = 10167
STORE_FAILED: Final = 10077
STREAM_NOT_FOUND: Final = 10059
STREAM_EXISTS: Final = 10058
MESSAGE_NOT_FOUND: Final = 10037
CONSUMER_NOT_FOUND: Final = 10014
_CONFLICTS: Final = {
    WRONG_LAST_SEQUENCE,
    WRONG_LAST_SEQUENCE_IN_BATCH,
    DUPLICATE_IN_BATCH,
}
_NOT_STORED: Final = {BATCH_INCOMPLETE, BATCHES_IN_FLIGHT, TOO_MANY_REQUESTS}
_NO_SPACE: Final = {10002, 10023, 10028, 10047}
SERVER_FAULT: Final = 500
UNAVAILABLE: Final = 503
_LAST: Final = re.compile(r"wrong last sequence: (\d+)")
_IN_THE_CLEAR: Final = str(nats.errors.SecureConnWantedError())
_REFUSAL: Final = re.compile(
    r"authorization|authentication|credential|nkey|jwt", re.IGNORECASE
)
_DENIED: Final = re.compile(
    r'permissions violation for (\w+) to "([^"]+)"', re.IGNORECASE
)


@contextmanager
def nats_errors(*, url: str, doing: str) -> Iterator[None]:
    """Turn every failure of the client or the socket into `LogUnavailableError`."""
    try:
        yield
    except nats.errors.MaxPayloadError as error:
        raise SettingsError(
            field="payload", value="too large", rule="at most the server's max_payload"
        ) from error
    except nats.errors.BadSubjectError as error:
        raise SettingsError(
            field="subject", value=doing, rule="a NATS subject without spaces"
        ) from error
    except nats.errors.BadHeaderError as error:
        raise SettingsError(
            field="header", value=error.key, rule="a printable name without separators"
        ) from error
    except (nats.errors.Error, OSError, TimeoutError) as error:
        reason = str(error) or type(error).__name__
        raise LogUnavailableError(url=url, doing=doing, reason=reason) from error


def refusal_of(error: Exception, *, url: str) -> SettingsError | None:
    """Whether a failed connection was a refusal: of the credentials, or by us."""
    if _IN_THE_CLEAR in str(error):
        rule = "the server must offer TLS: nothing is sent there in the clear"
        return SettingsError(field="tls", value=url, rule=rule)
    if not _REFUSAL.search(str(error)):
        return None
    return SettingsError(
        field="credentials", value=url, rule=f"the server must accept them ({error})"
    )


def denied_subject(error: Exception) -> tuple[str, str] | None:
    """Read a permissions violation: what was denied and, in lower case, where."""
    found = _DENIED.search(str(error))
    return (found[1].lower(), found[2].lower()) if found else None


def denied(subject: str, *, verb: str) -> SettingsError:
    """Return the error for a refused permission."""
    return SettingsError(
        field="permissions",
        value=subject,
        rule=f"these credentials must be allowed to {verb} it",
    )


def append_error(
    error: ApiError, *, stream: str, messages: Sequence[Outgoing], url: str
) -> ControlPlaneError:
    """Say what a refused append means. Whatever is not definite is unknown."""
    code, said = error.err_code, error.description
    subject = named(messages)
    if code in _CONFLICTS:
        found = _LAST.search(said)
        return AppendConflictError(
            subject=subject,
            expected=_expected(messages),
            last=int(found[1]) if found else None,
            code=code,
        )
    if code in _NO_SPACE or (code == STORE_FAILED and "maximum" in said):
        return LogFullError(stream=stream, reason=f"{said} (err_code {code})")
    if code in _NOT_STORED:
        return LogUnavailableError(url=url, doing=f"appending to {stream}", reason=said)
    if code == DUPLICATE_IN_FLIGHT or error.code >= SERVER_FAULT:
        return AppendOutcomeUnknownError(
            subject=subject, reason=f"{said} (err_code {code})"
        )
    return SettingsError(
        field="append", value=subject, rule=f"{said} (err_code {code})"
    )


def named(messages: Sequence[Outgoing]) -> str:
    """Name what was appended: the server does not say which of a batch it meant."""
    first, others = messages[0].subject, len(messages) - 1
    return f"{first} and {others} more" if others else first


def _expected(messages: Sequence[Outgoing]) -> int | None:
    """The one expectation that was sent, if there was only one."""
    expected = [
        sequence
        for message in messages
        for sequence in (
            message.expect_subject_sequence,
            message.expect_stream_sequence,
        )
        if sequence is not None
    ]
    return expected[0] if len(expected) == 1 else None


def api_error(error: ApiError, *, url: str, doing: str) -> ControlPlaneError:
    """Say what a refused JetStream API request means."""
    said = f"{error.description} (err_code {error.err_code})"
    if error.err_code == STREAM_NOT_FOUND:
        return StreamMissingError(url=url, doing=doing, reason=said)
    if error.code >= UNAVAILABLE:
        return LogUnavailableError(url=url, doing=doing, reason=said)
    return SettingsError(field="request", value=doing, rule=said)
