"""The program darkroom as a Python package: `darkroom` on the command line, `python -m darkroom`."""
