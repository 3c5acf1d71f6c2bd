"""What the attackers see, and that all kinds are asked in one way."""

from dataclasses import replace

import pytest
import torch

from aspect.attacks.kinds import STRATEGIES, Sight
from aspect.attacks.metattack import Metattack
from aspect.data.graph import UNLABELLED
from aspect.data.splits import make_splits
from aspect.errors import SettingsError
from attacks.attempts import labelled_graph, plan, run, timeless, with_published


def poisoned(labelled, split):
    """The same graph with other classes for all nodes but the training ones."""
    labels = labelled.labels.clone()
    others = torch.ones(len(labels), dtype=torch.bool)
    others[split.train] = False
    labels[others] = (labels[others] + 1) % labelled.num_classes
    return replace(labelled, labels=labels)


@pytest.mark.parametrize("kind", STRATEGIES)
@pytest.mark.parametrize("number", [0, 4])
def test_labels_outside_of_the_training_nodes_change_nothing(tmp_path, kind, number):
    clean = with_published(labelled_graph())
    split = make_splits("published", clean.labels, clean.num_classes, masks=clean.masks)[number]
    other = poisoned(clean, split)
    traces = [
        run(plan(each, kind, split=number, splits="published"), tmp_path / str(place))
        for place, each in enumerate((clean, other))
    ]
    assert traces[0].facts.graph.sha256 != traces[1].facts.graph.sha256
    graph = traces[0].facts.graph
    same = replace(traces[1], facts=traces[1].facts.model_copy(update={"graph": graph}))
    assert timeless(tmp_path / "b", traces[0]) == timeless(tmp_path / "c", same)


def test_the_labels_of_training_nodes_do_matter(tmp_path):
    clean = labelled_graph()
    other = replace(clean, labels=(clean.labels + torch.arange(60) // 5) % 3)
    first, second = (
        run(plan(each), tmp_path / str(place)) for place, each in enumerate((clean, other))
    )
    assert not torch.equal(first.keys, second.keys)


def test_the_attacker_sees_training_labels_alone():
    labelled = labelled_graph()
    split = make_splits("class-balanced", labelled.labels, labelled.num_classes)[0]
    sight = Sight.of(labelled, split)
    seen = (sight.labels != UNLABELLED).nonzero().flatten()
    assert torch.equal(seen, split.train)
    assert torch.equal(sight.labels[seen], labelled.labels[seen])


def test_random_flips_have_settings_of_their_own():
    with pytest.raises(SettingsError, match="Unknown setting 'ridge' of random"):
        plan(labelled_graph(), "random", ridge=1.0)


def test_metattack_follows_the_interface():
    planned = plan(labelled_graph())
    assert isinstance(planned.strategy.begin(planned.sight, 0, None), Metattack)
    assert planned.working_bytes > 0
