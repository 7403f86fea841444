"""The file in which a program reads where its encoders or transformers are."""

import os
import pathlib
import threading

LOOK_SECONDS = 0.5


def place_to_listen(address: str) -> str:
    """A free port of the node with this address."""
    return f"[{address}]:0" if ":" in address else f"{address}:0"


class AddressFile:
    """A rank's copy of the book, renewed until it is left. Its program reads it again and again."""

    def __init__(self, read, folder: str) -> None:
        """`read`: gives the addresses."""
        self.path = os.path.join(folder, "encoders.txt")
        self._read = read
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> "AddressFile":
        self.write([])
        self._thread.start()
        return self

    def __exit__(self, *error) -> None:
        self._is_over.set()
        self._thread.join()

    def write(self, addresses: list[str]) -> None:
        pathlib.Path(self.path + ".new").write_text("".join(f"{address}\n" for address in addresses), encoding="ascii")
        os.replace(self.path + ".new", self.path)

    def _renew(self) -> None:
        known: list[str] = []
        while not self._is_over.wait(LOOK_SECONDS):
            try:
                found = self._read()
                if found != known:
                    self.write(found)
                    known = found
            except Exception:  # The driver's node is away, or this one's disk is full for a moment; what was known may still be there.
                continue
