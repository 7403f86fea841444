"""Acceptance 1: a store that forbids, is elsewhere, lacks the bucket, is dead or hangs: a clear error within 15 s, nothing visible, and
the rerun ends."""

import concurrent.futures
import re
import socket
import time

from harness import BUCKET, FakeS3Server, LoopbackWeb, Trials, Workbench, darkroom, digests, require, s3_environment, temporary_folder

LIMIT, SHORT_FORMS_LIMIT = 15.0, 60.0  # Seconds. The short form runs beside compilers; the full one alone.


def fails_soon(trials: Trials, name: str, arguments: list, environment: dict, message: str) -> None:
    begin = time.monotonic()
    done = darkroom(*arguments, environment=environment, expect={1, 2})
    seconds = time.monotonic() - begin
    trials.figures[name] = round(seconds, 1)
    require(seconds <= (LIMIT if trials.is_full else SHORT_FORMS_LIMIT), f"{name}: the error came late (seconds)", seconds)
    require(re.search(message, done.stderr) is not None, f"{name}: the message", done.stderr[-800:])


def all_fail_soon(trials: Trials, environment: dict, message: str, cases: dict[str, list]) -> None:
    """At once: most of what they do is to wait."""
    with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        list(pool.map(lambda case: fails_soon(trials, *case, environment, message), cases.items()))


def bad_stores_say_so(trials: Trials) -> None:
    with Workbench(20) as bench, LoopbackWeb(bench.path("corpus")) as web, FakeS3Server() as server, temporary_folder() as folder:
        flags = ["--metadata", bench.write_url_table(web.port), "--rows-per-file", "10", "--allow-private", f"127.0.0.1/32:{web.port}"]

        def job(bucket: str = BUCKET) -> list:
            return ["download", f"s3://{bucket}/images", *flags]

        darkroom("download", folder / "local", *flags)
        process = ["--model", bench.model, "--resolution", "64"]
        writing, reading = ["process", folder / "local", f"s3://{BUCKET}/latents", *process], ["process", f"s3://{BUCKET}/images", folder / "latents", *process]

        fails_soon(trials, "unauthorised", job(), s3_environment(server.endpoint, "NOBODY", "x"), "does not take these credentials|forbids it")
        fails_soon(trials, "wrong_secret", job(), s3_environment(server.endpoint, "AKFAKE", "x"), "does not take these credentials")
        fails_soon(trials, "missing_bucket", job("no-such-bucket"), server.environment(), "no such bucket")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            dead = f"127.0.0.1:{probe.getsockname()[1]}"
        all_fail_soon(trials, s3_environment(dead, "AKFAKE", "x"), "refuses the connection", {"dead": job(), "dead_output_of_process": writing, "dead_input": reading})
        fails_soon(trials, "unknown_host", job(), s3_environment("nobody.invalid", "AKFAKE", "x"), "name of the host is not known")
        server.tell("hang 1")
        all_fail_soon(trials, server.environment(), "no whole answer came in time", {"hung": job(), "hung_output_of_process": writing, "hung_input": reading})
        server.tell("hang 0")
        server.tell("region eu-central-1")
        for name, arguments in (("wrong_region", job()), ("wrong_region_input", reading)):
            fails_soon(trials, name, arguments, server.environment(), "the bucket is in another region; give its own with .region=")
        server.tell("region us-east-1")
        require(not list((server.dump(folder / "before")).rglob("part-*")), "something is visible")
        darkroom(*job(), environment=server.environment())
        require(not list((folder / "latents").glob("part-*")), "something was made of nothing")
        require(digests(str(server.dump(folder / "after") / "images"), "part-*.parquet") == digests(str(folder / "local"), "part-*.parquet"), "other parts than on a disk")


CHECKS = [("first_contact.bad_stores", bad_stores_say_so)]
