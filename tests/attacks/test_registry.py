"""The registry, and what every attack in it holds to."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from aspect.attacks import registry
from aspect.attacks.base import Attack, Target, apply_flips
from aspect.attacks.perturbation import Perturbation
from aspect.attacks.registry import (
    AttackInfo,
    attack_info,
    attack_names,
    attack_title,
    check_solver,
    find_attack,
    register_attack,
)
from aspect.config import Config, make_config
from aspect.data.features import dense
from aspect.data.splits import SPLIT_SEEDS, make_splits
from aspect.errors import SettingsError, UnknownNameError
from aspect.evaluation.stability import train_stand_in
from attacks.attempts import CPU, AttackRequest, labelled_graph, plan_attacks, run, with_published

STORED = [name for name in attack_names() if attack_info(name).changes == "edges"]
SMALL = {
    "pr-bcd": {"block_size": 500, "epochs": 8, "resampled_epochs": 6},
    "nettack": {"targets": (7, 30)},
}


@pytest.fixture(scope="module", autouse=True)
def _short_stand_in():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aspect.evaluation.stability.STAND_IN", {"width": 8, "epochs": 2})
        yield


def planned(labelled, kind, *, flips=20, numbers=(0,), splits="random"):
    settings = SMALL.get(kind, {})
    request = AttackRequest(kind=kind, settings=settings, flips=flips, splits=splits)
    return plan_attacks(labelled, "small", request, list(numbers), CPU, train_stand_in)


def test_names_and_declarations_need_no_torch():
    code = (
        "import sys; from aspect.attacks.perturbation import Perturbation;"
        "from aspect.attacks.registry import attack_info, attack_names;"
        "assert Perturbation(kind='random').has_file is False;"
        "print(*attack_names()); assert 'torch' not in sys.modules"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    names = answer.stdout.split()
    assert {"random", "dice", "metattack", "pr-bcd", "gradient", "feature"} <= set(names)


@pytest.mark.parametrize("name", attack_names())
def test_the_source_declares_what_the_class_knows(name):
    attack = find_attack(name)
    assert attack.info == attack_info(name)
    graph = labelled_graph().graph
    config = attack.settle({}, graph)
    assert isinstance(config, attack.config_type)
    solvers = attack.info.solvers
    assert getattr(config, "solver", None) in (solvers or [None])
    with pytest.raises(SettingsError, match=f"Unknown setting 'magic' of {name}"):
        attack.settle({"magic": 1}, graph)


def test_a_wrong_name_or_solver_is_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'metattack'"):
        find_attack("metatack")
    with pytest.raises(SettingsError, match=r"Unknown attack 'dise'\. Did you mean 'dice'"):
        make_config(Perturbation, {"kind": "dise"}, owner="a plan")
    with pytest.raises(ValueError, match=r"unrolled \(the original's\) or implicit \(stronger\)"):
        check_solver("metattack", "")
    with pytest.raises(ValueError, match="dice has no solver: leave it out"):
        check_solver("dice", "implicit")
    check_solver("metattack", "implicit")
    check_solver("random", "")


def test_an_attack_is_registered_once_with_its_solvers(monkeypatch):
    monkeypatch.setattr(registry, "_attacks", {})

    class Own(Attack):
        __module__ = "aspect.attacks.own"

    entered = register_attack("own", config=Config, nested=False)(Own)
    assert entered.info == AttackInfo("own", nested=False)
    with pytest.raises(ValueError, match="Two attacks are called 'own'"):
        register_attack("own", config=Config)(Own)
    with pytest.raises(ValueError, match="must declare the solvers"):
        register_attack("other", config=Config, solvers={"a": "b"})(Own)


def poisoned(labelled, split):
    """The same graph with other classes for all nodes but the training ones."""
    labels = labelled.labels.clone()
    others = torch.ones(len(labels), dtype=torch.bool)
    others[split.train] = False
    labels[others] = (labels[others] + 1) % labelled.num_classes
    return replace(labelled, labels=labels)


@pytest.mark.parametrize("kind", STORED)
def test_labels_outside_of_the_training_nodes_change_nothing(kind):
    clean = with_published(labelled_graph())
    split = make_splits("published", clean.labels, clean.num_classes, masks=clean.masks)[2]
    flips = []
    for labelled in (clean, poisoned(clean, split)):
        (own,) = planned(labelled, kind, numbers=[2], splits="published")
        flips.append(own.begin().find(20))
    assert torch.equal(*flips)
    assert len(flips[0]) <= 20


@pytest.mark.parametrize("kind", [kind for kind in STORED if attack_info(kind).needs_labels])
def test_labels_of_training_nodes_are_needed_and_matter(kind):
    clean = with_published(labelled_graph())
    other = replace(clean, labels=(clean.labels + torch.arange(60) // 5) % 3)
    flips = [
        planned(labelled, kind, splits="published")[0].begin().find(20)
        for labelled in (clean, other)
    ]
    assert flips[0].tolist() != flips[1].tolist()


@pytest.mark.parametrize("kind", STORED)
def test_every_split_is_drawn_for_itself(kind, tmp_path):
    labelled = labelled_graph()
    every = planned(labelled, kind, numbers=range(len(SPLIT_SEEDS)))
    assert len({own.facts.mask_seed for own in every}) == len(every)
    assert len({own.facts.file_name for own in every}) == len(every)
    first, second = (run(own, tmp_path / str(own.facts.split)) for own in every[:2])
    assert first.keys.tolist() != second.keys.tolist()
    assert first.facts.complete
    expected = every[0].working_bytes
    assert (expected is None) if kind == "gradient" else expected > 0  # by the trained model


@pytest.mark.parametrize("kind", STORED)
def test_budgets_are_prefixes_where_the_attack_says_so(kind):
    labelled, counts = labelled_graph(), (11, 24)
    (own,) = planned(labelled, kind, flips=24)
    small, large = own.begin().find_each(counts)
    assert len(small) <= 11
    assert len(large) <= 24
    if attack_info(kind).nested:
        assert torch.equal(large[:11], small)
        assert torch.equal(planned(labelled, kind, flips=11)[0].begin().find(11), small)
    apply_flips(labelled.graph, large)  # pairs, none twice


def test_a_drawn_perturbation_is_the_file_of_its_split(tmp_path):
    labelled = labelled_graph()
    (own,) = planned(labelled, "random", flips=60, numbers=[3])
    file = run(own, tmp_path / "random")
    for budget in (0.1, 0.3):
        perturbation = Perturbation(kind="random", budget=budget)
        drawn, read = perturbation.apply(labelled, 3), perturbation.apply(labelled, 3, file)
        assert torch.equal(drawn.edge_index, read.edge_index)
        assert torch.equal(dense(drawn.features), dense(read.features))
        alone = Perturbation(kind="random", budget=budget, features=False).apply(labelled, 3)
        assert alone.features is labelled.graph.features


def test_a_feature_mask_flips_nothing():
    labelled = labelled_graph()
    small, large = (
        Perturbation(kind="feature", budget=budget).apply(labelled, 1) for budget in (0.1, 0.4)
    )
    assert torch.equal(small.edge_index, labelled.graph.edge_index)
    assert bool(((dense(large.features) != 0) <= (dense(small.features) != 0)).all())
    assert not torch.equal(dense(large.features), dense(small.features))
    with pytest.raises(SettingsError, match="flips no edges"):
        planned(labelled, "feature")


def test_what_an_attack_lacks_is_said():
    with pytest.raises(SettingsError, match=r"metattack \(implicit\) come from a perturbation"):
        Perturbation(kind="metattack", solver="implicit").apply(labelled_graph(), 0)
    with pytest.raises(SettingsError, match="searches on a trained model, and none is given"):
        plan_attacks(labelled_graph(), "g", AttackRequest("gradient", flips=3), [0], CPU)
    with pytest.raises(SettingsError, match="needs a trained model"):
        find_attack("gradient").begin(Target(labelled_graph().graph))


@pytest.mark.parametrize("kind", ["gradient", "pr-bcd"])
def test_flips_of_one_budget_are_not_more_than_the_edges(kind):
    labelled = labelled_graph()
    edges = labelled.graph.num_edges
    (own,) = planned(labelled, kind, flips=edges)
    assert own.facts.wanted == edges
    with pytest.raises(SettingsError, match=rf"at most {edges}, the edges\. Got {edges + 1}\."):
        planned(labelled, kind, flips=edges + 1)


def test_words_for_perturbations():
    assert attack_title("metattack", "implicit") == "metattack (implicit)"
    assert Perturbation(kind="dice", budget=0.05).label == "dice 5%"
    kept = {"kind": "dice", "solver": "", "mode": "poison", "budget": 0.1, "features": True}
    assert list(Perturbation(kind="dice").model_dump().items()) == list(kept.items())
