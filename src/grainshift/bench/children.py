"""Where the bench starts its processes: one server that has torch imported, and forks.

A process is there in milliseconds and still shares nothing with another: the server runs no
operator, so that it has no threads yet. Knows nothing of what they do.
"""

import multiprocessing
from multiprocessing.context import ForkServerContext

_PRELOADED = ["__main__", "torch", "grainshift.bench.contender", "grainshift.bench.journal"]


def children() -> ForkServerContext:
    """The context that starts processes; the server begins with the first."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context
