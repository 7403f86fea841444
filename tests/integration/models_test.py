#!/usr/bin/env python3
"""The verbs of `models`: a new model from any folder, an original checkpoint as one file, and what a signal leaves of them."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile

from PIL import Image

from cases import temporary_folder
from safetensors_files import enlarge_vocabulary, original_checkpoint, write_random, write_zeros
from workbench import PROGRAM, digests, main, require, run

HUGE_VOCABULARY = 2_000_000  # Ids: a gigabyte of the tiny text encoder's weights, which is seconds of work.


def summary_of(*arguments, folder: pathlib.Path) -> dict:
    run(*arguments, "--json-summary", folder / "summary.json")
    return json.loads((folder / "summary.json").read_text())


def init_finds_its_vocabulary_from_any_folder() -> None:
    with temporary_folder() as folder:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DARKROOM_")}
        command = [PROGRAM, "models", "init", "--preset", "tiny", "model", "--seed", "3"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        require(done.returncode == 0, "exit code", done.returncode, done.stderr)
        run("models", "init", "--preset", "tiny", folder / "same", "--seed", "3")
        files = digests(str(folder / "model"), "**/*")
        require("tokenizer/merges.txt" in files and files == digests(str(folder / "same"), "**/*"), "files", sorted(files))
        require("tokenizer" in summary_of("models", "check", folder / "model", folder=folder), "a model without a tokenizer")


def check_reads(version: int) -> None:
    """A single file has the parameters that its layers have, the shipped vocabulary, and the weights that a folder made of it has."""
    with temporary_folder() as folder:
        tensors, num_parameters = original_checkpoint(version)
        file = folder / f"version-{version}.safetensors"
        write_random(str(file), tensors, seed=version)
        summary = summary_of("models", "check", file, folder=folder)
        found = {part: summary[part]["parameters"] for part in num_parameters}
        require(found == num_parameters, "parameters", found, num_parameters)
        require(summary["tokenizer"]["ids"] == 49408, "ids", summary["tokenizer"])
        printed = run("models", "check", file).stdout
        require("(the shipped one)" in printed, "tokenizer", printed)
        require(("scheduler     PNDMScheduler, epsilon" in printed) == (version == 1), "a file of version 2 does not say its schedule", printed)
        run("models", "export", file, folder / "exported", "--prediction-type", "epsilon")
        exported = summary_of("models", "check", folder / "exported", folder=folder)
        require(all(exported[part] == summary[part] for part in num_parameters), "the exported folder differs", exported, summary)
        if version == 2:  # Which has to be told more than version 1; a unit test paints with both (open_painter_test.cpp).
            same_picture(file, folder / "exported", folder)


def same_picture(file: pathlib.Path, model: pathlib.Path, folder: pathlib.Path) -> None:
    """`sample` paints the same picture to the last bit with a single file and with the model folder that was made of it."""
    painted = {}
    for source, flags in ((file, ("--prediction-type", "epsilon")), (model, ())):
        picture, latents = folder / f"{source.stem}.png", folder / f"{source.stem}-latents.safetensors"
        run("sample", "--model", source, *flags, "--prompt", "a red apple", "--steps", 2, "--size", "32x32", "--output", picture, "--save-latents", latents)
        painted[source.stem] = (Image.open(picture).convert("RGB").tobytes(), latents.read_bytes())
    require(len(set(painted.values())) == 1 and len(set(painted[file.stem][0])) > 1, "pictures of the file and of the folder differ", list(painted))


def check_reads_a_single_file_of_version_1() -> None:
    check_reads(1)


def check_reads_a_single_file_of_version_2() -> None:
    check_reads(2)


def export_writes_the_archive_of_a_sagemaker_endpoint() -> None:
    with temporary_folder() as folder:
        run("models", "init", "--preset", "tiny", folder / "model", "--seed", "3")
        for name in ("one.tar.gz", "same.tar.gz"):
            run("models", "export", folder / "model", folder / name, "--sagemaker")
        require((folder / "one.tar.gz").read_bytes() == (folder / "same.tar.gz").read_bytes(), "two archives of one model differ")
        run("models", "export", folder / "model", folder / "folder")
        with tarfile.open(folder / "one.tar.gz") as archive:
            archive.extractall(folder / "unpacked", filter="data")
        require(digests(str(folder / "unpacked"), "**/*") == digests(str(folder / "folder"), "**/*"), "the archive holds other files than the folder")
        require("is there already" in run("models", "export", folder / "model", folder / "one.tar.gz", "--sagemaker", expect=1).stderr, "replaced")
        stderr = run("models", "export", folder / "model", folder / "both", "--sagemaker", "--single-file", expect=2).stderr
        require("--single-file or --sagemaker" in stderr and not (folder / "both").exists(), "message", stderr)


def export_invents_no_schedule() -> None:
    """What a U-Net predicts is known or told; a folder without a U-Net gets a schedule that nobody asks."""
    with temporary_folder() as folder:
        model = folder / "model"
        run("models", "init", "--preset", "tiny", model, "--seed", "3")
        shutil.rmtree(model / "scheduler")
        stderr = run("models", "export", model, folder / "guessed", expect=1).stderr
        require("no scheduler/scheduler_config.json" in stderr and not (folder / "guessed").exists(), "message", stderr)
        require("no scheduler/" in run("models", "export", model, folder / "guessed.tar.gz", "--sagemaker", expect=1).stderr, "an archive of a guess")
        run("models", "export", model, folder / "told", "--prediction-type", "v_prediction")
        scheduler = json.loads((folder / "told/scheduler/scheduler_config.json").read_text())
        require(scheduler["prediction_type"] == "v_prediction", "schedule", scheduler)
        shutil.rmtree(model / "unet")
        run("models", "export", model, folder / "without")
        require((folder / "without/vae/config.json").exists(), "files", digests(str(folder / "without"), "**/*"))


def check_refuses_a_damaged_single_file() -> None:
    with temporary_folder() as folder:
        file = folder / "cut.safetensors"
        tensors, _ = original_checkpoint(1)
        write_zeros(str(file), tensors)
        os.truncate(file, file.stat().st_size - 1)
        require("cut.safetensors" in run("models", "check", file, expect=1).stderr, "the message lacks the file")
        write_zeros(str(file), {**tensors, "first_stage_model.encoder.surplus": [3]})
        stderr = run("models", "check", file, expect=1).stderr
        require("first_stage_model.encoder.surplus" in stderr and "cut.safetensors" in stderr, "message", stderr)


def stop(number: signal.Signals, folder: pathlib.Path, *arguments) -> None:
    """The signal comes when the program has begun; it ends with 128 + number, and the folder of its output is as it was."""
    before = sorted(folder.iterdir())
    job = subprocess.Popen([PROGRAM, *arguments, "--verbose"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    begun = job.stderr.readline()
    job.send_signal(number)
    message = begun + job.communicate(timeout=300)[1]
    require(job.returncode == 128 + number, "exit code", job.returncode, message[-1000:])
    require("error: models" in message and "stopped" in message.rsplit("error:", 1)[1], "message", message[-1000:])
    require(sorted(folder.iterdir()) == before, "left behind:", set(folder.iterdir()) - set(before))


def a_signal_ends_init() -> None:
    with temporary_folder() as folder:
        for number in (signal.SIGINT, signal.SIGTERM):
            stop(number, folder, "models", "init", "--preset", "quickstart", folder / "model")


def a_signal_ends_check_and_export() -> None:
    with temporary_folder() as folder:
        run("models", "init", "--preset", "tiny", folder / "model")
        enlarge_vocabulary(folder / "model", HUGE_VOCABULARY)
        stop(signal.SIGINT, folder, "models", "check", folder / "model")
        stop(signal.SIGTERM, folder, "models", "export", folder / "model", folder / "copy")
        stop(signal.SIGINT, folder, "models", "export", folder / "model", folder / "copy.safetensors", "--single-file")


def a_signal_ends_forward() -> None:
    with temporary_folder() as folder:
        run("models", "init", "--preset", "tiny", folder / "model")
        write_zeros(str(folder / "in.safetensors"), {"sample": [8, 4, 64, 64]})
        stop(signal.SIGTERM, folder, "models", "forward", folder / "model", "--component", "vae_decoder", "--inputs", folder / "in.safetensors",
             "--output", folder / "out.safetensors")


def sample_paints_where_one_pixel_is_left_inside_the_network() -> None:
    with temporary_folder() as folder:
        run("models", "init", "--preset", "tiny", folder / "model")
        run("sample", "--model", folder / "model", "--prompt", "a dot", "--size", "16x16", "--steps", "4", "--output", folder / "dot.png")
        require((folder / "dot.png").stat().st_size > 0, "picture")


def sample_paints_in_bfloat16_where_onednn_may_not_use_the_processors_products() -> None:
    with temporary_folder() as folder:
        run("models", "init", "--preset", "tiny", folder / "model")
        command = [PROGRAM, "sample", "--model", folder / "model", "--prompt", "a dot", "--size", "16x16", "--steps", "4", "--precision", "bfloat16"]
        command += ["--output", folder / "dot.png"]
        done = subprocess.run(command, env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}, capture_output=True, text=True, check=False)
        require(done.returncode == 0, "exit code", done.returncode, done.stderr)



if __name__ == "__main__":
    main([
        init_finds_its_vocabulary_from_any_folder,
        check_reads_a_single_file_of_version_1,
        check_reads_a_single_file_of_version_2,
        export_writes_the_archive_of_a_sagemaker_endpoint,
        export_invents_no_schedule,
        check_refuses_a_damaged_single_file,
        a_signal_ends_init,
        a_signal_ends_check_and_export,
        a_signal_ends_forward,
        sample_paints_where_one_pixel_is_left_inside_the_network,
        sample_paints_in_bfloat16_where_onednn_may_not_use_the_processors_products,
    ])
