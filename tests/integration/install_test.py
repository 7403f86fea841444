#!/usr/bin/env python3
"""The installed tree and the wheel: moved, from another folder, they find all that they open beside themselves."""

import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import zipfile

from cases import main, require, temporary_folder

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LISTING = ROOT / "tools/build/shared_libraries.py"
PLUGIN = ROOT / "build/release/tests/fake_device/libdarkroom_cuda.so"  # Stands in for the CUDA plugin, which no GPU is here to load for.
LIBRARIES_OF_PIP = ("torch", "pyarrow", "nvidia", "numpy", "numpy.libs")


def lay_out(what: str, folder: pathlib.Path, *more) -> None:
    done = subprocess.run([ROOT / "tools/build/installed_tree.py", what, folder, *more], capture_output=True, text=True, check=False)
    require(done.returncode == 0, f"installed_tree.py {what}", done.stdout, done.stderr)


def run(*command, cwd: pathlib.Path) -> str:
    """The output of a command in a folder that has nothing to do with the checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DARKROOM_") and name != "LD_LIBRARY_PATH"}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    require(done.returncode == 0, f"{' '.join(map(str, command))} ended with {done.returncode}:", done.stdout, done.stderr)
    return done.stdout


def the_program_works(program: pathlib.Path, folder: pathlib.Path) -> None:
    """It starts, and finds the shipped tokenizer, the pictures of `bench` and the script of its peers without being told where."""
    run(program, "--version", cwd=folder)
    run(program, "models", "init", "--preset", "tiny", folder / "model", cwd=folder)
    require((folder / "model/tokenizer/merges.txt").exists(), "models init wrote no tokenizer")
    figures = json.loads(run(program, "bench", "resize", "--resolution", "8", "--repeats", "1", "--json", cwd=folder))
    require("Pillow" in figures["peers"] or "PIL" in figures["missing"], "bench asked no peer:", figures["peers"], figures["missing"])


def opens_the_plugin_beside_its_libraries(program: pathlib.Path, plugin: pathlib.Path, within: list, folder: pathlib.Path) -> None:
    """Without a word about where it lies, and not without it."""
    run(LISTING, plugin, *(word for each in within for word in ("--within", each)), cwd=folder)
    require("cuda:0" in seen_gpus(program, folder), "the plugin is not opened:", seen_gpus(program, folder))
    plugin.rename(folder / "aside.so")
    require("libdarkroom_cuda.so: cannot open" in seen_gpus(program, folder), "a plugin of elsewhere is opened:", seen_gpus(program, folder))
    (folder / "aside.so").rename(plugin)


def seen_gpus(program: pathlib.Path, folder: pathlib.Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    subprocess.run([program, "doctor", "--json-summary", folder / "doctor.json"], cwd=folder, env=environment, capture_output=True, check=False)
    return json.dumps(json.loads((folder / "doctor.json").read_text())["doctor"]["gpu"])


def a_moved_tree_opens_nothing_of_the_checkout() -> None:
    with temporary_folder() as folder:
        lay_out("install", folder / "first", "--plugin", PLUGIN)
        (folder / "first").rename(folder / "moved")
        program = folder / "moved/bin/darkroom"
        for each in (program, program.with_name("darkroom-decoder")):
            run(LISTING, each, "--within", folder / "moved", cwd=folder)
        plugin = folder / "moved/lib/darkroom" / PLUGIN.name
        opens_the_plugin_beside_its_libraries(program, plugin, [folder / "moved"], folder)
        for each in (program, plugin):
            require(str(ROOT) not in run("readelf", "-d", each, cwd=folder), "it names the checkout:", each)
        outside = [path for path in (folder / "moved").rglob("*") if path.is_symlink() and ROOT in path.resolve().parents]
        require(not outside, "links into the checkout:", *outside)
        the_program_works(program, folder)


def an_installed_corpus_tool_needs_no_checkout() -> None:
    with temporary_folder() as folder:
        lay_out("install", folder / "tree")
        python, tool = folder / "tree/lib/darkroom/python/bin/python", folder / "tree/share/darkroom/tools/corpus/make_corpus.py"
        run(python, tool, folder / "corpus", "--limit", "3", "--trouble-rate", "0", cwd=folder)
        require(len(list((folder / "corpus/pictures").iterdir())) == 3, "pictures")
        require(not list((folder / "tree").rglob(PLUGIN.name)), "a plugin that nobody asked for")


def an_installation_is_for_all_and_the_next_one_takes_away_its_own_files_alone() -> None:
    with temporary_folder() as folder:
        installed = [str(ROOT / "tools/build/installed_tree.py"), "install", str(folder / "tree")]

        def install(**settings) -> subprocess.CompletedProcess:
            return subprocess.run(installed, capture_output=True, text=True, check=False, **settings)

        done = install(umask=0o077)
        require(done.returncode == 0, "install", done.stderr)
        modes = {path: path.stat().st_mode & 0o777 for path in (folder / "tree").rglob("*") if not path.is_symlink()}
        sealed = {path: oct(mode) for path, mode in modes.items() if mode not in (0o755, 0o644)}
        require(len(modes) > 100 and not sealed, "not for all:", list(sealed.items())[:5])
        require(all(modes[folder / "tree/bin" / name] == 0o755 for name in ("darkroom", "darkroom-decoder")), "programs")

        share = folder / "tree/share/darkroom"
        require((share / "licences/zlib1g.txt").exists(), "the licence of a library", sorted(path.name for path in (share / "licences").iterdir()))
        (share / "models/mine").mkdir()
        (share / "models/mine/unet.safetensors").write_text("mine")
        done = install()
        require(done.returncode == 1 and "models/mine/unet.safetensors (1 files in all) is not of `make install`" in done.stderr, "somebody's model", done)
        (share / "models/mine").rename(folder / "mine")

        # A disk that is full while it is laid out.
        done = install(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000_000, 30_000_000)))
        require(done.returncode == 1 and "what was installed before is as it was" in done.stderr and "Traceback" not in done.stderr, "a full disk", done)
        the_program_works(folder / "tree/bin/darkroom", folder)

        listing = share / "installed-files.txt"
        (share / "recipes/of-yesterday.toml").write_text("")
        listing.write_text(listing.read_text() + "recipes/of-yesterday.toml\n")
        done = install()
        require(done.returncode == 0 and not (share / "recipes/of-yesterday.toml").exists(), "what an older version had", done)
        require([path for path in (folder / "tree").rglob(".*")] == [], "left behind:", [*(folder / "tree").rglob(".*")])


def a_checkout_below_the_installations_folders_is_not_replaced() -> None:
    code = "import pathlib, installed_tree; installed_tree.ROOT = pathlib.Path('/home/me/.local/share/darkroom/{}'); installed_tree.require_writable(pathlib.Path('/home/me/.local'))"
    for place in ("", "src"):
        done = subprocess.run([sys.executable, "-c", code.format(place)], cwd=ROOT / "tools/build", capture_output=True, text=True, check=False)
        require(done.returncode == 1 and "holds this checkout" in done.stderr, "refusal", place, done)


def a_library_of_a_system_without_dpkg_has_no_package() -> None:
    code = "import pathlib, installed_tree; print(installed_tree.package_of(pathlib.Path('/lib/x86_64-linux-gnu/libc.so.6')))"
    for search, want in ((os.environ["PATH"], "libc6"), ("/nowhere", "None")):
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tools/build", env={**os.environ, "PATH": search}, capture_output=True, text=True, check=False)
        require(done.stdout.strip() == want, "package", search, done)


def a_plugin_that_is_not_there_is_refused() -> None:
    with temporary_folder() as folder:
        done = subprocess.run([ROOT / "tools/build/installed_tree.py", "install", folder / "tree", "--plugin", folder / "none.so"], capture_output=True, text=True, check=False)
        require(done.returncode == 1 and "tools/build/build.sh cuda libdarkroom_cuda.so" in done.stderr and not (folder / "tree").exists(), "refusal", done)


def a_wheel_finds_the_libraries_of_its_environment() -> None:
    with temporary_folder() as folder:
        lay_out("wheel", folder / "dist", "--plugin", PLUGIN)
        packages = folder / "environment/site-packages"
        with zipfile.ZipFile(next((folder / "dist").glob("*.whl"))) as wheel:
            wheel.extractall(packages)
        program = packages / "darkroom/bin/darkroom"
        program.chmod(0o755)  # zipfile forgets it, pip does not.
        theirs = next((ROOT / ".venv").glob("lib/python3.*/site-packages"))
        for name in LIBRARIES_OF_PIP:
            (packages / name).symlink_to(theirs / name)
        decoder = program.with_name("darkroom-decoder")
        require(decoder.stat().st_size > 0, "the wheel has no decoder")
        decoder.chmod(0o755)
        run(LISTING, program, "--within", packages, *(word for name in LIBRARIES_OF_PIP for word in ("--within", theirs / name)), cwd=folder)
        opens_the_plugin_beside_its_libraries(program, packages / "darkroom/lib/darkroom" / PLUGIN.name, [packages, *(theirs / name for name in LIBRARIES_OF_PIP)], folder)
        run(sys.executable, "-c", f"import sys; sys.path.insert(0, {str(packages)!r}); sys.argv[1:] = ['--version']; import darkroom.__main__",
            cwd=folder)
        the_program_works(program, folder)
        the_cluster_command_is_there(packages, folder)


def the_cluster_command_is_there(packages: pathlib.Path, folder: pathlib.Path) -> None:
    """Without Ray, which only the extra [ray] brings: it knows its flags and the program's, and says what to install."""
    entry_points = next(packages.glob("darkroom-*.dist-info/entry_points.txt")).read_text(encoding="utf-8")
    require("darkroom-ray = darkroom_ray.command:main" in entry_points, "no command", entry_points)
    metadata = next(packages.glob("darkroom-*.dist-info/METADATA")).read_text(encoding="utf-8")
    require('Requires-Dist: ray[default,serve,train]==2.60.0 ; extra == "ray"' in metadata, "no extra", metadata[:2000])

    def called(*words: str) -> subprocess.CompletedProcess:
        code = f"import sys; sys.path.insert(0, {str(packages)!r}); from darkroom_ray.command import main; sys.exit(main({list(words)!r}))"
        return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)

    shown = called("process", "--help")
    require(shown.returncode == 0 and "--num-encoders" in shown.stdout and "--resolution" in shown.stdout, "help", shown)
    refused = called("process", "a", "b", "--model", "m")
    require(refused.returncode == 2 and "pip install 'darkroom[ray]'" in refused.stderr, "what to install", refused)


