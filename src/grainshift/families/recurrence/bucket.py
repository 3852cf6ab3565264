"""Names the shape bucket of a call: batch and steps, each up to the next power of two."""

_TRAIN = "train"


def name(batch: int, steps: int) -> str:
    """The bucket of a call, such as `B1.T128`."""
    return f"B{_power(batch)}.T{_power(steps)}"


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


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()
