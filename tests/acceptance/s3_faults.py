"""Acceptance 1 and D3: an S3 server of which 30 % of the answers are 503, 500, resets, time-outs or lost: the jobs end right, and --clean
leaves no upload: one whose first reply was lost is a sweep's, since no listing tells it from another writer's (docs/stores.md)."""

from harness import BUCKET, FakeS3Server, LoopbackWeb, Trials, Workbench, darkroom, digests, require, temporary_folder


def jobs_end_right_on_a_bad_server(trials: Trials, conditions: str) -> None:
    with Workbench(trials.count(60, 600)) as bench, LoopbackWeb(bench.path("corpus")) as web, temporary_folder() as folder, FakeS3Server(conditions) as server:
        flags = ["--metadata", bench.write_url_table(web.port), "--rows-per-file", "20", "--allow-private", f"127.0.0.1/32:{web.port}"]
        process = ["--model", bench.model, "--resolution", "64", "--rows-per-file", "20"]
        darkroom("download", folder / "images", *flags)
        darkroom("process", folder / "images", folder / "latents", *process)
        server.tell(f"faults {30}")
        reruns = 0
        jobs = (["download", f"s3://{BUCKET}/images", *flags], ["process", f"s3://{BUCKET}/images", f"s3://{BUCKET}/latents", *process])
        for job in jobs:
            # One run may give up (eight tries of one request fail by chance); its rerun goes on.
            for _ in range(5):
                done = darkroom(*job, environment=server.environment(), expect={0, 1})
                if done.returncode == 0:
                    break
                reruns += 1
            require(done.returncode == 0, "the job does not end", done.stderr[-1500:])
        server.tell("faults 0")
        trials.figures.update(requests=int(server.tell("calls")), faults=int(server.tell("faulted")), reruns=reruns)
        objects = server.dump(folder / "objects")
        for name in ("images", "latents"):
            require(digests(str(objects / name), "part-*.parquet") == digests(str(folder / name), "part-*.parquet"), "other parts than on a good disk", name)
        require(int(server.tell("faulted")) > 10, "no faults were felt")
        trials.figures["uploads_for_the_sweep"] = int(server.tell("uploads"))
        server.tell("age 3600")  # Younger ones may be another writer's.
        for job in jobs:
            darkroom(*job, "--clean", environment=server.environment())
        require(server.tell("uploads") == "0", "open uploads are left", server.tell("uploads"))


CHECKS = [(f"s3_faults.{conditions}", lambda trials, conditions=conditions: jobs_end_right_on_a_bad_server(trials, conditions)) for conditions in ("everywhere", "put-only", "none")]