def its_name_says_which_c_library_it_asks_for(name: str, packages: pathlib.Path, folder: pathlib.Path) -> None:
    """So that pip takes it on every machine that can run it, whatever it was built on, and on no other."""
    binaries = [path for path in packages.rglob("*") if path.is_file() and path.open("rb").read(4) == b"\x7fELF"]
    asked = {tuple(map(int, version)) for path in binaries for version in re.findall(r"GLIBC_(\d+)\.(\d+)", run("readelf", "-V", path, cwd=folder))}
    require(len(binaries) > 3 and "manylinux_{}_{}_x86_64.whl".format(*max(asked)) in name, "name", name, max(asked))


def the_wheel_imports_where_its_name_says() -> None:
    with temporary_folder() as folder:
        lay_out("wheel", folder / "dist")
        path = next((folder / "dist").glob("*.whl"))
        own = f"cp{sys.version_info.major}{sys.version_info.minor}"
        require(f"-{own}.py3-{own}.none-manylinux" in path.name, "name", path.name)
        packages = folder / "environment/site-packages"
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(packages)
        its_name_says_which_c_library_it_asks_for(path.name, packages, folder)
        with zipfile.ZipFile(path) as wheel:
            listed = wheel.read(next(name for name in wheel.namelist() if name.endswith(".dist-info/WHEEL"))).decode()
        require({f"{python}-{abi}" for python in (own, "py3") for abi in (own, "none")}
                == {line.removeprefix("Tag: ").rsplit("-", 1)[0] for line in listed.splitlines() if line.startswith("Tag: ")}, "tags", listed)
        theirs = next((ROOT / ".venv").glob("lib/python3.*/site-packages"))
        for name in LIBRARIES_OF_PIP:
            (packages / name).symlink_to(theirs / name)
        (packages / "darkroom/bin/darkroom-decoder").chmod(0o755)  # zipfile forgets it, pip does not.
        extension = next((packages / "darkroom").glob("_native.cpython-*.so"))
        run(LISTING, extension, "--within", packages, *(word for name in LIBRARIES_OF_PIP for word in ("--within", theirs / name)), cwd=folder)
        code = (f"import sys; sys.path.insert(0, {str(packages)!r}); import darkroom; print(darkroom.tokenize('a').shape, "
                "darkroom.Transform(8).counts['rows_in'], darkroom.__file__)")
        printed = run(sys.executable, "-I", "-S", "-c", code, cwd=folder)
        require(printed.startswith("(1, 77) 0 ") and str(packages) in printed, "import darkroom", printed)


