"""What Readings prove: bounds that hold however often one looks, levels, and drift. Pure numbers.

The bounds are the asymptotic confidence sequence of Waudby-Smith et al. (Time-uniform central
limit theory), on block differences whose outliers are drawn in and whose variance is shrunk
towards the noise of single runs, so that the first few blocks do not look surer than they are.
"""

import math
from dataclasses import dataclass
from statistics import fmean, median

_PRIOR_BLOCKS = 4.0
_TIGHTEST_AT = 12.0
_CLIP = 4.0
LEVEL_MEMORY = 64
_GUESSED_NOISE = 0.1
_SMALLEST_NOISE = 0.002
_LARGEST_LOG = 80.0  # beyond any number of seconds, and far from where exp ends


@dataclass(frozen=True, slots=True)
class Bounds:
    """A mean with the interval that holds it at every look."""

    low: float
    mean: float
    high: float
    deviation: float


def bounds(differences: tuple[float, ...], noise: float, error: float) -> Bounds:
    """Where the mean of paired log ratios lies, wrong at any look with probability `error`."""
    count = len(differences)
    if not count:
        return Bounds(-math.inf, 0.0, math.inf, noise)
    centre = median(differences)
    spread = 1.4826 * median(abs(value - centre) for value in differences)
    prior = _PRIOR_BLOCKS * noise * noise
    scale = math.sqrt((prior + count * spread * spread) / (_PRIOR_BLOCKS + count))
    reach = _CLIP * max(scale, _SMALLEST_NOISE)
    drawn = [min(max(value, centre - reach), centre + reach) for value in differences]
    mean = fmean(drawn)
    squares = sum((value - mean) ** 2 for value in drawn)
    deviation = math.sqrt((prior + squares) / (_PRIOR_BLOCKS + count - 1.0))
    radius = deviation * _unit_radius(count, error)
    return Bounds(mean - radius, mean, mean + radius, deviation)


def _unit_radius(count: int, error: float) -> float:
    log_error = -2.0 * math.log(error)
    rho2 = (log_error + math.log(log_error) + 1.0) / _TIGHTEST_AT
    growth = count * rho2 + 1.0
    return math.sqrt(2.0 * growth / (count * count * rho2) * math.log(math.sqrt(growth) / error))


@dataclass(frozen=True, slots=True)
class Level:
    """The running level of log seconds for a unit of work, with its noise.

    `jitter` is half the mean square of the step from one run to the next: the variance that
    paired blocks see, while slow waves of the machine show in `variance` alone.
    """

    count: int = 0
    mean: float = 0.0
    variance: float = 0.0
    jitter: float = 0.0
    last: float = 0.0

    @property
    def noise(self) -> float:
        """Standard deviation of one run beside its neighbours; a guess until there are a few."""
        if self.count < 4:
            return _GUESSED_NOISE
        return max(math.sqrt(min(self.jitter, self.variance)), _SMALLEST_NOISE)

    @property
    def drift_noise(self) -> float:
        """Standard deviation for telling drift: wider where runs resemble their neighbours."""
        if self.count < 4:
            return _GUESSED_NOISE
        alike = min(max(1.0 - self.jitter / max(self.variance, 1e-12), 0.0), 0.98)
        inflation = math.sqrt((1.0 + alike) / (1.0 - alike))
        return max(math.sqrt(self.variance) * inflation, _SMALLEST_NOISE)

    @property
    def unit_s(self) -> float:
        """Expected seconds for a unit of work."""
        if not self.count:
            return math.inf
        return math.exp(min(self.mean + self.variance / 2.0, _LARGEST_LOG))

    def standard(self, log_unit_s: float) -> float:
        """How many deviations a run is away from this level, drawn in to four."""
        residual = (log_unit_s - self.mean) / self.drift_noise
        return min(max(residual, -_CLIP), _CLIP)

    def add(self, log_unit_s: float) -> "Level":
        """The level after one more run."""
        if self.count >= 4:
            log_unit_s = self.mean + self.drift_noise * self.standard(log_unit_s)
        count = min(self.count + 1, LEVEL_MEMORY)
        step = log_unit_s - self.mean
        mean = self.mean + step / count
        variance = self.variance + (step * (log_unit_s - mean) - self.variance) / count
        jitter = self.jitter
        if count > 1:
            jitter += ((log_unit_s - self.last) ** 2 / 2.0 - jitter) / (count - 1)
        return Level(count, mean, max(variance, 0.0), jitter, log_unit_s)


@dataclass(frozen=True, slots=True)
class Cusum:
    """A two-sided CUSUM of standardised residuals."""

    high: float = 0.0
    low: float = 0.0

    def add(self, residual: float, slack: float) -> "Cusum":
        """The sums after one more residual."""
        return Cusum(max(0.0, self.high + residual - slack), max(0.0, self.low - residual - slack))

    def hit(self, limit: float) -> bool:
        """Whether the level has moved."""
        return self.high > limit or self.low > limit
