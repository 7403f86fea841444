#!/usr/bin/env python3
"""The command line keeps its word: every verb x every flag x {good, bad, unknown, repeated, from --config}, held against cli_contract.toml.

The program's definitions come from `darkroom help --json`; a verb or flag that the contract lacks is a failure. The many command lines are put
through `darkroom help --parse`, which reads each with the code that reads the program's own; some of them are run as programs, too,
and must end as it said.
"""

import functools
import json
import os
import pathlib
import pty
import random
import re
import select
import shutil
import signal
import subprocess
import tempfile
import tomllib

from cases import Skipped
from workbench import PROGRAM, ROOT, main, require, said_on_a_terminal, temporary_folder

CONTRACT = tomllib.loads((pathlib.Path(__file__).parent / "cli_contract.toml").read_text())
SEED = 10
# What a message must never hold: names of CLI11 and toml++, C++ types, what the parsers say themselves.
INTERNALS = re.compile(r"CLI::|toml::|std::|Validation|\[b, kb|terminate called|what\(\)|required but received|not expected|SIZE|Error:|[Ee]rror while|[Ee]ncountered|prohibited|, saw |\bvector\b|char\[")
TEMPLATES = {  # Good and bad values of each kind, for positional words, of which the contract has the names alone.
    "integer": (["1"], ["x", "1.5"]), "bytes": (["1MB"], ["x", "1XB"]), "number": (["0.5"], ["x", "nan"]), "percent": (["50%"], ["x", "101"]),
    "seconds": (["1s"], ["x"]), "minutes": (["1"], ["x"]), "text": (["words"], []), "path": (["some/path"], [""]), "folder": (["some/folder"], [""]),
    "uri": (["some/uri"], [""]), "size": (["64x64"], ["64"]), "device": (["cpu"], ["tpu"]), "number_and_path": ([["3", "x.png"]], [["x", "x.png"]]),
}
NUMBERS_WITHOUT_QUOTES = ("--metrics-port", "--price-per-hour", "--allow-port")  # In a configuration file, although they may be texts.
# Ten faults of a file's first line, each found by another part of the parser.
NO_TOML = ("a = = b\n", "a = b\n", "a\n", "[a\n", "a = 'b\n", "a = 1 b = 2\n", "a = 1; a = 2\n", "a = \"\\q\"\n", "a = 2024-13-01\n", "a = [1 2]\n")


