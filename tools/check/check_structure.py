#!/usr/bin/env python3
"""Checks that the tree keeps its structure: modules and their order, who shows which third-party header, file names, wrapped prose,
messages and files that a page names, its commands, the origin of tables, the lines of faults that the tests may miss.

usage: check_structure.py [BUILD_FOLDER]
With a configured build folder it checks, instead, that every *_test.cpp is compiled. Prints each finding and exits 1 when there is one.
"""

import json
import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FORBIDDEN_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "base"}
SOURCE_FOLDERS = ("include", "src", "apps", "tests", "tools", "cmake", "docs", "recipes", "prices", "python")
PROSE_COLUMNS = 120
HEADING_COLUMNS = 80  # But of a quoted message: docs/troubleshooting.md.
FENCE = re.compile(r"\s*```([\w+-]*)")  # Of a block of code, and its language.
WITHOUT_UNIT_TESTS = {"plugin"}  # Its tests need a GPU: tests/plugin.
# Libraries by the first part of their headers' paths, where it is not their name.
LIBRARIES = {
    "nlohmann": "nlohmann-json", "arrow": "Apache Arrow", "parquet": "Parquet", "curl": "libcurl", "ares.h": "c-ares", "idn2.h": "libidn2", "xxhash.h": "xxHash",
    "jpeglib.h": "libjpeg-turbo", "png.h": "libpng", "webp": "libwebp", "hwy": "Highway", "boost": "Boost", "openssl": "OpenSSL", "torch": "PyTorch",
    "ATen": "PyTorch", "c10": "PyTorch", "gloo": "Gloo", "CLI": "CLI11"}
QUOTED_PATTERN = re.compile(r"pip3? install[^`']* '[^'\s]*\*")
TYPE = re.compile(r"(?<!>\n)^(?:struct|class) (\w+)(?: final)?(?: : [^{\n]*)? \{", re.MULTILINE)  # But templates.
NAMED_PATH = re.compile(r"`([a-z]\w*(?:/\w+)+(?:\.[a-z]+)?)`")  # Of a file, if its first part is a module or a folder of the tree.
NAMED_FOLDERS = {"include", "src", "apps", "tests", "tools"}
SOURCE_ENDINGS = (".h", ".cpp", ".cu", ".cuh")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def reachable(module: str, table: dict[str, list[str]]) -> set[str]:
    """The module and everything that it may include, directly or through others."""
    seen: set[str] = set()
    pending = [module]
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            pending.extend(table.get(name, []))
    return seen


def module_of(path: pathlib.Path) -> str | None:
    parts = path.relative_to(ROOT).parts
    if parts[:2] == ("include", "darkroom"):
        return parts[2]
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    return None


def sources() -> list[pathlib.Path]:
    found = []
    for folder in ("include", "src"):
        for pattern in ("*.h", "*.cpp", "*.cu", "*.cuh"):
            found.extend(sorted((ROOT / folder).rglob(pattern)))
    return found


def check_includes(findings: list[str]) -> None:
    with open(ROOT / "deps.toml", "rb") as file:
        table = tomllib.load(file)
    modules, third_party = table["modules"], table["third_party"]
    for path in sources():
        module = module_of(path)
        if module is None or module in ("torch_header",):
            continue
        if module not in modules:
            findings.append(f"{path.relative_to(ROOT)}: module '{module}' is not in deps.toml")
            continue
        allowed = reachable(module, modules)
        for include in INCLUDE.findall(path.read_text(encoding="utf-8")):
            parts = include.split("/")
            if parts[0] == "darkroom" and parts[1] not in allowed:
                findings.append(f"{path.relative_to(ROOT)}: includes {include}, but {module} may not include {parts[1]} (deps.toml)")
            owners = third_party.get(parts[0])
            if owners is not None and not allowed.intersection(owners):
                findings.append(f"{path.relative_to(ROOT)}: includes {include}, which belongs to {', '.join(owners)}")


