"""Counters and gauges on Ray's own metrics port; names and labels: docs/cluster.md."""


def restart_counter(verb: str):
    from ray.util.metrics import Counter

    made = Counter("darkroom_ray_restarts_total", description="Workers, encoders and trials that were lost and replaced; of ranks the starts of their group after the first.", tag_keys=("verb",))
    made.set_default_tags({"verb": verb})
    return made


class JobMeasures:
    """Of one job; kept by its driver."""

    def __init__(self, verb: str) -> None:
        from ray.util.metrics import Counter, Gauge

        def counter(name: str, what: str, *labels: str):
            made = Counter(f"darkroom_ray_{name}", description=what, tag_keys=("verb", *labels))
            made.set_default_tags({"verb": verb})
            return made

        def gauge(name: str, what: str):
            made = Gauge(f"darkroom_ray_{name}", description=what, tag_keys=("verb",))
            made.set_default_tags({"verb": verb})
            return made

        self.rows = counter("rows_total", "Input rows of committed items.")
        self.row_errors = counter("row_errors_total", "Rows without a result, by code.", "code")
        self.items = counter("items_total", "Items that were committed.")
        self.bytes = counter("bytes_total", "Bytes of the parts that were committed.")
        self.restarts = restart_counter(verb)
        self.open_items = gauge("open_items", "Items that are still to do.")
        self.workers = gauge("workers", "Tasks or encoders at work.")

    def count(self, answers: list[dict]) -> None:
        for answer in answers:
            if answer["outcome"] != "committed":
                continue
            self.items.inc(1)
            for counter, amount in ((self.rows, answer["rows_in"]), (self.bytes, answer["bytes"])):
                if amount:  # Ray counts no nothing.
                    counter.inc(amount)
            for code, amount in answer["rows_by_error"].items():
                self.row_errors.inc(amount, tags={"code": code})


class TrainMeasures:
    """Of one run; kept by rank 0."""

    # What each is of a run on a store, where the program's line of progress has it.
    ON_A_STORE = {"loss": "a running mean", "goodput": "not told"}
    FIELDS = ("step", "loss", "grad_norm", "lr", "images_per_second", "goodput")

    def __init__(self) -> None:
        from ray.util.metrics import Gauge

        self.gauges = {name: Gauge(f"darkroom_ray_train_{name}", description=self._about(name)) for name in self.FIELDS}

    def _about(self, name: str) -> str:
        on_a_store = self.ON_A_STORE.get(name, "of the last line of progress")
        return f"{name} of the last logged step; of a run on a store {on_a_store}."

    def set(self, line: dict) -> None:
        for name, gauge in self.gauges.items():
            if name in line:
                gauge.set(line[name])
