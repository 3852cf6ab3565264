"""Names the shape bucket of a call: batch and steps, each up to the next power of two."""

from grainshift.core.site import Named

RAGGED = "ragged"  # a PackedSequence: rows that end at different steps
_TRAIN = "train"


def name(batch: int, steps: int, *words: str) -> str:
    """The bucket of a call, such as `B1.T128`; words tell what is special about it."""
    return ".".join((f"B{_power(batch)}", f"T{_power(steps)}", *words))


def train(bucket: str) -> str:
    """The bucket of the same shapes where gradients are wanted, such as `B1.T128.train`."""
    return f"{bucket}.{_TRAIN}"


def trains(bucket: str) -> bool:
    """Whether gradients are wanted of the calls of a bucket."""
    return bucket.endswith(f".{_TRAIN}")


def sizes(bucket: str) -> tuple[int, int]:
    """The largest batch and the most steps of a bucket."""
    batch, steps, *_ = bucket.split(".")
    return int(batch[1:]), int(steps[1:])


def is_ragged(bucket: str) -> bool:
    """Do its rows end at different steps?"""
    return RAGGED in bucket.split(".")


def features(bucket: str) -> Named:
    """What a policy sees of a bucket."""
    batch, steps = sizes(bucket)
    return (("batch", float(batch)), ("steps", float(steps)))


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()