def check_modules(findings: list[str]) -> None:
    """Every module of deps.toml has sources, headers and tests; every folder of them is a module's, or the program's."""
    modules = tomllib.loads((ROOT / "deps.toml").read_text(encoding="utf-8"))["modules"]
    for module in modules:
        if not any((ROOT / "src" / module).glob("*.cpp")):
            findings.append(f"src/{module}: module '{module}' of deps.toml has no sources")
        if module not in WITHOUT_UNIT_TESTS and not any((ROOT / "tests" / "unit" / module).glob("*_test.cpp")):
            findings.append(f"tests/unit/{module}: module '{module}' of deps.toml has no tests")
        for other in modules[module]:
            if other not in modules:
                findings.append(f"deps.toml: '{module}' may include '{other}', which is no module")
            elif module in reachable(other, modules):
                findings.append(f"deps.toml: '{module}' and '{other}' may include each other")


def check_names(findings: list[str]) -> None:
    for folder in SOURCE_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if "__pycache__" in path.parts:
                continue
            if path.stem.lower() in FORBIDDEN_NAMES:
                findings.append(f"{path.relative_to(ROOT)}: name what it holds; '{path.stem}' says nothing")


def check_type_names(findings: list[str]) -> None:
    """No two headers define types of one name: in one program their functions would be taken for each other's, and no linker says so."""
    seen: dict[str, pathlib.Path] = {}
    headers = [path for folder in ("include", "src", "apps") for path in sorted((ROOT / folder).rglob("*.h"))]
    for path in headers:
        for name in TYPE.findall(path.read_text(encoding="utf-8")):
            if seen.setdefault(name, path) != path:
                findings.append(f"{path.relative_to(ROOT)}: there is a type {name} in {seen[name].relative_to(ROOT)} already")


def wrong_prose(line: str) -> str:
    """What is wrong with a line outside of code; nothing where it is as it should be."""
    if "| |---" in line:
        return "a table that was wrapped as prose; give every row its line"
    if len(line) > HEADING_COLUMNS and re.match(r'#+ (?!")', line):
        return f"a heading of {len(line)} columns; what is more than {HEADING_COLUMNS} belongs below it"
    if len(line) > PROSE_COLUMNS and not line.startswith(("|", "!", "#", "    ")):
        return f"a line of {len(line)} columns, wrap it at {PROSE_COLUMNS}"
    return ""


def check_prose(findings: list[str]) -> None:
    """Prose of the pages wraps at 120 columns, so that an editor and a diff show it whole; tables and code are as wide as they are. What a
    wrapper may have run together is found: tables, headings and the paragraphs below them, code and its fences.
    """
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        code_begins = 0  # The line of the fence of the code that we are in.
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            wrong = "" if code_begins else wrong_prose(line)
            if "```" in line:
                fence = FENCE.fullmatch(line)
                if fence is None or (code_begins and fence[1]):
                    wrong = "text before or behind a fence; ``` has a line of its own, with the language at most where code begins"
                code_begins = 0 if code_begins else number
            if wrong:
                findings.append(f"{path.relative_to(ROOT)}:{number}: {wrong}")
        if code_begins:
            findings.append(f"{path.relative_to(ROOT)}:{code_begins}: code begins that does not end on its page")


def check_commands(findings: list[str]) -> None:
    """A shell expands no pattern within single quotes, and pip knows none."""
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if QUOTED_PATTERN.search(line):
                findings.append(f"{path.relative_to(ROOT)}:{number}: pip gets a * in single quotes, which nobody expands")


def check_quoted_messages(findings: list[str]) -> None:
    """Every message that docs/troubleshooting.md quotes in a heading stands in a source or script."""
    page = ROOT / "docs" / "troubleshooting.md"
    sources = [path for folder in ("src", "apps", "tools", "python") for path in (ROOT / folder).rglob("*")]
    # C++ literals are joined, as the compiler does, where a line's length broke them.
    text = "".join(re.sub(r'"\s*\n\s*"', "", path.read_text(encoding="utf-8")) for path in sources if path.suffix in (".cpp", ".h", ".sh", ".py"))
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith('### "') and line[5:-1] not in text:
            findings.append(f"docs/troubleshooting.md:{number}: no source says {line[4:]}")


