"""The published topology with rates of the catalogue (prices/catalogue.toml), and what the driver's preflight says of it."""

import math
import pathlib
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))

from darkroom_ray.flags import read_request  # noqa: E402
from darkroom_ray.preflight import Node, candidates, check_resources, room_on  # noqa: E402
from encoding import EncodingPlan, Stage  # noqa: E402
from losses import HOUR, NEVER, Losses  # noqa: E402
from training import TrainingPlan  # noqa: E402

NUM_ITEMS = 200_000
ROWS_PER_ITEM = 5_000
NUM_ENCODERS = 48
NUM_TRAINERS = 32
BATCH_ROWS = 4096
BATCHES_AHEAD = 4
# Rows a second of one core (docs/benchmarks.md): "Transform and resize", and new https connections of "download" for reading.
TRANSFORM_RATE = 494.0
PILLOW_RATE = 197.0
READ_RATE = 1152.0
READERS = TRANSFORMERS = 4  # Of an encoder's machine: 192 and 192 of 384 CPUs.

COMMAND = f"raw out --num-encoders {NUM_ENCODERS} --accelerator-type A10G --num-transformers {NUM_ENCODERS * TRANSFORMERS} --num-cpus-per-transformer 1"


class Catalogue:
    def __init__(self, path: pathlib.Path = ROOT / "prices" / "catalogue.toml") -> None:
        self._tables = tomllib.loads(path.read_text(encoding="utf-8"))

    def rate(self, task: str, accelerator: str, resolution: int) -> float:
        found = [line["per_second"] for line in self._tables["rate"] if (line["task"], line["accelerator"], line.get("resolution")) == (task, accelerator, resolution)]
        if not found:
            raise KeyError(f"the catalogue has no rate of {task} on {accelerator} at {resolution}")
        return float(found[0])

    def fact(self, name: str) -> float:
        return float(next(line["value"] for line in self._tables["fact"] if line["name"] == name))

    def losses(self, purchase: str) -> Losses:
        """never: none."""
        if purchase == "never":
            return Losses()
        line = next(line for line in self._tables["loss"] if line["purchase"] == purchase)
        return Losses(line["hours_between"] * HOUR, line["wait_hours"] * HOUR, line["restart_hours"] * HOUR)


def published_nodes() -> list[Node]:
    """48 g5.2xlarge, 4 p4de.24xlarge and an m5 head, as Ray counts them."""
    head = [Node("head", resources={"CPU": 8.0, "memory": 32e9})]
    encoders = [Node(f"g5-{number}", resources={"CPU": 8.0, "GPU": 1.0, "memory": 32e9, "accelerator_type:A10G": 1.0}) for number in range(NUM_ENCODERS)]
    trainers = [Node(f"p4de-{number}", resources={"CPU": 96.0, "GPU": 8.0, "memory": 1152e9, "accelerator_type:A100": 1.0}) for number in range(NUM_TRAINERS // 8)]
    return head + encoders + trainers


def placement_report() -> dict:
    """What the preflight makes of the published command on the published nodes."""
    request = read_request("process", COMMAND.split(), "/")
    nodes = published_nodes()
    found = candidates(nodes, request.placement)
    return {
        "problems": check_resources(nodes, request),
        "nodes_that_fit": len(found),
        "encoders_with_room": sum(room_on(node, request.placement) for node in found),
        "cpus_of_these_nodes": sum(node.amount("CPU") for node in found),
        "cpus_reserved": request.num_workers * request.placement.num_cpus,
    }


def encoding_plan(catalogue: Catalogue, side: int, purchase: str, num_encoders: int = NUM_ENCODERS, transform_rate: float = TRANSFORM_RATE, num_items: int = NUM_ITEMS) -> EncodingPlan:
    work = (side / 256) ** 2  # A transformed picture of twice the side costs no more than four times as much.
    stages = (Stage("read", READERS, READ_RATE), Stage("transform", TRANSFORMERS, transform_rate / work), Stage("encode", 1, catalogue.rate("encode", "A10G", side)))
    return EncodingPlan(num_items, ROWS_PER_ITEM, num_encoders, stages, losses=catalogue.losses(purchase))


def best_interval(pause: float, between: float) -> float:
    """Young's: seconds of training from one checkpoint to the next."""
    return math.sqrt(2 * pause * between) if between < NEVER else NEVER


def training_plan(catalogue: Catalogue, side: int, purchase: str, num_encoders: int = 0, is_encoding_itself: bool = False) -> TrainingPlan:
    """Latents that are there already (no encoders), encoders beside, or trainers that encode."""
    losses = catalogue.losses(purchase)
    slower = catalogue.fact("online_slowdown") if is_encoding_itself else 1.0
    pause = catalogue.fact("checkpoint_hours") * HOUR
    return TrainingPlan(
        rows=NUM_ITEMS * ROWS_PER_ITEM,
        num_trainers=NUM_TRAINERS,
        train_rate=catalogue.rate("train", "A100-80GB", side) / slower,
        num_encoders=num_encoders,
        encode_rate=catalogue.rate("encode", "A10G", side),
        ahead_rows=BATCHES_AHEAD * BATCH_ROWS,
        trainer_losses=losses,
        encoder_losses=losses,
        checkpoint_every=best_interval(pause, losses.between / (NUM_TRAINERS / 8)),
        checkpoint_seconds=pause,
    )
