"""The command darkroom-ray: parse, look at the cluster, run one verb on it, map what came of it to an exit code."""

import os
import signal
import sys

from darkroom_ray.cluster import connected
from darkroom_ray.flags import PLACED, Refused, help_text, read_request, with_settings
from darkroom_ray.program import EXIT_USAGE, find_program, read_arguments
from darkroom_ray.progress import say
from darkroom_ray.request import Request

USAGE = """usage: darkroom-ray VERB [flags]

  download    URL tables -> image dataset, a task a batch of items
  process     image dataset -> latents, by encoders that load their models once
  train       latents -> checkpoints, a rank a Ray Train worker
  online      raw images -> checkpoints, a rank a Ray Train worker, fed by encoder actors on other nodes
  tune        recipe -> the best one that a small search finds, its trials wherever they have room
  sample      prompts -> pictures, as one task
  serve       model -> pictures over HTTP, by replicas of Ray Serve that come and go with the work
  pipeline    recipe.toml -> stages of download, process, train, online, tune and sample, one after the other

`darkroom-ray VERB --help` lists the flags of the cluster and of the verb (docs/cluster.md)."""


def run_verb(request: Request) -> int:
    """Errors: Refused."""
    from darkroom_ray.serving import check_service
    from darkroom_ray.stopping import JobFailed, Stopped, StopWatch
    from darkroom_ray.summaries import check_summary_place, summary_of_end, write_summary
    from darkroom_ray.verbs import run_checked

    given = read_arguments(request)
    request = with_settings(request, given)
    check_summary_place(request.summary_path)
    if request.verb == "serve":
        check_service(request, given)

    def written(code: int, summary: dict) -> int:
        try:
            write_summary(request.summary_path, summary, code)
        except JobFailed as failure:
            say(str(failure))
            return failure.code
        return code

    def told(failure: JobFailed | Stopped) -> int:
        summary = summary_of_end(request, failure)
        say(summary["error"])
        return written(failure.code, summary)

    try:
        with connected(request):
            stop = StopWatch()  # Behind Ray, which has handlers of its own.
            try:
                code, summary = run_checked(request, given, stop)
            except (JobFailed, Stopped) as failure:
                return told(failure)
            return written(code, summary)
    except JobFailed as failure:  # Ray did not start.
        return told(failure)


def help_of(verb: str, words: list[str]) -> int:
    """Its own flags, then the program's."""
    import subprocess

    print(help_text(verb) + "\n\nOf the program:", flush=True)
    return subprocess.run([find_program(), "train" if verb == "online" else verb, *[word for word in words if word in ("--help", "-h")]], check=False).returncode


def stopped_before_all(number: signal.Signals) -> int:
    """The exit code."""
    say(f"stopped by {number.name}; nothing was begun")
    return 128 + number


def main(words: list[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    if not words or words[0] in ("--help", "-h", "help"):
        print(USAGE)
        return 0 if words else EXIT_USAGE
    verb, rest = words[0], words[1:]
    try:
        if verb == "pipeline":
            from darkroom_ray.pipeline import run_pipeline

            return run_pipeline(rest)
        if verb not in PLACED:
            raise Refused(f"there is no verb {verb}: {', '.join(PLACED)}, pipeline")
        if "--help" in rest or "-h" in rest:
            return help_of(verb, rest)
        return run_verb(read_request(verb, rest, os.getcwd(), os.environ.get("DARKROOM_PROGRAM", "")))
    except Refused as refusal:
        say(str(refusal))
        return EXIT_USAGE
    except KeyboardInterrupt:  # Before a StopWatch is there.
        return stopped_before_all(signal.SIGINT)
    except SystemExit as ended:
        if ended.code != signal.SIGTERM:
            raise
        return stopped_before_all(signal.SIGTERM)  # Ray's way of it while it starts.