@functools.cache
def definitions() -> dict:
    done = subprocess.run([PROGRAM, "help", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def parse(command_lines: list[list[str]]) -> list[dict]:
    """What the program says about each command line."""
    stdin = "".join(json.dumps(line) + "\n" for line in command_lines)
    done = subprocess.run([PROGRAM, "help", "--parse"], input=stdin, capture_output=True, text=True, check=True, cwd=ROOT)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    require(len(answers) == len(command_lines), "answers", len(answers), len(command_lines))
    return answers


def flags_of(verb: str) -> dict[str, dict]:
    return {flag["name"]: flag for flag in definitions()["verbs"][verb]["flags"]}


def contract_of(verb: str) -> dict[str, dict]:
    listed = CONTRACT.get(verb, {"flags": []})["flags"] + CONTRACT["shared"]["flags"]
    return {flag["name"]: flag for flag in listed}


def values_of(verb: str, flag: dict) -> tuple[list, list]:
    """Good and bad values, each a list of words."""
    listed = contract_of(verb).get(flag["name"])
    if listed is not None and "good" in listed:
        good, bad = listed["good"], listed["bad"]
    elif flag["kind"] == "choice":
        good, bad = flag["words"], ["no-such-choice"]
    else:
        good, bad = TEMPLATES[flag["kind"]]
    if flag["kind"] in ("path", "folder"):
        bad = [*bad, "s3://bucket/x", "https://host/x", "file://x"]
    words = lambda values: [value if isinstance(value, list) else [value] for value in values]
    return words(good), words(bad)


def base_line(verb: str, without: str = "") -> list[str]:
    """The shortest good command line of a verb, as words, without one flag or positional, to which that may be added."""
    line = verb.split()
    for flag in definitions()["verbs"][verb]["flags"]:
        if flag["required"] and flag["name"] != without:
            good, _ = values_of(verb, flag)
            line += good[0] if flag["positional"] else [flag["name"], *good[0]]
    companion = flags_of(verb).get(without, {}).get("only_with", "")
    if companion:
        good = values_of(verb, flags_of(verb)[companion])[0] if flags_of(verb)[companion]["max_values"] > 0 else [[]]
        line += [companion, *good[0]]
    return line


def check_refusal(line: list[str], answer: dict, *words: str) -> None:
    require(answer["exit_code"] == 2, "want exit code 2:", line, answer)
    for word in words:
        require(word in answer["message"], f"the message lacks {word!r}:", line, answer)
    require("--help" in answer["hint"], "the hint leads nowhere:", line, answer)
    require(INTERNALS.search(answer["message"]) is None, "the message shows the parser's inside:", line, answer)
    require("\n" not in answer["message"] and len(answer["message"]) < 2000, "the message is no sentence:", line, answer)


def check_cases(cases: list[tuple[list[str], tuple[str, ...] | None]]) -> int:
    """Cases are command lines with None (good) or the words of their refusal."""
    for (line, words), answer in zip(cases, parse([line for line, _ in cases]), strict=True):
        if words is None:
            require(answer["exit_code"] == 0, "want a good call:", line, answer)
        else:
            check_refusal(line, answer, *words)
    return len(cases)


def real_flags(verb: str) -> list[dict]:
    return [flag for flag in definitions()["verbs"][verb]["flags"] if not flag["positional"] and not flag["later"]]


def the_program_has_every_verb_and_flag_of_the_contract() -> None:
    known = definitions()
    require(sorted(known["later_verbs"]) == sorted(CONTRACT["verbs_later"]), "later verbs", known["later_verbs"])
    unlisted = [verb for verb, definition in known["verbs"].items() if verb not in CONTRACT and not definition["hidden"]]
    require(not unlisted, "cli_contract.toml lacks the verbs", unlisted)
    for verb in CONTRACT:
        if verb in ("verbs_later", "shared"):
            continue
        require(verb in known["verbs"], "there is no verb", verb)
        flags = flags_of(verb)
        positionals = [name for name, flag in flags.items() if flag["positional"]]
        require(positionals == CONTRACT[verb]["positionals"], "positionals of", verb, positionals)
        required = sorted(name for name, flag in flags.items() if flag["required"])
        require(required == sorted(CONTRACT[verb]["required"]), "required flags of", verb, required)
        unlisted = [name for name in flags if name not in contract_of(verb) and name not in positionals]
        require(not unlisted, "cli_contract.toml lacks flags of", verb, unlisted)
        for name, want in contract_of(verb).items():
            require(name in flags, "there is no flag", verb, name)
            got = flags[name]
            require(got["later"] == want.get("later", False), "is it built?", verb, name)
            if got["later"]:
                require(got["accepted"] == want.get("accepted", ""), "accepted value of", verb, name, got["accepted"])
                continue
            require(got["kind"] == want["kind"], "kind of", verb, name, got["kind"])
            require(got["only_with"] == want.get("only_with", ""), "what goes with", verb, name, got["only_with"])
            require("unit" not in want or got["unit"] == want["unit"], "unit of", verb, name, got["unit"])
            require("default" not in want or got["default"] == want["default"], "default of", verb, name, got["default"])
            require(got["repeatable"] == want.get("many", False) or got["max_values"] == 0, "repeats", verb, name, got["repeatable"])


def every_flag_with_good_and_bad_values() -> None:
    cases = []
    for verb in definitions()["verbs"]:
        for flag in real_flags(verb):
            name = flag["name"]
            if flag["max_values"] == 0:
                cases.append((base_line(verb) + [name], None))
                cases.append((base_line(verb) + [name + "=maybe"], (name, "maybe")))
                continue
            if name == "--config":
                continue  # Its own test.
            base = base_line(verb, without=name)
            good, bad = values_of(verb, flag)
            for words in good:
                cases.append((base + [name, *words], None))
                if len(words) == 1:
                    cases.append((base + [f"{name}={words[0]}"], None))
            if flag["only_with"]:
                cases.append((base_line(verb) + [name, *good[0]], (name, flag["only_with"])))
            for words in bad:
                named = next((word for word in words if word), "")
                cases.append((base + [name, *words], (name,) if "" in words else (name, named)))
            cases.append((base + [name], (name, "needs")))
            cases.append((base + [name, "--json-summary"], (name, "--json-summary")))
            if good and not flag["repeatable"]:
                cases.append((base + [name, *good[0], name, *good[0]], (name, "more than once")))
    print(f"        {check_cases(cases)} command lines")


def every_unknown_flag_gets_a_suggestion() -> None:
    cases = []
    for verb in definitions()["verbs"]:
        names = [flag["name"] for flag in real_flags(verb)]
        for name in names:
            swapped = name[:3] + name[4] + name[3] + name[5:] if len(name) > 5 else name + "x"
            if swapped in names or swapped == name:
                swapped = name + "e"
            cases.append((base_line(verb) + [swapped, "1"], (swapped, "did you mean")))
            cases.append((base_line(verb) + [f"{swapped}=1"], (swapped, "did you mean")))
        cases.append((base_line(verb) + ["--zzzzzzzzzz"], (verb, "--zzzzzzzzzz")))
    print(f"        {check_cases(cases)} command lines")


def every_missing_or_superfluous_word_is_named() -> None:
    cases = []
    for verb in definitions()["verbs"]:
        required = [flag for flag in definitions()["verbs"][verb]["flags"] if flag["required"]]
        for flag in required:
            if flag["positional"] and len([other for other in required if other["positional"]]) > 1:
                continue  # Without one of two words the second is the missing one; below.
            cases.append((base_line(verb, without=flag["name"]), (verb, flag["name"])))
        cases.append((verb.split(), (verb,)) if required else (verb.split(), None))
        positionals = [flag for flag in definitions()["verbs"][verb]["flags"] if flag["positional"]]
        if all(flag["max_values"] == 1 for flag in positionals):
            # Before the flags: behind them a flag that takes a list would take the word.
            num_words = 1 + len(positionals) - sum(flag["positional"] for flag in required)
            words = verb.split()
            cases.append((words + ["superfluous"] * num_words + base_line(verb)[len(words) :], (verb, "takes")))
    check_cases(cases)


def cleaning_needs_the_output_alone() -> None:
    check_cases([
        (["download", "images", "--clean"], None),
        (["process", "images", "latents", "--clean"], None),
        (["download", "images"], ("--metadata",)),
        (["process", "images", "latents"], ("--model",)),
        (["process", "images", "--clean"], ("OUTPUT_URI",)),
    ])


def what_is_not_built_yet_says_so() -> None:
    cases = []
    for verb in CONTRACT["verbs_later"]:
        cases.append((verb.split(), ("not built yet",)))
        cases.append((verb.split() + ["x", "--port", "1"], ("not built yet",)))
    for verb in definitions()["verbs"]:
        for name, flag in flags_of(verb).items():
            if flag["later"]:
                cases += [(base_line(verb) + [name, *value], (name, "not built yet")) for value in ([], ["x"], ["a", "b"])]
                if flag["accepted"]:
                    cases.append((base_line(verb) + [name, flag["accepted"]], None))
    print(f"        {check_cases(cases)} command lines")


def verbs_get_suggestions() -> None:
    check_cases([
        (["downlaod"], ("downlaod", "did you mean download")),
        (["proces", "a", "b"], ("did you mean process",)),
        (["models", "chek", "x"], ("did you mean check",)),
        (["models"], ("init",)),
        (["sample", "--model", "m", "--output", "o", "--promt", "x"], ("--promt", "did you mean --prompt")),
        (["frobnicate"], ("frobnicate",)),
        (["--quiet", "download"], ("the verb comes first",)),
        ([], ("needs a verb",)),
        ([""], ("''",)),
    ])


def toml_value(flag: dict, words: list[str]) -> str:
    texts = [json.dumps(word) for word in words]
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"


def every_flag_from_a_configuration_file() -> None:
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as folder:
        cases = []
        num_files = 0

        def config(text: str) -> list[str]:
            nonlocal num_files
            num_files += 1
            path = pathlib.Path(folder) / f"{num_files}.toml"
            path.write_text(text)
            return ["--config", str(path)]

        for verb in definitions()["verbs"]:
            for flag in real_flags(verb):
                name, key = flag["name"], flag["name"][2:]
                if name == "--config":
                    continue
                base = base_line(verb, without=name)
                if flag["max_values"] == 0:
                    cases.append((base + config(f"{key} = true\n"), None))
                    cases.append((base + config(f"{key} = 1\n"), (key, "true or false", "line 1")))
                    cases.append((base + config(f'{key} = "true"\n'), (key, "true or false")))
                    continue
                good, bad = values_of(verb, flag)
                for words in good:
                    cases.append((base + config(f"{key} = {toml_value(flag, words)}\n"), None))
                    cases.append((base + config("\n".join(f"[{table}]" if i == 0 else "" for i, table in enumerate([verb.replace(" ", ".")])) + f"\n{key} = {toml_value(flag, words)}\n"), None))
                if name in NUMBERS_WITHOUT_QUOTES:
                    cases.append((base + config(f"{key} = 8080\n"), None))
                for words in bad:
                    cases.append((base + config(f"{key} = {toml_value(flag, words)}\n"), (key,)))
                # A table under a verb's name holds that verb's settings, even where a flag has the same name (inspect --compare).
                is_verb = key in definitions()["verbs"] or key in definitions()["later_verbs"]
                cases.append((base + config(f"{key} = {{ a = 1 }}\n"), None if is_verb else (key,)))
                cases.append((base + config(f"{key} = 2020-01-01\n"), (key, "date")))
                cases.append((base + config(f"{key} = true\n"), (key, "true or false")))
                cases.append((base + config(f"\n{key}x = 1\n"), (f"{key}x", "line 2")))
                if not flag["repeatable"] and flag["max_values"] == 1:
                    cases.append((base + config(f'{key} = ["a", "b"]\n'), (key, "list")))
                if good and bad:  # The command line wins: the file's bad value is not even looked at.
                    cases.append((base + [name, *good[0]] + config(f"{key} = {toml_value(flag, bad[0])}\n"), None))
            base = base_line(verb)
            cases.append((base + ["--config", folder + "/no-such-file.toml"], ("no-such-file.toml",)))
            cases.append((base + ["--config", folder], (folder,)))
            for text in NO_TOML:
                cases.append((base + config(text), ("line 1,", "column ", "this is no TOML: ")))
            cases.append((base + config("[no-such-verb]\nx = 1\n"), ("no-such-verb",)))
            cases.append((base + config("[models]\nseed = 5\n"), ("[models]", "seed", "line 2")))
            cases.append((base + config("[models.intt]\nfoo = 1\n"), ("intt", "did you mean init", "line 1")))
            cases.append((base + config('config = "x"\n'), ("config",)))
        print(f"        {check_cases(cases)} command lines")


def values_come_from_flags_then_file_then_defaults() -> None:
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as folder:
        path = pathlib.Path(folder) / "flags.toml"
        path.write_text('limit = 10\nrows-per-file = 20\nmax-bytes = "64KiB"\n[download]\nrows-per-file = 30\n[process]\nlimit = 5\n')
        answer = parse([["download", "out", "--metadata", "x", "--limit", "7", "--config", str(path)]])[0]
        settings = answer["settings"]
        require("--limit 7 (command line)" in settings and not any(text.startswith("--limit 10") for text in settings), "settings", settings)
        require(answer["given"]["--limit"] == ["7"] and answer["given"]["OUTPUT_URI"] == ["out"], "given", answer["given"])
        require(f"--rows-per-file 30 ({path})" in settings and f"--max-bytes 64KiB ({path})" in settings, "settings", settings)


def a_list_takes_all_words_where_positional_ones_are_not_wanted() -> None:
    given = parse([["compare", "--output", "o", "--votes", "a", "b", "c"]])[0]["given"]
    require(given == {"--output": ["o"], "--votes": ["a", "b", "c"]}, "given", given)


def help_shows_every_flag_with_type_default_and_unit() -> None:
    verbs = list(definitions()["verbs"])
    for verb, answer in zip(verbs, parse([verb.split() + ["--help"] for verb in verbs]), strict=True):
        text = re.sub(r"\s+", " ", answer["text"])
        require("usage: darkroom " + verb in text, "usage of", verb, text[:200])
        for name, flag in flags_of(verb).items():
            if flag["later"]:
                require(not re.search(rf"{name}\b(?!-)", answer["text"]), "not built, but in the help:", verb, name)
                continue
            head = name if flag["positional"] or not flag["shown"] else f"{name} {flag['shown']}"
            require(head in text, "the help lacks", verb, head)
            require(re.search(rf"^  {re.escape(head)}(\.\.\.)?(\s|$)", answer["text"], re.MULTILINE), "nothing between a flag and its meaning:", verb, head)
            require(flag["help"] in text, "the help lacks the meaning of", verb, name)
            if flag["default"] and flag["max_values"] > 0 and not flag["required"]:
                require(f"default {flag['default']}" in text, "the help lacks the default of", verb, name)
            require(flag["unit"] in text, "the help lacks the unit of", verb, name)
        if not definitions()["verbs"][verb]["hidden"]:
            require("Examples:" in answer["text"], "no examples:", verb)
    program = parse([["--help"]])[0]["text"]
    for verb, definition in definitions()["verbs"].items():
        require(definition["hidden"] or verb in program, "the help lacks the verb", verb)


def examples_of_the_help_are_good_command_lines() -> None:
    import shlex

    cases = []
    for definition in definitions()["verbs"].values():
        for example in definition["examples"]:
            words = shlex.split(example["command"], comments=True)
            words = words[words.index("darkroom") + 1 :]
            stop = next((i for i, word in enumerate(words) if word in ("|", ">")), len(words))
            cases.append((words[:stop], None))
    check_cases(cases)


def programs_end_as_the_parser_said() -> None:
    """Command lines that are refused, run as programs: the same exit code, the same message, the hint, nothing on stdout."""
    lines = [["downlaod"], [], ["top"], ["models", "ftech", "x", "y"], ["download", "x", "--metadata", "y", "--promt"], ["sample", "--model", "m"]]
    generator = random.Random(SEED)
    for verb in definitions()["verbs"]:
        flags = [flag for flag in real_flags(verb) if flag["max_values"] > 0 and values_of(verb, flag)[1]]
        flag = generator.choice(flags)
        lines.append(base_line(verb, without=flag["name"]) + [flag["name"], *values_of(verb, flag)[1][0]])
    for line, answer in zip(lines, parse(lines), strict=True):
        done = subprocess.run([PROGRAM, *line], capture_output=True, text=True, cwd=ROOT, timeout=120)
        require(done.returncode == 2 == answer["exit_code"], "exit code", line, done.returncode, answer)
        require(done.stdout == "" and done.stderr == f"error: {answer['message']}\n{answer['hint']}\n", "message", line, done.stderr, answer)


def completion_of(shell: str) -> str:
    return subprocess.run([PROGRAM, "completion", shell], capture_output=True, text=True, check=True).stdout


def check_syntax(shell: str, *check: str) -> None:
    if shutil.which(shell) is None:
        raise Skipped(f"there is no {shell} here to read its completion")
    done = subprocess.run([shell, *check], input=completion_of(shell), capture_output=True, text=True)
    require(done.returncode == 0, f"{shell} refuses its completion:", done.stderr[:500])


def words_after_typing(shell: list[str], setup: str, lines: list[str]) -> list[str]:
    """What `darkroom` is given by an interactive shell, in a folder with `my folder` and `download`, when these lines are typed: <word><word>..."""
    with tempfile.TemporaryDirectory(prefix="darkroom-test-") as folder:
        for name in ("here/my folder", "here/download", "here/models"):
            (pathlib.Path(folder) / name).mkdir(parents=True)
        (pathlib.Path(folder) / "_darkroom").write_text(completion_of(shell[0]))
        (pathlib.Path(folder) / "ran").touch()
        setup = f"darkroom() {{ printf '<%s>' \"$@\" >>{folder}/ran; echo >>{folder}/ran; }}; {setup.replace('FOLDER', folder)}\n"
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(folder + "/here")
            os.execvpe(shell[0], shell, {**os.environ, "TERM": "dumb", "HISTFILE": "/dev/null", "HOME": folder})
        shown = b""
        for line in [setup, *(line + "\n" for line in lines), "exit\n"]:
            os.write(terminal, line.encode())
        try:
            while select.select([terminal], [], [], 60)[0]:
                shown += os.read(terminal, 65_536)
        except OSError:
            pass  # The shell is gone.
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)
        got = (pathlib.Path(folder) / "ran").read_text().splitlines()
        require(len(got) == len(lines), f"{shell[0]} ran", got, shown.decode(errors="replace")[-2000:])
        return got


# Typed, and what the program is given. A folder gets no blank behind it, but a verb does, also where a folder has its name.
TYPED = {"darkroom inspect my\t": "<inspect><my folder/>", "darkroom downl\tx": "<download><x>", "darkroom bench trans\t": "<bench><transform>",
         "darkroom models che\tx": "<models><check><x>", "darkroom completion fi\t": "<completion><fish>"}


def bash_completes_what_is_typed() -> None:
    require(shutil.which("bash") is not None, "there is no bash")
    got = words_after_typing(["bash", "--norc", "--noprofile", "-i"], ". FOLDER/_darkroom", list(TYPED))
    require(got == list(TYPED.values()), "bash gives", got)


def zsh_completes_what_is_typed_from_the_first_tab_on() -> None:
    if shutil.which("zsh") is None:
        raise Skipped("there is no zsh here to try its completion")
    got = words_after_typing(["zsh", "-f", "-i"], "fpath=(FOLDER $fpath); autoload -U compinit; compinit -u -D", list(TYPED))
    want = [words.replace("/>", ">") for words in TYPED.values()]  # Its own slash goes with the end of the line.
    require(got == want, "zsh gives", got)


def bash_takes_its_completion() -> None:
    check_syntax("bash", "-n")


def zsh_takes_its_completion() -> None:
    check_syntax("zsh", "-n")


def fish_takes_its_completion() -> None:
    check_syntax("fish", "--no-execute")


def colours_are_for_terminals_without_no_color() -> None:
    with temporary_folder() as folder:
        command = [PROGRAM, "transform", "--resolution", "8", "--output", folder / "x", folder / "absent.png"]
        plain = {name: value for name, value in os.environ.items() if name not in ("TERM", "NO_COLOR")}
        for extra, is_coloured in (({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": ""}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False),
                                   ({"TERM": "dumb"}, False), ({}, False)):
            status, said = said_on_a_terminal([*command, "--quiet"], {**plain, **extra}, 80)
            marks = ("\x1b[1;33mwarning:\x1b[0m ", "\x1b[1;31merror:\x1b[0m ") if is_coloured else (" warning: ", "error: ")
            require(status == 1 and all(mark in said for mark in marks) and ("\x1b[" in said) == is_coloured, "a log line and the error on a terminal with", extra, status, repr(said))
        done = subprocess.run(command, capture_output=True, text=True, env={**plain, "TERM": "xterm"}, check=False)
        require("\x1b" not in done.stderr and "warning: " in done.stderr and "error: " in done.stderr, "elsewhere", done.stderr)


def completion_and_manual_are_made_of_the_definitions() -> None:
    texts = {shell: completion_of(shell) for shell in ("bash", "zsh", "fish")}
    texts["man"] = subprocess.run([PROGRAM, "man"], capture_output=True, text=True, check=True).stdout.replace("\\-", "-")
    for kind, text in texts.items():
        for verb, definition in definitions()["verbs"].items():
            require(definition["hidden"] or verb.split()[-1] in text, f"{kind} lacks", verb)
            for name, flag in flags_of(verb).items():
                if not flag["positional"] and not flag["later"] and not definition["hidden"]:
                    require(name[2:] in text, f"{kind} lacks", verb, name)
    complete = 'source /dev/stdin; COMP_WORDS=(darkroom "$@"); COMP_CWORD=$(($# )); _darkroom; printf "%s\\n" "${COMPREPLY[@]}"'
    for words, want in ((["downl"], "download"), (["models", "ex"], "export"), (["sample", "--pro"], "--prompt"), (["process", "--latents", "mo"], "moments")):
        done = subprocess.run(["bash", "-c", complete, "bash", *words], input=texts["bash"], capture_output=True, text=True)
        require(want in done.stdout.splitlines(), "bash completes", words, done.stdout, done.stderr)


if __name__ == "__main__":
    main([
        the_program_has_every_verb_and_flag_of_the_contract,
        every_flag_with_good_and_bad_values,
        every_unknown_flag_gets_a_suggestion,
        every_missing_or_superfluous_word_is_named,
        cleaning_needs_the_output_alone,
        what_is_not_built_yet_says_so,
        verbs_get_suggestions,
        every_flag_from_a_configuration_file,
        values_come_from_flags_then_file_then_defaults,
        a_list_takes_all_words_where_positional_ones_are_not_wanted,
        help_shows_every_flag_with_type_default_and_unit,
        examples_of_the_help_are_good_command_lines,
        programs_end_as_the_parser_said,
        colours_are_for_terminals_without_no_color,
        completion_and_manual_are_made_of_the_definitions,
        bash_takes_its_completion,
        zsh_takes_its_completion,
        fish_takes_its_completion,
        bash_completes_what_is_typed,
        zsh_completes_what_is_typed_from_the_first_tab_on,
    ])