def is_no_file(name: str, modules: set[str], names_stored_things: bool) -> bool:
    """Whether a page's word looks like the path of a file of ours, in full or as MODULE/NAME with or without its ending, and is of none."""
    first, ending = name.split("/")[0], pathlib.PurePath(name).suffix
    if first in NAMED_FOLDERS:
        places = [] if name.split("/")[-1].isupper() else [name]  # tests/unit/MODULE stands for any.
    elif first in modules and (ending in SOURCE_ENDINGS or not (ending or names_stored_things)):
        places = [f"{folder}/{name}" for folder in ("include/darkroom", "src", "tests/unit", "tests/golden")]
    else:
        places = []
    return bool(places) and not any((ROOT / f"{place}{more}").exists() for place in places for more in ("", *SOURCE_ENDINGS))


def check_named_files(findings: list[str]) -> None:
    """Pages name files that exist. The changelog tells of those that were; pages of formats also name what lies in files (`train/loss`)."""
    modules = set(tomllib.loads((ROOT / "deps.toml").read_text(encoding="utf-8"))["modules"])
    for path in sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {ROOT / "CHANGELOG.md"}):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for name in NAMED_PATH.findall(line):
                if is_no_file(name, modules, path.parent.name == "formats"):
                    findings.append(f"{path.relative_to(ROOT)}:{number}: there is no file {name}")


def check_notices(findings: list[str]) -> None:
    """THIRD_PARTY_NOTICES.md names every library whose headers we include, and every generated table, because what it was made of comes from
    others.
    """
    page = ROOT / "THIRD_PARTY_NOTICES.md"
    notices = page.read_text(encoding="utf-8") if page.exists() else ""
    for path in sorted((ROOT / "src").rglob("*")):
        is_table = path.suffix == ".inc" or (path.suffix == ".cpp" and path.read_text(encoding="utf-8").startswith("// Made by tools/"))
        if is_table and not re.search(rf"[`/]{re.escape(path.name)}`", notices):
            findings.append(f"{path.relative_to(ROOT)}: THIRD_PARTY_NOTICES.md does not name it")
    for header in tomllib.loads((ROOT / "deps.toml").read_text(encoding="utf-8"))["third_party"]:
        name = LIBRARIES.get(header, header)
        if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", notices):
            findings.append(f"deps.toml: THIRD_PARTY_NOTICES.md does not name {name}, whose headers are included")


def check_survivors(findings: list[str]) -> None:
    """Each entry of tests/gate/mutant_survivors.toml excuses a fault of a line that is still there."""
    page = ROOT / "tests" / "gate" / "mutant_survivors.toml"
    for entry in tomllib.loads(page.read_text(encoding="utf-8"))["survivor"] if page.exists() else []:
        source = ROOT / entry["path"]
        lines = {line.strip() for line in source.read_text(encoding="utf-8").splitlines()} if source.is_file() else set()
        if entry["line"] not in lines or entry["old"] not in entry["line"]:
            findings.append(f"{page.relative_to(ROOT)}: no line of {entry['path']} has '{entry['old']}' in: {entry['line']}")


def compiled_sources(build: pathlib.Path) -> set[pathlib.Path]:
    """What the build compiles, one by one or in batches (a batch is a generated source that includes others)."""
    compiled = set()
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        source = pathlib.Path(entry["file"])
        batch = INCLUDE.findall(source.read_text(encoding="utf-8")) if source.parent.name == "Unity" else []
        compiled.update(pathlib.Path(name).resolve() for name in [source, *batch])
    return compiled


def check_tests(build: pathlib.Path, findings: list[str]) -> None:
    compiled = compiled_sources(build)
    for path in sorted((ROOT / "tests").rglob("*_test.cpp")):
        is_fixture = "house" in path.relative_to(ROOT).parts  # Of tests/gate, which builds it.
        if not is_fixture and path.resolve() not in compiled:
            findings.append(f"{path.relative_to(ROOT)}: is not built by any target")


def main() -> None:
    findings: list[str] = []
    if len(sys.argv) > 1:
        check_tests(pathlib.Path(sys.argv[1]), findings)
    else:
        check_modules(findings)
        check_includes(findings)
        check_names(findings)
        check_type_names(findings)
        check_prose(findings)
        check_commands(findings)
        check_quoted_messages(findings)
        check_named_files(findings)
        check_notices(findings)
        check_survivors(findings)
    for finding in findings:
        print(finding)
    print(f"structure: {len(sources())} sources, {len(findings)} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
