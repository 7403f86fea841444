#!/usr/bin/env python3
"""tools/build's scripts on machines that are not there: other processors, distributions, memories, tools that fail.

Each test runs the scripts in a folder of its own, with stand-ins for the commands that ask the machine.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from cases import main, require

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEBIAN_12 = "ID=debian\nVERSION_ID=12\n"
# What a machine that is no Debian is asked for, a package of requirements/apt.txt each; and what it is not asked for (setup.sh says why).
ASKED_FOR = {
    "g++": "g++", "cmake": "cmake", "ninja-build": "ninja", "make": "make", "git": "git", "pkg-config": "pkg-config", "python3": "python3",
    "python3-venv": "python3-venv", "python3-dev": "python3-dev", "libfmt-dev": "fmt.pc", "nlohmann-json3-dev": "nlohmann_json.pc",
    "libcurl4-openssl-dev": "libcurl.pc", "libssl-dev": "openssl.pc", "libc-ares-dev": "libcares.pc", "libidn2-dev": "libidn2.pc", "libxxhash-dev": "libxxhash.pc",
    "libjpeg62-turbo-dev": "libjpeg.pc", "libpng-dev": "libpng.pc", "libwebp-dev": "libwebp.pc", "libhwy-dev": "libhwy.pc", "libcli11-dev": "CLI11.pc",
    "libboost-dev": "boost/beast.hpp", "libtomlplusplus-dev": "tomlplusplus.pc", "libgtest-dev": "gtest.pc", "libgmock-dev": "gmock.pc",
    "fonts-noto-color-emoji": "/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf", "unicode-data": "/usr/share/unicode/emoji/emoji-test.txt"}
NOT_ASKED_FOR = {"ccache", "ca-certificates"}


class Machine:
    """A checkout with only what the scripts read, and commands that answer as told."""

    def __init__(self, folder: str) -> None:
        self.root = pathlib.Path(folder)
        self.checkout = self.root / "checkout"
        self.bin = self.root / "bin"
        self.bin.mkdir()
        shutil.copytree(ROOT / "tools/build", self.checkout / "tools/build")
        shutil.copytree(ROOT / "requirements", self.checkout / "requirements")
        (self.root / "os-release").write_text(DEBIAN_12)
        (self.root / "meminfo").write_text("MemTotal: 32000000 kB\nMemAvailable:   16000000 kB\n")
        self.environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "OS_RELEASE": str(self.root / "os-release"),
                            "PROC_MEMINFO": str(self.root / "meminfo"), "CGROUP": str(self.root / "cgroup")}
        self.environment.pop("JOBS", None)
        self.command("dpkg-query", "echo install ok installed")
        self.command("nproc", "echo 8")

    def command(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run(words, cwd=self.checkout, env={**self.environment, **environment}, capture_output=True, text=True, check=False)

    def setup(self) -> subprocess.CompletedProcess:
        return self.run("tools/build/setup.sh", "build")

    def jobs(self, **environment: str) -> str:
        return self.run("bash", "-c", ". tools/build/progress.sh; count_jobs", **environment).stdout


class MachineTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.machine = Machine(folder.name)


class SetupTest(MachineTest):
    def stand_in_python(self, pip: str) -> None:
        """A Python 3.12 whose venv is a folder and whose pip is the given shell code."""
        self.machine.command("python3", f"""case "$*" in
  *sys.version_info*) exit 0 ;;
  --version) echo Python 3.12.1 ;;
  "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
  "-m pip install"*) {pip} ;;
