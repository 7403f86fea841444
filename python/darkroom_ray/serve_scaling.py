"""How many replicas the open work wants. A module without imports: Ray Serve takes it to its controller by value."""

LOAD = "load"  # A replica's open cost over the cost that one is meant for.


def replicas_for_load(context) -> tuple[float, dict]:
    """As many as the whole open work would fill; bounds and delays are Ray Serve's to apply."""
    loads = (context.aggregated_metrics or {}).get(LOAD, {})
    if not loads:  # No replica has told yet.
        return context.target_num_replicas, {}
    return sum(loads.values()), {}
