"""PR-BCD of another library: it agrees with our surrogate, and both harm it."""

import pytest
import torch

from aspect.attacks.base import apply_flips
from aspect.attacks.drawn import random_flips
from aspect.attacks.flip_ranking import AttackedEdges
from aspect.attacks.metattack import Metattack, MetattackConfig
from aspect.attacks.pr_bcd import PRBCD, PRBCDConfig, _Propagation
from aspect.errors import SettingsError
from attacks.tasks import class_task
from reference.metattack import attack_loss, dense_adjacency, propagated

TASK = class_task(dtype=torch.float32)
SHORT = PRBCDConfig(block_size=2000, epochs=20, resampled_epochs=15)


def attacked(count, seed=0):
    return PRBCD(TASK.target, SHORT, seed=seed).advance(count)


def test_its_model_is_our_surrogate():
    ones = torch.ones(TASK.graph.edge_index.shape[1])
    x = TASK.graph.features[:, :3]
    adjacency = AttackedEdges(TASK.graph).normalised()
    found = _Propagation()(x, TASK.graph.edge_index, ones)
    torch.testing.assert_close(found, adjacency @ (adjacency @ x))


def test_the_seed_decides_and_nothing_else_is_touched():
    before = torch.get_rng_state()
    assert torch.equal(attacked(10), attacked(10))
    assert torch.equal(torch.get_rng_state(), before)
    flips = attacked(25, seed=1)
    assert attacked(10).tolist() != flips[:10].tolist()
    assert 0 < len(flips) <= 25
    assert bool((flips[:, 0] < flips[:, 1]).all())
    with pytest.raises(SettingsError, match="Got 0"):
        attacked(0)


def test_both_attacks_harm_the_trained_surrogate_more_than_chance():
    count = 20
    state = Metattack(TASK.target, MetattackConfig(), seed=0).state()

    def loss(flips):
        s = propagated(dense_adjacency(apply_flips(TASK.graph, flips)), TASK.graph.features)
        return float(attack_loss(s @ state["weights"], state["classes"], TASK.train))

    chance = loss(random_flips(TASK.graph, count, torch.Generator().manual_seed(0)))
    ours = Metattack(TASK.target, MetattackConfig(), seed=0).find(count)
    assert loss(attacked(count)) > chance
    assert loss(ours) > chance


def test_its_memory_grows_with_the_block_and_is_known_before_the_search():
    def needed(**settings):
        return PRBCD.working_bytes(TASK.target, PRBCDConfig(**settings))

    pairs = TASK.graph.num_nodes * (TASK.graph.num_nodes - 1) // 2
    assert needed(block_size=pairs // 2) < needed(block_size=pairs) == needed(block_size=9 * pairs)
    assert needed() > Metattack.working_bytes(TASK.target, MetattackConfig())
    assert needed(avoid_below=0.3) >= needed()
