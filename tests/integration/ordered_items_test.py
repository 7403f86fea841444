#!/usr/bin/env python3
"""`--items -`: a program that is told which items to do while it runs, and says what became of each.

usage: ordered_items_test.py
"""

import pathlib
import signal

from workbench import LoopbackWeb, Orders, Workbench, digests, main, require, run

NUM_PICTURES = 20  # Five items of four rows.
PATIENCE = 300  # Seconds; a limit, no measure.


def process_command(bench: Workbench, images: str, name: str, model: str = "") -> list[str]:
    return ["process", images, bench.path(name), "--model", model or bench.model, "--resolution", "64", "--rows-per-file", "4"]


def a_program_keeps_its_models_from_item_to_item() -> None:
    with Workbench(NUM_PICTURES) as bench:
        images = bench.write_image_dataset("images", 10, {5: b"no picture"})
        run(*process_command(bench, images, "reference"))
        model = bench.path("moved")
        pathlib.Path(bench.model).rename(model)
        orders = Orders(*process_command(bench, images, "ordered", model))
        require(orders.first == {"ready": True, "items": 6, "rows": NUM_PICTURES, "open_items": "0-5"}, "the plan", orders.first)
        pathlib.Path(model).rename(bench.path("gone"))  # Whoever opened it again would fail.
        for item, rows, errors in ((4, 4, {}), (1, 3, {"not_an_image": 1}), (0, 4, {}), (5, 2, {})):
            answer = orders.ask(item)
            want = {"item": item, "outcome": "committed", "rows_in": rows + sum(errors.values()), "rows_out": rows, "rows_by_error": errors, "bytes": answer["bytes"]}
            require(answer == want and answer["bytes"] > 0, "an answer", answer, want)
            require(pathlib.Path(bench.path("ordered"), f"part-{item:06d}.parquet").exists(), "what was answered is not there", item)
        require(orders.ask(4)["outcome"] == "there" and orders.ask(6)["outcome"] == "unknown" and orders.ask(-1)["outcome"] == "unknown", "other outcomes")
        for line in ("", "1-2", "one", "99999999999999999999", "\u00fc"):
            answer = orders.ask(line)
            require(answer["outcome"] == "refused" and answer["line"] == line, "a wrong line", line, answer)
        require([orders.ask(item)["outcome"] for item in (2, 3)] == ["committed", "committed"], "after wrong lines")
        orders.end()
        require(digests(bench.path("ordered"), "part-*") == digests(bench.path("reference"), "part-*"), "other parts than those of a plain run")


def several_items_are_at_work_at_a_time() -> None:
    with Workbench(NUM_PICTURES) as bench, LoopbackWeb(bench.path("corpus")) as web:
        command = ["--metadata", bench.write_url_table(web.port), "--rows-per-file", "4", "--allow-private", f"127.0.0.1/32:{web.port}"]
        run("download", bench.path("reference"), *command)
        orders = Orders("download", bench.path("ordered"), *command)
        orders.process.stdin.write("3\n0\n2\n1\n4\n4\n")
        orders.process.stdin.flush()
        answers = [orders.heard() for _ in range(6)]
        require(sorted(answer["item"] for answer in answers if answer["outcome"] == "committed") == [0, 1, 2, 3, 4], "answers", answers)
        require([answer["item"] for answer in answers if answer["outcome"] != "committed"] == [4], "an item asked for twice", answers)
        orders.end()
        require(digests(bench.path("ordered"), "part-*") == digests(bench.path("reference"), "part-*"), "other parts than those of a plain run")


def a_program_that_waits_for_orders_can_be_stopped() -> None:
    with Workbench(NUM_PICTURES) as bench:
        images = bench.write_image_dataset("images", NUM_PICTURES)
        orders = Orders(*process_command(bench, images, "stopped"))
        require(orders.ask(1)["outcome"] == "committed", "an item")
        orders.process.send_signal(signal.SIGTERM)
        orders.end(expect=128 + signal.SIGTERM)
        require(len(digests(bench.path("stopped"), "part-*")) == 1, "what was committed is gone")


def a_program_that_nobody_listens_to_ends() -> None:
    with Workbench(NUM_PICTURES) as bench:
        images = bench.write_image_dataset("images", NUM_PICTURES)
        orders = Orders(*process_command(bench, images, "unheard"))
        orders.process.stdout.close()
        orders.process.stdin.write("0\n")
        orders.process.stdin.flush()
        require(orders.process.wait(PATIENCE) == 1, "exit code", orders.process.returncode)
        require("does not read" in orders.process.stderr.read(), "the reason is missing")
        again = Orders(*process_command(bench, images, "unheard"))
        require(again.first["open_items"] == "1-4", "what was committed is done again", again.first)
        again.end()


def orders_and_shares_exclude_each_other() -> None:
    done = run("process", "in", "out", "--model", "m", "--items", "-", "--shard", "0/2", expect=2)
    require("--shard" in done.stderr, "the flag is not named", done.stderr)


if __name__ == "__main__":
    main(
        [
            a_program_keeps_its_models_from_item_to_item,
            several_items_are_at_work_at_a_time,
            a_program_that_waits_for_orders_can_be_stopped,
            a_program_that_nobody_listens_to_ends,
            orders_and_shares_exclude_each_other,
        ]
    )