esac""")

    def test_another_processor_is_refused_by_name(self) -> None:
        self.machine.command("uname", '[ "$1" = -m ] && echo aarch64 || echo Linux')
        done = self.machine.setup()
        self.assertEqual(done.returncode, 1)
        self.assertIn("aarch64", done.stderr)

    def test_the_plugin_without_its_compiler_is_refused_before_anything_is_installed(self) -> None:
        for said, found in (("Cuda compilation tools, release 12.4, V12.4.131", "release 12.4"), ("", "none")):
            self.machine.command("nvcc", f"echo '{said}'")
            done = self.machine.run("tools/build/setup.sh", "cuda")
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(f"needs the toolkit of CUDA 13, with nvcc on the PATH; found: {found}", done.stderr)

    def test_the_plugins_libraries_get_an_environment_of_their_own(self) -> None:
        self.machine.command("nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.88'")
        self.stand_in_python("exit 0")
        done = self.machine.run("tools/build/setup.sh", "cuda")
        self.assertEqual(done.returncode, 0, done.stderr)
        for folder, lock in ((".venv", "build.txt"), (".venv-cuda", "cuda.txt")):
            digest = hashlib.sha256((ROOT / "requirements" / lock).read_bytes()).hexdigest()
            self.assertEqual((self.machine.checkout / folder / ".lock-stamp").read_text(), digest)

    def test_another_distribution_is_told_what_is_missing(self) -> None:
        (self.machine.root / "os-release").write_text("ID=ubuntu\nVERSION_ID=24.04\n")
        self.machine.command("pkg-config", '[ "$2" != tomlplusplus ] && [ "$2" != libhwy ]')
        done = self.machine.setup()
        self.assertEqual(done.returncode, 1)
        self.assertIn("ubuntu 24.04", done.stderr)
        self.assertIn("libhwy.pc tomlplusplus.pc", done.stderr)
        self.assertNotIn("libpng.pc", done.stderr)

    def test_another_distribution_is_told_of_data_tools_and_modules_too(self) -> None:
        (self.machine.root / "os-release").write_text("ID=arch\n")
        self.machine.command("pkg-config", "exit 0")
        self.machine.command("python3", 'case "$*" in *ensurepip*) exit 1 ;; *version_info*) exit 0 ;; --version) echo Python 3.12.1 ;; esac')
        for tool in pathlib.Path("/usr/bin").iterdir():  # A machine without make and git.
            if tool.name not in ("make", "git") and not (self.machine.bin / tool.name).exists():
                (self.machine.bin / tool.name).symlink_to(tool)
        done = self.machine.run("tools/build/setup.sh", "build", PATH=str(self.machine.bin), SYSTEM_ROOT=str(self.machine.root / "empty"))
        self.assertEqual(done.returncode, 1)
        for missing in (" make ", " git ", " python3-venv ", " /usr/share/unicode/emoji/emoji-test.txt ", " /usr/share/fonts/truetype/noto/NotoColorEmoji.ttf "):
            self.assertIn(missing, done.stderr + " ")
        self.assertNotIn("g++", done.stderr)

    def test_another_distribution_is_asked_for_every_package_that_debian_would_install(self) -> None:
        listed = set((ROOT / "requirements/apt.txt").read_text().split())
        self.assertEqual({*ASKED_FOR, *NOT_ASKED_FOR}, listed, "each package of requirements/apt.txt is asked for by setup.sh or excused here")
        (self.machine.root / "os-release").write_text("ID=arch\n")
        tools = {name for name in ASKED_FOR.values() if "." not in name and "/" not in name}
        for tool in pathlib.Path("/usr/bin").iterdir():
            if not tool.name.startswith(tuple(tools)) and not (self.machine.bin / tool.name).exists():
                (self.machine.bin / tool.name).symlink_to(tool)
        nothing = {"PATH": str(self.machine.bin), "SYSTEM_ROOT": str(self.machine.root / "empty")}
        asked = set(self.machine.run("tools/build/setup.sh", "build", **nothing).stderr.split())
        self.machine.command("python3", 'case "$*" in *version_info*) exit 0 ;; *) exit 1 ;; esac')  # Without ensurepip and headers.
        asked |= set(self.machine.run("tools/build/setup.sh", "build", **nothing).stderr.split())
        self.assertEqual([package for package, name in ASKED_FOR.items() if name not in asked], [], "packages that are not asked for")

    def test_another_distribution_with_everything_goes_on(self) -> None:
        (self.machine.root / "os-release").write_text("ID=arch\n")
        self.machine.command("pkg-config", "exit 0")
        self.stand_in_python("exit 0")
        done = self.machine.setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("nobody tests", done.stdout)

    def test_sizes_are_said_before_anything_is_downloaded(self) -> None:
        self.stand_in_python('echo "pip runs" >>"$HOME/said"; exit 0')
        done = self.machine.run("tools/build/setup.sh", "build", HOME=str(self.machine.root))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\d+ MB to download, \d+ MB on disk")

    def test_a_disk_without_room_for_all_tests_is_refused_before_anything_is_installed(self) -> None:
        self.stand_in_python("exit 0")
        self.machine.command("apt-get", f"touch {self.machine.root}/installed")
        for free, status in (("7949", 1), ("7950", 0)):
            self.machine.command("df", f"echo Avail; echo {free}")
            done = self.machine.run("tools/build/setup.sh", "test")
            self.assertEqual(done.returncode, status, done.stderr)
            if status == 1:
                self.assertIn("make test needs 7950 MB more on this disk (build/release 1350 MB, build/asan-ubsan 2950 MB, ", done.stderr)
                self.assertIn("and only 7949 MB are free", done.stderr)
                self.assertFalse((self.machine.checkout / ".venv").exists() or (self.machine.root / "installed").exists())

    def test_what_is_there_needs_no_room_again(self) -> None:
        self.stand_in_python("exit 0")
        self.machine.command("df", "echo Avail; echo 4000")
        self.machine.command("du", 'case "$2" in build/asan-ubsan) printf "3200\\t$2\\n" ;; build/release) printf "1000\\t$2\\n" ;; *) exit 1 ;; esac')
        done = self.machine.run("tools/build/setup.sh", "test")
        self.assertEqual(done.returncode, 0, done.stderr)  # 350 + 1000 + 1500 + 700 + 150 + 300.
        self.machine.command("df", "echo Avail; echo 3000")
        done = self.machine.run("tools/build/setup.sh", "test")
        self.assertIn("needs 4000 MB more on this disk (build/release 350 MB, build/tsan 1000 MB, ", done.stderr)

    def test_the_sanitizers_compiler_is_installed_where_it_was_tried(self) -> None:
        self.stand_in_python("exit 0")
        self.machine.command("df", "echo Avail; echo 100000")
        self.machine.command("apt-get", 'echo "$*" >>"$(dirname "$0")/../asked"')
        self.machine.command("sudo", "")
        self.machine.command("dpkg-query", """case "$4" in clang-14 | llvm | libclang-rt-14-dev) exit 1 ;; esac
