"""Attacks for tests: a toy that follows the real one's interface, and a way to run any of them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch

from aspect import mixed_graph
from aspect.attacks.base import Attack
from aspect.attacks.file import PerturbationFile
from aspect.attacks.registry import attack_info
from aspect.attacks.run import AttackRequest, plan_attacks, run_attack
from aspect.data.splits import make_splits

CPU = torch.device("cpu")


def labelled_graph(num_nodes=60):
    return mixed_graph(num_nodes=num_nodes, degree=6.0, num_features=8, num_classes=3, seed=1)


def with_published(labelled):
    """The same graph with its random splits as published ones: no label moves them any more."""
    splits = make_splits("random", labelled.labels, labelled.num_classes)
    masks = {
        part: torch.stack([_mask(getattr(split, part), len(labelled.labels)) for split in splits])
        for part in ("train", "validation", "test")
    }
    return replace(labelled, masks=masks)


def _mask(nodes, count):
    mask = torch.zeros(count, dtype=torch.bool)
    mask[nodes] = True
    return mask


def plan(labelled, kind="metattack", *, flips=20, split=0, splits="random", seed=0, **settings):
    """One attack on one split."""
    request = AttackRequest(kind=kind, settings=settings, flips=flips, splits=splits, seed=seed)
    (planned,) = plan_attacks(labelled, "small", request, [split], CPU)
    return planned


def plan_toy(flips=20, **changes: Any):
    planned = plan(labelled_graph(), "random", flips=flips, **changes)
    return replace(planned, attack=type("OwnToy", (Toy,), {"states": []}))


def run(planned, path, *, resume=False, on_progress=None):
    """Run an attack that writes at every opportunity."""
    file = PerturbationFile.open(path, planned.facts, resume=resume)
    return run_attack(planned, file, on_progress, seconds_between_writes=0.0)


def timeless(path, file):
    """The bytes of a file, its time left aside."""
    facts = file.facts.model_copy(update={"seconds": 0.0})
    replace(file, facts=facts).write(path)
    return path.read_bytes()


class Killed(BaseException):
    """What no one catches."""


def killing(after):
    """A listener that dies after so many steps, before what they found is written."""
    steps = 0

    def listen(_):
        nonlocal steps
        steps += 1
        if steps > after:
            raise Killed

    return listen


class Toy(Attack):
    """Walks over all pairs by steps that depend on everything since the beginning."""

    info = attack_info("random")
    states: list  # that it was begun with

    def __init__(self, target, _config, *, seed, state=None):
        self.states.append(state)
        self.pairs = torch.combinations(torch.arange(target.graph.num_nodes))
        self.made = torch.empty(0, dtype=torch.long) if state is None else state["made"]
        self.memory = torch.tensor(seed) if state is None else state["memory"]

    def advance(self, most):
        new = []
        for _ in range(min(3, most)):
            self.memory = (self.memory * 48271 + 11) % 2147483647
            free = torch.ones(len(self.pairs), dtype=torch.bool)
            free[self.made] = False
            left = free.nonzero().flatten()
            place = left[self.memory % len(left)]
            self.made = torch.cat([self.made, place.reshape(1)])
            new.append(place)
        return self.pairs[torch.stack(new)]

    def state(self):
        return {"made": self.made, "memory": self.memory}


if __name__ == "__main__":  # a process to be killed: slow, so that the kill falls into the middle
    import sys
    from pathlib import Path

    run(
        plan(labelled_graph(), flips_per_gradient=1, flips=30),
        Path(sys.argv[1]),
        on_progress=lambda _: time.sleep(0.05),
    )
