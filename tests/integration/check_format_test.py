#!/usr/bin/env python3
"""tools/check/check_format.sh, in a checkout and in an unpacked archive: it finds the sources, or fails when there are none."""

import contextlib
import pathlib
import shutil
import subprocess

from cases import main, require, temporary_folder

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOOD, BAD = "int answer() { return 42; }\n", "int  answer( ) {return 42;}\n"


@contextlib.contextmanager
def tree(**sources: str):
    """A folder with the check and these sources: folder__name=text is folder/name.cpp."""
    with temporary_folder() as folder:
        for part in ("tools/check/check_format.sh", ".clang-format"):
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / part, folder / part)
        (folder / ".venv" / "bin").mkdir(parents=True)
        (folder / ".venv" / "bin" / "clang-format").symlink_to((ROOT / ".venv" / "bin" / "clang-format").resolve())
        (folder / ".gitignore").write_text("/build/\n/.venv/\n")
        for name, text in sources.items():
            path = folder / (name.replace("__", "/") + ".cpp")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        yield folder


def check(folder: pathlib.Path, status: int, words: str, *flags: str) -> None:
    done = subprocess.run([folder / "tools/check/check_format.sh", *flags], capture_output=True, text=True, check=False)
    require(done.returncode == status and words in done.stdout + done.stderr, "the check:", done.returncode, done.stdout[-500:], done.stderr[-500:])


def git(folder: pathlib.Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True)


def sources_of_an_unpacked_archive_are_checked() -> None:
    with tree(src__a=GOOD, tests__unit__b=GOOD, build__generated=BAD) as folder:
        check(folder, 0, "2 files are formatted")
    with tree(src__a=GOOD, apps__darkroom__b=BAD) as folder:
        check(folder, 1, "apps/darkroom/b.cpp")


def an_archive_that_lies_in_another_checkout_is_checked() -> None:
    with tree(src__a=GOOD) as outer, tree(src__a=BAD) as inner:
        git(outer, "init", "--quiet")
        (outer / ".gitignore").write_text("/unpacked/\n")
        shutil.copytree(inner, outer / "unpacked", symlinks=True)
        check(outer / "unpacked", 1, "src/a.cpp")


def sources_of_a_checkout_are_checked_but_for_ignored_ones() -> None:
    with tree(src__tracked=GOOD, other__new=GOOD, build__generated=BAD) as folder:
        git(folder, "init", "--quiet")
        git(folder, "add", "src")
        check(folder, 0, "2 files are formatted")
        (folder / "other" / "new.cpp").write_text(BAD)
        check(folder, 1, "other/new.cpp")


def fix_formats_what_is_checked() -> None:
    with tree(src__a=BAD, other__b=BAD) as folder:
        check(folder, 0, "1 files are formatted", "--fix")
        check(folder, 0, "1 files are formatted")
        require((folder / "src" / "a.cpp").read_text() != BAD and (folder / "other" / "b.cpp").read_text() == BAD, "other files were formatted")


def a_tree_without_sources_fails() -> None:
    with tree() as folder:
        check(folder, 1, "no source was found")
        git(folder, "init", "--quiet")
        check(folder, 1, "no source was found")


def a_checkout_that_git_cannot_read_fails() -> None:
    with tree(src__a=GOOD) as folder:
        (folder / ".git").write_text("gitdir: /nowhere\n")
        check(folder, 128, "not a git repository")


if __name__ == "__main__":
    main([
        sources_of_an_unpacked_archive_are_checked,
        an_archive_that_lies_in_another_checkout_is_checked,
        sources_of_a_checkout_are_checked_but_for_ignored_ones,
        fix_formats_what_is_checked,
        a_tree_without_sources_fails,
        a_checkout_that_git_cannot_read_fails,
    ])
