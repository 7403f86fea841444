"""A long-lived `darkroom download|process --items -`: told the numbers of items, it says what became of each (docs/ingest.md)."""

from __future__ import annotations

import collections
import json
import os
import socket
import threading
from collections.abc import Callable

from darkroom.child_process import Child, ProgramFailed


def read_item_numbers(text: str) -> list[int]:
    """Numbers and ranges, as the program prints them: "0-4,7"."""
    items: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        items.extend(range(int(first), int(last or first) + 1))
    return items


class ItemChild:
    """Models are loaded and inputs are looked at once, however many items come. Thread safety: any thread may call do()."""

    def __init__(self, command: list[str], folder: str = "", environment: dict[str, str] | None = None,
                 on_said: Callable[[str], None] | None = None) -> None:
        """`command`: the program, a verb and its words, without --items. `folder`: the working folder, where it is there. `environment`:
        variables that it has besides. `on_said`: is given each line of its standard error."""
        self._changed = threading.Condition()
        self._answers: dict[int, collections.deque[dict]] = {}  # Of items that somebody waits for: one for each time it was asked for.
        self._plan: dict | None = None
        self._has_ended = False
        self._child = Child([*command[:2], "--items", "-", *command[2:]], environment, folder, is_fed=True, on_line=self._hear, on_said=on_said)
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._child.process.pid

    def _hear(self, line: str) -> bool:
        """Whether it is one of the program's answers; a library may say something too."""
        try:
            answer = json.loads(line)
        except ValueError:
            return False
        if not isinstance(answer, dict):
            return False
        with self._changed:
            if answer.get("ready"):
                self._plan = answer
            elif "item" in answer:
                self._answers.setdefault(answer["item"], collections.deque()).append(answer)
            self._changed.notify_all()
        return True

    def _watch(self) -> None:
        self._child.wait()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _failed(self) -> ProgramFailed:
        return ProgramFailed(self._child.wait(), self._child.last_words(), f"{socket.gethostname()} (process {os.getpid()})")

    def plan(self) -> dict:
        """Once the job is pinned and the models are loaded: `items`, `rows`, `open_items`. Errors: ProgramFailed."""
        with self._changed:
            self._changed.wait_for(lambda: self._plan is not None or self._has_ended)
            if self._plan is None:
                raise self._failed()
            return self._plan

    def do(self, items: list[int]) -> list[dict]:
        """Has these items done: an answer each. Errors: ProgramFailed; what was committed before stays. REQUIRES: each number once."""
        try:
            self._child.write("".join(f"{item}\n" for item in items))
        except (OSError, ValueError):  # Gone, or closed by another thread.
            raise self._failed() from None
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or all(item in self._answers for item in items))
            if not all(item in self._answers for item in items):
                raise self._failed()
            return [self._take(item) for item in items]

    def _take(self, item: int) -> dict:
        answers = self._answers[item]
        answer = answers.popleft()
        if not answers:
            del self._answers[item]
        return answer

    def close_input(self) -> None:
        """No item comes any more: it ends once what was asked of it is done."""
        self._child.close_input()

    def finish(self) -> list[str]:
        """As close_input(); waits for its end, and gives its warnings. Errors: ProgramFailed."""
        self.close_input()
        if self._child.wait() != 0:
            raise self._failed()
        return self._child.warnings()

    def end(self) -> None:
        self._child.process.kill()