echo install ok installed""")
        asked = self.machine.root / "asked"
        for version, kind, is_asked_for in ((13, "test", False), (12, "acceptance", False), (12, "test", True)):
            (self.machine.root / "os-release").write_text(f"ID=debian\nVERSION_ID={version}\n")
            self.assertEqual(self.machine.run("tools/build/setup.sh", kind).returncode, 0)
            self.assertEqual(asked.exists() and "clang-14 libclang-rt-14-dev llvm\n" in asked.read_text(), is_asked_for, (version, kind))

    def test_a_changed_lock_makes_the_environment_anew(self) -> None:
        self.stand_in_python("exit 0")
        self.assertEqual(self.machine.setup().returncode, 0)
        leftover = self.machine.checkout / ".venv/of_the_old_lock"
        leftover.touch()
        self.assertIn("up to date", self.machine.setup().stdout)
        self.assertTrue(leftover.exists())
        with open(self.machine.checkout / "requirements/build.txt", "a", encoding="utf-8") as lock:
            lock.write("# changed\n")
        self.assertEqual(self.machine.setup().returncode, 0)
        self.assertFalse(leftover.exists())

    def test_a_failed_download_says_so_and_is_tried_again(self) -> None:
        self.stand_in_python('echo "no route to the index"; exit 1')
        done = self.machine.setup()
        self.assertEqual(done.returncode, 1)
        self.assertIn("no route to the index", done.stderr)
        self.stand_in_python("exit 0")
        self.assertNotIn("up to date", self.machine.setup().stdout)

    def test_an_environment_outlives_the_failure_of_the_next(self) -> None:
        self.stand_in_python("exit 0")
        self.assertEqual(self.machine.setup().returncode, 0)
        kept = self.machine.checkout / ".venv/of_the_old_lock"
        kept.touch()
        with open(self.machine.checkout / "requirements/build.txt", "a", encoding="utf-8") as lock:
            lock.write("# changed\n")
        self.stand_in_python("exit 1")
        for _ in range(2):
            self.assertEqual(self.machine.setup().returncode, 1)
            self.assertTrue(kept.exists())

    def test_the_old_environment_of_a_cut_clean_up_is_no_environment(self) -> None:
        self.stand_in_python("exit 0")
        self.assertEqual(self.machine.setup().returncode, 0)
        kept = self.machine.checkout / ".venv/of_the_old_lock"
        kept.touch()
        ruin = self.machine.checkout / ".venv.before"
        ruin.mkdir()
        with open(self.machine.checkout / "requirements/build.txt", "a", encoding="utf-8") as lock:
            lock.write("# changed\n")
        self.stand_in_python("exit 1")
        self.assertEqual(self.machine.setup().returncode, 1)
        self.assertTrue(kept.exists())
        ruin.mkdir()
        with open(self.machine.checkout / ".venv/.lock-stamp", "w", encoding="utf-8") as stamp:
            stamp.write(hashlib.sha256((self.machine.checkout / "requirements/build.txt").read_bytes()).hexdigest())
        self.assertIn("up to date", self.machine.setup().stdout)
        self.assertFalse(ruin.exists())

    def test_a_python_that_lost_its_packages_gets_them_again(self) -> None:
        self.stand_in_python("exit 0")
        self.assertEqual(self.machine.setup().returncode, 0)
        python = self.machine.checkout / ".venv/bin/python"
        python.write_text(python.read_text().replace('case "$*" in', 'case "$*" in *"import numpy"*) exit 1 ;;', 1))
        self.assertNotIn("up to date", self.machine.setup().stdout)

    def test_packages_are_installed_without_questions_through_sudo(self) -> None:
        self.machine.command("id", "echo 1000")
        self.machine.command("dpkg-query", "exit 1")
        self.machine.command("sudo", '[ "$1" = -v ] || exec env -u DEBIAN_FRONTEND "$@"')  # sudo strips the variable.
        self.machine.command("apt-get", f'[ "$1" != install ] || echo "frontend=$DEBIAN_FRONTEND" >>{self.machine.root}/said')
        self.stand_in_python("exit 0")
        done = self.machine.setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("frontend=noninteractive", (self.machine.root / "said").read_text())

    def test_the_checks_of_acceptance_and_all_tests_get_the_real_servers(self) -> None:
        self.stand_in_python("exit 0")
        asked = self.machine.root / "asked"
        self.machine.command("dpkg-query", '[[ $* = *radosgw* ]] || echo install ok installed')
        self.machine.command("apt-get", f'echo "$*" >> {asked}')
        self.machine.command("sudo", '[ "$1" = -n ] && shift; exec "$@"')
        for kind, wants in (("build", False), ("acceptance", True), ("test", True)):
            asked.write_text("")
            done = self.machine.run("tools/build/setup.sh", kind)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("radosgw" in asked.read_text(), wants, kind)

    def test_a_long_step_says_that_it_lives(self) -> None:
        done = self.machine.run("bash", "-c", ". tools/build/progress.sh; plain() { echo 3 of 9; }; follow step plain log sleep 1.2",
                                PLAIN_LINE_EVERY_SECONDS="1")
        self.assertIn("step: 3 of 9, 1 s", done.stdout)


class JobsTest(MachineTest):
    def test_every_core_where_memory_allows(self) -> None:
        self.assertEqual(self.machine.jobs(), "8")

    def test_no_more_than_memory_allows(self) -> None:
        (self.machine.root / "meminfo").write_text("MemAvailable:    6100000 kB\n")
        self.assertEqual(self.machine.jobs(), "3")

    def test_one_on_the_smallest_machine(self) -> None:
        (self.machine.root / "meminfo").write_text("MemAvailable:     500000 kB\n")
        self.assertEqual(self.machine.jobs(), "1")

    def test_a_containers_limit_counts(self) -> None:
        cgroup = self.machine.root / "cgroup"
        cgroup.mkdir()
        (cgroup / "memory.max").write_text(f"{5_000_000 * 1024}\n")
        (cgroup / "memory.current").write_text(f"{900_000 * 1024}\n")
        self.assertEqual(self.machine.jobs(), "2")
        (cgroup / "memory.max").write_text("max\n")
        self.assertEqual(self.machine.jobs(), "8")

    def test_the_users_word_wins(self) -> None:
        self.assertEqual(self.machine.jobs(JOBS="5"), "5")


class BareMachineTest(MachineTest):
    """bare_machine.sh with stand-ins for what only root may do; `mounted` holds the places that are mounted now."""

    def setUp(self) -> None:
        super().setUp()
        self.mounted = self.machine.root / "mounted"
        self.mounted.touch()
        self.private = self.machine.root / "private"
        self.machine.command("id", "echo 0")
        self.machine.command("git", "echo 1234567")
        self.machine.command("mountpoint", f'grep -qxF "$2" {self.mounted}')
        # What is made private is written down as such, and only when it is the last that was mounted.
        private = f'[ "$2" = "$(tail -n 1 {self.mounted})" ] && echo "$2" >{self.private}'
        self.machine.command("mount", f'if [ "$1" = --make-private ]; then {private}; else echo "${{@: -1}}" >>{self.mounted}; fi')
        self.machine.command("umount", f'[ "$1" = -l ] && grep -qxF "$2" {self.mounted} && sed -i "\\|^$2\\$|d" {self.mounted}')

    def stage(self, chroot: str, **environment: str) -> tuple[subprocess.CompletedProcess, list[str]]:
        """Runs the stage `build`, whose commands are the given shell code; also the places that were mounted meanwhile."""
        root = self.machine.root / "roots/trixie-root"
        (root / "etc").mkdir(parents=True, exist_ok=True)
        (root / "stages.commit").write_text("1234567\n")
        self.machine.command("chroot", f'cp {self.mounted} {self.machine.root}/during; printf "%s\\n" "$@" >{self.machine.root}/words; {chroot}')
        done = self.machine.run("tools/build/bare_machine.sh", "trixie", "root", "build", BARE_MACHINE_ROOTS=str(root.parent), **environment)
        places = [str(pathlib.Path(place).relative_to(root)) for place in (self.machine.root / "during").read_text().split()]
        return done, places

    def test_a_root_keeps_nothing_of_the_machine(self) -> None:
        for chroot, status in (("exit 0", 0), ("exit 7", 7), ("kill -TERM $PPID; sleep 1", None)):
            done, places = self.stage(chroot)
            self.assertEqual(places, ["proc", "dev", "dev/shm", "dev/pts"])
            self.assertEqual(self.private.read_text(), f"{self.machine.root}/roots/trixie-root/dev\n")  # Else they would lie in /dev, too.
            self.assertEqual(self.mounted.read_text(), "", done.stderr)
            if status is None:
                self.assertNotEqual(done.returncode, 0)
            else:
                self.assertEqual(done.returncode, status, done.stderr)
            (self.machine.root / "roots/trixie-root/stages/build").unlink(missing_ok=True)

    def test_a_compiler_cache_is_named_wherever_the_stage_is(self) -> None:
        bare, _ = self.stage("exit 0")
        self.assertNotIn("not bare", bare.stdout)
        self.assertNotIn("CCACHE", (self.machine.root / "words").read_text())
        (self.machine.root / "roots/trixie-root/stages/build").unlink()
        cache = self.machine.root / "cache"
        for turn in ("built", "done already"):
            done, places = self.stage("exit 0", BARE_MACHINE_CCACHE=str(cache))
            self.assertTrue(done.stdout)
            for line in done.stdout.splitlines():
                self.assertIn("not bare", line, turn)
        self.assertEqual(places, ["proc", "dev", "dev/shm", "dev/pts", "var/ccache"])
        self.assertIn("CCACHE_DIR=/var/ccache\n", (self.machine.root / "words").read_text())
        self.assertEqual(self.mounted.read_text(), "")
        self.assertTrue(cache.is_dir())

    def test_what_was_compiled_through_a_cache_is_never_called_bare(self) -> None:
        self.stage("exit 0", BARE_MACHINE_CCACHE=str(self.machine.root / "cache"))
        (self.machine.root / "roots/trixie-root/stages/build").unlink()
        done, _ = self.stage("exit 0")
        self.assertIn("not bare", done.stdout)

    def test_a_stage_is_done_for_the_sources_that_the_root_had(self) -> None:
        self.stage(f"printf '%s\\n' '#!/bin/bash' 'echo 7654321' >{self.machine.bin}/git")  # A commit in the middle of the stage.
        done, _ = self.stage("exit 0")
        self.assertNotIn("is done", done.stdout)

    def test_the_largest_size_of_a_root_is_seen_while_the_stage_runs(self) -> None:
        """The stage goes on once it has been looked at; then the root is small again."""
        peak = self.machine.root / "roots/trixie-root/stages.peak"
        self.machine.command("du", f'if [ -e {self.machine.root}/ended ]; then printf "70\\t$2\\n"; else printf "900\\t$2\\n"; fi')
        done, _ = self.stage(f"while [ ! -s {peak} ]; do sleep 0.1; done; touch {self.machine.root}/ended")
        self.assertRegex(done.stdout, r"took \d+ s, the root has 70 MB and had 900 at most\n")
        self.assertIn("70 MB, 900 at most\n", (self.machine.root / "roots/trixie-root/stages/build").read_text())

    def demo(self, root: str, shard: str) -> None:
        """A root that ran the stage demo."""
        home = "home/painter" if root.endswith("user") else "root"
        for part in ("images", "latents"):
            folder = self.machine.root / "roots" / root / home / "darkroom/demo-run" / part
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "part-000000.parquet").write_text(shard)
        (self.machine.root / "roots" / root / "stages").mkdir(exist_ok=True)
        (self.machine.root / "roots" / root / "stages/demo").write_text("1234567\n")

    def test_demos_of_both_releases_are_compared(self) -> None:
        def compared() -> subprocess.CompletedProcess:
            return self.machine.run("tools/build/bare_machine.sh", "compare", BARE_MACHINE_ROOTS=str(self.machine.root / "roots"))

        self.demo("bookworm-root", "bytes")
        self.demo("bookworm-user", "bytes")
        done = compared()
        self.assertEqual(done.returncode, 1)
        self.assertIn("no root of trixie ran the stage demo of this commit; there are: bookworm-root bookworm-user\n", done.stderr)
        self.demo("trixie-user", "bytes")
        done = compared()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("of 3 demos are the same bytes", done.stdout)
        self.demo("trixie-user", "other bytes")
        self.assertIn("differ", compared().stderr)

    def test_a_checkout_that_a_stop_left_hidden_comes_back(self) -> None:
        hidden = self.machine.root / "roots/trixie-root/root/.hidden"
        hidden.mkdir(parents=True)
        self.stage("exit 7")
        self.assertFalse(hidden.exists())
        self.assertTrue((hidden.parent / "darkroom").is_dir())


class BuildTest(MachineTest):
    def configure(self, ninja: str) -> None:
        self.machine.command("cmake", "mkdir -p build/release; touch build/release/build.ninja build/release/CMakeCache.txt; echo run >>cmake.log")
        self.machine.command("ninja", ninja)

    def build(self) -> subprocess.CompletedProcess:
        return self.machine.run("tools/build/build.sh", "release", "darkroom")

    def test_a_compiler_that_dies_without_a_word_is_reported(self) -> None:
        self.configure("echo '[1/9] Building'; exit 1")
        done = self.build()
        self.assertEqual(done.returncode, 1)
        self.assertIn("build/release/compile.log", done.stderr)

    def test_a_moved_checkout_is_configured_anew(self) -> None:
        self.configure("exit 0")
        self.assertEqual(self.build().returncode, 0)
        self.assertEqual(self.build().returncode, 0)
        self.assertEqual((self.machine.checkout / "cmake.log").read_text(), "run\n")
        moved = self.machine.checkout.rename(self.machine.root / "moved")
        self.machine.checkout = moved
        self.assertEqual(self.build().returncode, 0)
        self.assertEqual((moved / "cmake.log").read_text(), "run\nrun\n")


def as_case(test: unittest.TestCase):
    """A method as the function that the gate counts."""

    def case() -> None:
        result = unittest.TestResult()
        test.run(result)
        require(result.wasSuccessful(), "what failed:", *(text for _, text in result.failures + result.errors))

    case.__name__ = test.id().rsplit(".test_", 1)[-1]
    return case


if __name__ == "__main__":
    loader = unittest.defaultTestLoader
    main([as_case(test) for tests in (SetupTest, JobsTest, BareMachineTest, BuildTest) for test in loader.loadTestsFromTestCase(tests)])
