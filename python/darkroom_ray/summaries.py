"""The files in which a command says how it has ended: --json-summary, and the report of a pipeline."""

import contextlib
import json
import os

from darkroom_ray.flags import Refused
from darkroom_ray.request import Request
from darkroom_ray.stopping import JobFailed, Stopped


def check_summary_place(path: str) -> None:
    """Before a job: it would be lost at its end. Makes nothing, and leaves an earlier summary until this job has one. Errors: Refused."""
    if not path:
        return
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise Refused(f"--json-summary must name a file, and this is a folder: {path}")
    if not os.path.isdir(folder):
        raise Refused(f"--json-summary: there is no folder {folder}")
    if not os.access(path if os.path.exists(path) and not is_replaced(path) else folder, os.W_OK):
        raise Refused(f"--json-summary: nothing can be written to {path}")


def is_replaced(path: str) -> bool:
    """Whether a file of this name is replaced, or made; a link, a pipe or a device is written through."""
    return not os.path.islink(path) and (os.path.isfile(path) or not os.path.exists(path))


def write_json(path: str, document: dict) -> None:
    """In one step, where a file is replaced. Errors: OSError."""
    place = path + ".new" if is_replaced(path) else path
    try:
        with open(place, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
            file.write("\n")
        if place != path:
            os.replace(place, path)
    except OSError:
        if place != path:
            with contextlib.suppress(OSError):
                os.remove(place)
        raise


def summary_of_end(request: Request, failure: JobFailed | Stopped) -> dict:
    """Of a job that has failed or was stopped."""
    why = f"stopped by {failure}; what was committed is safe: run the same command again to go on" if isinstance(failure, Stopped) else str(failure)
    return {request.command()[0]: failure.summary, "error": why}


def write_summary(path: str, summary: dict, code: int = 0) -> None:
    """`code`: the job's own exit code, which is kept where it is none of success. Errors: JobFailed."""
    if path:
        try:
            write_json(path, summary)
        except OSError as error:
            raise JobFailed(f"--json-summary cannot be written: {error}", code or 1) from None
