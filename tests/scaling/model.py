"""Times of an all-reduce of n bytes over p ranks: alpha seconds a message, beta seconds a byte.

Formulas without the term for the sums themselves: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective
Communication Operations in MPICH, International Journal of High Performance Computing Applications 19(1), 2005.
"""
from math import ceil, log2


def coefficients(algorithm, p, n):
    """How often alpha and beta count."""
    rounds = ceil(log2(p))
    return {
        "ring": (2 * (p - 1), 2 * (p - 1) / p * n),
        "recursive_doubling": (rounds, rounds * n),
        "rabenseifner": (2 * rounds, 2 * (p - 1) / p * n),
    }[algorithm]


def all_reduce(algorithm, p, n, link):
    """Seconds, over a link (alpha, beta)."""
    return sum(count * constant for count, constant in zip(coefficients(algorithm, p, n), link))


def fit(algorithm, p, times):
    """Alpha and beta >= 0 with the least sum of squared relative errors over (bytes, seconds)."""
    rows = [tuple(c / t for c in coefficients(algorithm, p, n)) for n, t in times]
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(row[i] for row in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    alpha, beta = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    if alpha < 0:
        return 0.0, b / bb
    return (alpha, beta) if beta >= 0 else (a / aa, 0.0)


def best(p, n, link):
    """Of the two algorithms whose latency grows with log2 p, the faster."""
    return min(all_reduce(name, p, n, link) for name in ("recursive_doubling", "rabenseifner"))


def two_level(p, n, network, seconds=best):
    """Within nodes of `node` ranks, then each rank with its like in all other nodes, over a port of its own."""
    inside = min(p, network["node"])
    return seconds(inside, n, network["inside"]) + seconds(ceil(p / inside), n, network["between"])
