"""What goes wrong in the C++ code, as exceptions. The messages are those of the command."""

from __future__ import annotations


class Error(RuntimeError):
    """Something failed. `code` says what kind of failure it is: invalid_argument, not_found, already_exists, failed_precondition,
    unavailable, corrupt_data, resource_exhausted, cancelled, internal or program_failed (a job's program ended); `row_error` is a picture's error code (docs/formats), or empty."""

    def __init__(self, message: str, code: str = "internal", row_error: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.row_error = row_error

    def __reduce__(self) -> tuple:
        return type(self), (str(self), self.code, self.row_error)

    def __str__(self) -> str:
        return str(self.args[0])


class InvalidArgument(Error, ValueError):
    """An argument alone is wrong."""


class NotFound(Error, FileNotFoundError):
    """A named file, column or row does not exist."""


class Unavailable(Error, OSError):
    """The store, the network or a device failed; the same call may succeed later."""


_CLASSES = {"invalid_argument": InvalidArgument, "not_found": NotFound, "unavailable": Unavailable}


def error_of(code: str, message: str, row_error: str = "") -> Error:
    return _CLASSES.get(code, Error)(message, code, row_error)
