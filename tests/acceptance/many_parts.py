"""Acceptance 9: a job of very many parts. Resuming it, rebuilding what is derived from the parts, appending to it, inspecting it and planning a
job over it take time in proportion to the parts, and bounded memory."""

import pathlib
import shutil

from harness import ROOT, Skipped, Trials, cost_of, require, temporary_folder

FEW, MANY = 20_000, 200_000
PATIENCE = 7200  # Seconds for the making of all parts on a busy disk; a limit, no measure.
ROWS_A_PART = ["--rows-per-file", "1", "--error-budget", "100"]
MOST_MB = 600  # Of any of it; the program alone takes some 160.
MOST_GROWTH = 1.5  # Of the processor time a part, from the few parts to the many.


def write_table(path: pathlib.Path, num_rows: int) -> None:
    """Rows without captions: each costs a part and no request."""
    with path.open("w", encoding="utf-8") as table:
        table.write("URL,TEXT\n")
        table.writelines(f"http://127.0.0.1:9/{row},\n" for row in range(num_rows))


def costs_of(folder: pathlib.Path, num_parts: int) -> dict[str, dict]:
    """Of everything that is done about so many parts."""
    tables, out = folder / "tables", folder / "out"
    tables.mkdir(parents=True)
    write_table(tables / "a.csv", num_parts)
    job = ["download", out, "--metadata", tables, *ROWS_A_PART]
    costs = {"make": cost_of(*job, timeout=PATIENCE), "resume": cost_of(*job)}
    (out / "_summary.json").unlink()
    costs["without summary"] = cost_of(*job)
    (out / "_inputs.parquet").unlink()
    costs["without pins"] = cost_of(*job)
    write_table(tables / "b.csv", 1)
    costs["extend"] = cost_of(*job, "--extend")
    require(len(list(out.glob("part-*.parquet"))) == num_parts + 1, "parts", out)
    costs["inspect"] = cost_of("inspect", out)
    costs["plan process"] = cost_of("process", out, folder / "latents", "--model", ROOT / "models" / "tiny", "--dry-run")
    shutil.rmtree(folder)
    return costs


def many_parts_cost_time_in_proportion(trials: Trials) -> None:
    if not trials.is_full:
        raise Skipped("only with --full: ingest_test's JobPlans and ManyInputs count looks and allocations in every test run")
    with temporary_folder() as folder:
        costs = {count: trials.trial(f"{count} parts", lambda: costs_of(folder / str(count), count)) for count in (FEW, MANY)}
    start = trials.trial("no parts", lambda: cost_of("--version"))
    trials.figures.update({what: {str(count): costs[count][what] for count in costs} for what in costs[FEW]})
    for what, cost in costs[MANY].items():
        require(cost["peak_mb"] <= MOST_MB, "peak resident (MB)", what, cost)
        of_few, of_many = ((costs[count][what]["cpu_seconds"] - start["cpu_seconds"]) / count for count in (FEW, MANY))
        require(of_many <= MOST_GROWTH * of_few, "processor time a part grew (of few, of many)", what, of_few, of_many)


CHECKS = [("many_parts.linear", many_parts_cost_time_in_proportion)]
