from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import aspect
from aspect.randomness import SEED_BITS, generator_for, isolated_seed, seed_for


def test_seeds_depend_on_every_part_and_nothing_else():
    purposes = [
        (0,),
        (1,),
        (-1,),
        (0, "epoch", 1),
        (0, "epoch", 2),
        (0, "epoch", 12),
        (1, "epoch", 1),
    ]
    purposes += [(0, "split", 1), (0, "weights"), (10, "epoch", 1), (0, "epoch", 1, "a")]
    seeds = {seed_for(*purpose) for purpose in purposes}
    assert len(seeds) == len(purposes)
    assert all(0 <= seed < 2**SEED_BITS for seed in seeds)


def test_seeds_are_the_same_in_every_process():
    script = "from aspect.randomness import seed_for; print(seed_for(3, 'epoch', 41))"
    environment = {"PYTHONPATH": str(Path(aspect.__file__).parent.parent), "PYTHONHASHSEED": "9"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == seed_for(3, "epoch", 41)


def test_seeds_of_one_run_do_not_meet():
    assert (
        len({seed_for(seed, "epoch", epoch) for seed in range(20) for epoch in range(500)}) == 10**4
    )


def test_generators_are_fresh_and_their_own():
    first, again = generator_for(0, "epoch", 1), generator_for(0, "epoch", 1)
    before = torch.get_rng_state()
    drawn = torch.rand(5, generator=first)
    torch.testing.assert_close(drawn, torch.rand(5, generator=again), rtol=0, atol=0)
    other = torch.rand(5, generator=generator_for(0, "epoch", 2))
    assert not torch.equal(drawn, other)
    assert torch.equal(before, torch.get_rng_state())


def test_an_isolated_seed_is_given_back():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    expected = torch.rand(3, generator=torch.Generator().manual_seed(8))
    with isolated_seed(8):
        torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)
    assert torch.equal(before, torch.get_rng_state())


def test_an_isolated_seed_is_given_back_after_an_error():
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="within"), isolated_seed(8):
        raise RuntimeError("within")
    assert torch.equal(before, torch.get_rng_state())


def test_an_isolated_seed_touches_no_gpu(monkeypatch):
    def refuse(*_):
        raise AssertionError("the GPUs' generators are nobody's to seed here")

    monkeypatch.setattr(torch.cuda, "manual_seed_all", refuse)
    monkeypatch.setattr(torch.cuda, "manual_seed", refuse)
    with isolated_seed(8):
        torch.rand(1)


def test_an_isolated_seed_is_one_of_its_thread():
    """Otherwise models that threads build at once would have each other's first weights."""
    seeded, others, done, drawn = threading.Event(), threading.Event(), threading.Event(), []

    def draw():
        with isolated_seed(8):
            seeded.set()
            others.wait(0.5)
            drawn.append(torch.rand(3))
            done.set()

    def seed_anew():
        seeded.wait()
        with isolated_seed(9):
            others.set()
            done.wait()

    threads = [threading.Thread(target=task) for task in (draw, seed_anew)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(drawn[0], torch.rand(3, generator=torch.Generator().manual_seed(8)))
