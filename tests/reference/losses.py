"""The objective written out: loops over nodes, one exponential at a time, in many digits."""

import math

import mpmath

DIGITS = 60


def _unit(row):
    length = mpmath.sqrt(sum(value * value for value in row))
    return [value / length for value in row] if length > 0 else row


def info_nce(queries, keys, temperature):
    """Row and column losses of every node, in sixty digits."""
    with mpmath.workdps(DIGITS):
        asking = [_unit([mpmath.mpf(value) for value in row]) for row in queries.tolist()]
        answering = [_unit([mpmath.mpf(value) for value in row]) for row in keys.tolist()]
        rows = [_direction(asking, answering, node, temperature) for node in range(len(asking))]
        columns = [_direction(answering, asking, node, temperature) for node in range(len(asking))]
    return rows, columns


def _direction(asking, answering, node, temperature):
    scores = [
        sum(a * b for a, b in zip(asking[node], other, strict=True)) / mpmath.mpf(temperature)
        for other in answering
    ]
    return float(mpmath.log(sum(mpmath.exp(score) for score in scores)) - scores[node])


def channel_costs(evidence):
    """z-scores over the union of all bands, node by node."""
    every = [value for band in evidence for value in band]
    mean = sum(every) / len(every)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in every) / len(every))
    return [[(value - mean) / deviation for value in band] for band in evidence]


def policy_target(costs, gate_temperature):
    """`exp(-b_c / tau_g)`, divided by its sum over the bands; one list per node."""
    target = []
    for node in range(len(costs[0])):
        trust = [math.exp(-band[node] / gate_temperature) for band in costs]
        target.append([value / sum(trust) for value in trust])
    return target


def binary_cross_entropy(gates, targets):
    """The mean over nodes of the paper's form, for the low band's weight."""
    losses = [
        -(target * math.log(gate) + (1 - target) * math.log(1 - gate))
        for gate, target in zip(gates, targets, strict=True)
    ]
    return sum(losses) / len(losses)


def sigmoid(logit):
    """The gate of the paper."""
    return 1 / (1 + math.exp(-logit))
