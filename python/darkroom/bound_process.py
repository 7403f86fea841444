"""bound_process.py PARENT COMMAND...: becomes the command, which is killed when the process PARENT ends.

A process of its own, because code between fork and exec in a process of many threads may hang.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    os._exit(128 + signal.SIGKILL)  # It ended before.
os.execv(sys.argv[2], sys.argv[2:])
