"""Samples that .ci/run cuts into shards: load lines and faults. PLIMSOLL_SHARDS=0,2 runs two thirds of them; unset, all."""
import os

SHARDS = 3


def is_mine(index):
    """Whether the sample with this index is one of the shards that run."""
    chosen = os.environ.get("PLIMSOLL_SHARDS")
    return not chosen or str(index % SHARDS) in chosen.split(",")