def a_prefix_that_may_not_be_written_is_refused_before_the_build() -> None:
    with temporary_folder() as folder:
        (folder / "file").write_text("")
        (folder / "sealed").mkdir()
        (folder / "sealed").chmod(0o500)
        refused = {folder / "file": "is no folder"}
        if os.geteuid() != 0:  # Root may write there.
            refused[folder / "sealed/deep"] = f"sudo make install PREFIX={folder / 'sealed/deep'}"
        refused[pathlib.Path("/proc/darkroom")] = "sudo make install PREFIX=/proc/darkroom"
        for prefix, words in refused.items():
            done = subprocess.run(["make", "--no-print-directory", "install", f"PREFIX={prefix}"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
            require(done.returncode != 0 and words in done.stderr, f"want {words!r}:", done.returncode, done.stdout, done.stderr)
            require("Traceback" not in done.stderr and "build:" not in done.stdout, "more than one sentence:", done.stdout, done.stderr)
            require(done.stderr.startswith("installed_tree: "), "not a sentence of ours:", done.stderr)
        (folder / "sealed").chmod(0o700)


def the_listing_finds_a_library_from_elsewhere() -> None:
    with temporary_folder() as folder:
        done = subprocess.run([LISTING, ROOT / "build/darkroom", "--within", folder], capture_output=True, text=True, check=False)
        require(done.returncode == 1, "exit code", done.returncode)
        require("libtorch_cpu.so: outside" in done.stdout, "findings", done.stdout)


if __name__ == "__main__":
    main([
        a_moved_tree_opens_nothing_of_the_checkout,
        an_installed_corpus_tool_needs_no_checkout,
        an_installation_is_for_all_and_the_next_one_takes_away_its_own_files_alone,
        a_checkout_below_the_installations_folders_is_not_replaced,
        a_library_of_a_system_without_dpkg_has_no_package,
        a_plugin_that_is_not_there_is_refused,
        a_wheel_finds_the_libraries_of_its_environment,
        the_wheel_imports_where_its_name_says,
        a_prefix_that_may_not_be_written_is_refused_before_the_build,
        the_listing_finds_a_library_from_elsewhere,
    ])
