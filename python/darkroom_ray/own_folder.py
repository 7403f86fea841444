"""A temporary folder that goes with its process, also when that is killed: then the next one of its kind on this machine removes it."""

import contextlib
import fcntl
import os
import pathlib
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator

# Held by flock for as long as the owner lives, which says nothing of owners on other machines that share the parent.
LOCK = f"darkroom.{socket.gethostname()}.lock"


@contextlib.contextmanager
def own_folder(prefix: str, parent: str = "") -> Iterator[str]:
    """`parent`: the one for temporary files, where none is named. Those with this prefix there whose owners are dead are removed first."""
    parent = parent or tempfile.gettempdir()
    for lock in pathlib.Path(parent).glob(f"{prefix}*/{LOCK}"):
        with contextlib.suppress(OSError):  # Its owner lives; or another process removes it.
            remove_left(lock)
    folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
    try:
        with open(os.path.join(folder, "new"), "w", encoding="ascii") as held:
            with contextlib.suppress(OSError):  # A file system without locks: what is left there stays.
                fcntl.flock(held, fcntl.LOCK_EX)
                os.rename(held.name, os.path.join(folder, LOCK))  # Whoever sees the lock sees it held.
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left(lock: pathlib.Path) -> None:
    """Removes the folder of a lock that nobody holds. Errors: OSError: somebody does, or it is not ours."""
    about = lock.parent.lstat()  # Not through a link that somebody else has put there.
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        return
    with open(lock, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in lock.parent.iterdir():
            if path != lock:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        lock.unlink()  # The last one: what is cut here is seen by the next process.
        lock.parent.rmdir()
