#!/usr/bin/env python3
"""Programs as children of Python: what reads their words may fail, and processes may be forked beside them.

usage: child_process_test.py
"""

import contextlib
import errno
import gc
import os
import pickle
import signal
import sys
import time
import unittest.mock

from cases import main, require, temporary_folder
from ray_units import PATIENCE, ROOT

sys.path.insert(0, str(ROOT / "python"))

from darkroom import jobs  # noqa: E402
from darkroom.child_process import Child  # noqa: E402
from darkroom.jobs import Job  # noqa: E402


def full_disk(*unused) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def words_that_nobody_can_take_end_no_program() -> None:
    """The thread that forked a program reads what it says: its end would be the program's, too."""
    for hooks in ({"on_said": full_disk}, {"on_line": full_disk}):
        child = Child(["/bin/sh", "-c", "for i in 1 2 3; do echo said; echo said >&2; sleep 0.1; done; exit 7"], **hooks)
        require(child.wait(PATIENCE) == 7, "exit code", hooks, child.poll())
        require(child.said.count("said") == (6 if "on_line" in hooks else 3), "its words are kept", list(child.said))


def a_fork_holds_no_program_up() -> None:
    """As the workers of a DataLoader, which live until their parent ends them. And a fork beside a start can start its own."""
    child = Child(["/bin/cat"], is_fed=True, on_line=lambda line: True)
    job = Job("process", ["a", "b"], {})
    with job._starting:
        forked = os.fork()
        if forked == 0:
            time.sleep(600 if job._starting.acquire(timeout=5) else 0)
            os._exit(1)
    try:
        child.close_input()
        require(child.wait(PATIENCE) == 0, "its end")
        time.sleep(6)
        require(os.waitpid(forked, os.WNOHANG) == (0, 0), "the fork found the lock held")
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(forked, signal.SIGKILL)
            os.waitpid(forked, 0)


def a_job_that_nobody_holds_leaves_no_program_behind() -> None:
    with temporary_folder() as folder:
        program = folder / "darkroom"
        program.write_text("#!/bin/sh\necho '{\"ready\": true, \"open_items\": \"0-2\"}'\nexec cat > /dev/null\n")
        program.chmod(0o755)
        with unittest.mock.patch.object(jobs, "PROGRAM", program):
            job = Job("process", ["a", "b"], {})
            copy = pickle.loads(pickle.dumps(job))
            require(job.open_items == copy.open_items == [0, 1, 2], "a program each")
            kept, left = job._child, copy._child
            del copy
            gc.collect()
            require(left._child.wait(PATIENCE) == 0, "its end, in order")
            require(kept._child.poll() is None, "that of another job")
            job._end(kept)
            require(kept._child.wait(PATIENCE) == -signal.SIGKILL, "killed")
            left = job._started()
            del job
            gc.collect()
            require(left._child.wait(PATIENCE) == 0, "the one that took its place")


if __name__ == "__main__":
    main([words_that_nobody_can_take_end_no_program, a_fork_holds_no_program_up, a_job_that_nobody_holds_leaves_no_program_behind])
