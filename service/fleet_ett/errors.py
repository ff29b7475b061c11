"""What the service may say went wrong: a code for programs, a message for people.

    EttError
    |-- Invalid          invalid      the request or a setting cannot be understood; says what is expected
    |   `-- Unsupported  unsupported  a media type or encoding that the service does not speak
    |-- Unauthorized     unauthorized who asks has not shown a token that is good
    |-- Denied           denied       the service will not do this, as it is configured or for who asks
    |-- NotFound         not_found    no such job, component or path
    |-- Conflict         conflict     true of the request, but not of the books as they stand
    |-- TooLarge         too_large    beyond a limit of the wire
    |-- Unstorable       internal     the database refuses what is in a batch, however often it comes
    `-- Unavailable      unavailable  not now: try again after `retry_after_s`
        `-- Busy         busy         the sender is too fast: slow down for `retry_after_s`

Nothing here knows HTTP: `http/errors.py` alone maps codes to status. Any other exception is a bug;
its text is logged with an id and never shown.
"""

from __future__ import annotations


class EttError(Exception):
    """An error with a stable code; `message` is meant for the person who sent the request."""

    code = "internal"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Invalid(EttError):  # noqa: N818 - read as a verdict: raise Invalid("from must be ...")
    """The request or a setting cannot be understood."""

    code = "invalid"


class Unsupported(Invalid):
    """A media type or encoding that the service does not speak."""

    code = "unsupported"


class Unauthorized(EttError):  # noqa: N818
    """Who asks has not shown a token that is good."""

    code = "unauthorized"


class Denied(EttError):  # noqa: N818
    """The service will not do this, as it is configured or for who asks."""

    code = "denied"


class NotFound(EttError):  # noqa: N818
    """No such job, component or path."""

    code = "not_found"


class Conflict(EttError):  # noqa: N818
    """True of the request, but not of the books as they stand."""

    code = "conflict"


class TooLarge(EttError):  # noqa: N818
    """Beyond a limit of the wire."""

    code = "too_large"


class Unstorable(EttError):  # noqa: N818
    """The database refuses what is in a batch, however often it comes."""


class Unavailable(EttError):  # noqa: N818
    """Not now; the sender keeps what it has and tries again after `retry_after_s` seconds."""

    code = "unavailable"

    def __init__(self, message: str, *, retry_after_s: int = 5) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Busy(Unavailable):
    """The sender is too fast."""

    code = "busy"
