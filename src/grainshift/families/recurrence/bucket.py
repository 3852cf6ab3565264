"""Names the shape bucket of a call: batch and steps, each up to the next power of two."""

from grainshift.core.site import Named


def name(batch: int, steps: int) -> str:
    """The bucket of a call, such as `B1.T128`."""
    return f"B{_power(batch)}.T{_power(steps)}"


def sizes(bucket: str) -> tuple[int, int]:
    """The largest batch and the most steps of a bucket."""
    batch, steps = bucket.split(".")
    return int(batch[1:]), int(steps[1:])


def features(bucket: str) -> Named:
    """What a policy sees of a bucket."""
    batch, steps = sizes(bucket)
    return (("batch", float(batch)), ("steps", float(steps)))


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()
