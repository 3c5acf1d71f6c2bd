"""What both linear probes have in common: test labels are read last, and bad input is refused."""

import json

import pytest
import torch

from aspect.data.splits import Split, make_splits
from aspect.errors import GraphError, SettingsError, UnknownNameError
from aspect.evaluation.linear_probe import NeutralProbe, PaperProbe, linear_probe, probe_named
from aspect.evaluation.result import without_test_labels

PROBES = [NeutralProbe(penalties=(1.0, 1e-1, 1e-2, 1e-3, 1e-4)), PaperProbe(steps=40)]

probes = pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)


def blurred(num_classes=3, num_nodes=120, noise=1.5, seed=3):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(num_classes, (num_nodes,), generator=generator)
    centres = torch.randn(num_classes, 8, generator=generator)
    return centres[labels] + noise * torch.randn(num_nodes, 8, generator=generator), labels


def choices(result):
    return [(each.choice, each.step, each.validation) for each in result.splits]


@probes
def test_test_labels_change_no_choice(probe):
    embeddings, labels = blurred()
    for split in make_splits("random", labels, 3, count=3):
        changed = labels.clone()
        order = torch.randperm(len(split.test), generator=torch.Generator().manual_seed(0))
        changed[split.test] = labels[split.test[order]]
        honest = linear_probe(embeddings, labels, [split], probe=probe)
        shuffled = linear_probe(embeddings, changed, [split], probe=probe)
        assert choices(honest) == choices(shuffled)
        assert honest.strict.mean != shuffled.strict.mean


@probes
def test_no_answer_depends_on_a_test_label(probe):
    embeddings, labels = blurred()
    split = make_splits("random", labels, 3, count=1)[0]
    hidden = labels.clone()
    hidden[split.test] = 10**6  # would fail as an index if anything looked it up
    answers = [
        next(probe.answer(embeddings, without_test_labels(known, [split]), [split], 3))
        for known in (labels, hidden)
    ]
    assert torch.equal(answers[0].predictions, answers[1].predictions)
    assert torch.equal(answers[0].scores, answers[1].scores)


@pytest.mark.parametrize("name", ["neutral", "paper"])
def test_probes_have_names(name):
    assert probe_named(name).name == name


def test_an_unknown_probe_is_refused_with_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"Unknown probe 'ours'. Known: neutral, paper"):
        probe_named("ours")


def test_separable_classes_are_read_perfectly():
    labels = torch.arange(3).repeat(20)
    result = linear_probe(torch.eye(3)[labels], labels, "random")
    assert (result.strict.mean, result.macro_f1.mean, result.validation.mean) == (100, 100, 100)


@probes
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_constant_embeddings_are_the_majority_class_and_said_so(probe, value):
    _, labels = blurred()
    labels[:50] = 1
    result = linear_probe(torch.full((len(labels), 4), value), labels, probe=probe)
    assert {int(predicted) for part in result.predictions for predicted in part} == {1}
    assert "All embeddings are the same" in result.notices[0]
    assert not linear_probe(*blurred(), probe=probe).notices


def test_nodes_in_no_split_change_nothing():
    embeddings, labels = blurred()
    splits = [
        Split(*(nodes[nodes % 3 > 0] for nodes in split.parts))
        for split in make_splits("random", labels, 3, count=2)
    ]
    expected = linear_probe(embeddings, labels, splits)
    unknown = torch.where(torch.arange(len(labels)) % 3 > 0, labels, -1)
    assert choices(linear_probe(embeddings, unknown, splits)) == choices(expected)


def test_arrays_and_tensors_give_the_same():
    embeddings, labels = blurred()
    expected = linear_probe(embeddings, labels)
    arrays = linear_probe(embeddings.double().numpy(), labels.double().numpy())
    assert arrays == expected


def test_two_classes_have_a_roc_area():
    embeddings, labels = blurred(num_classes=2)
    result = linear_probe(embeddings, labels)
    assert 50 < result.roc_auc.mean <= 100
    assert linear_probe(*blurred()).roc_auc is None


def test_missing_classes_are_named():
    labels = torch.tensor([0] * 40 + [1] * 40 + [2] * 3)
    embeddings = torch.eye(3)[labels]
    result = linear_probe(embeddings, labels, "class-balanced", num_classes=4)
    assert {each.missing_in_test for each in result.splits} == {(2, 3)}
    assert {each.missing_in_train for each in result.splits} == {(3,)}
    assert result.notices == (
        "10 of 10 test sets lack a class (of 4): 2, 3.",
        "10 of 10 train sets lack a class (of 4): 3.",
    )
    named = result.notices_naming(["ant", "bee", "cat", "dog"])
    assert named[0] == "10 of 10 test sets lack a class (of 4): cat, dog."


@probes
def test_a_record_is_plain_json(probe):
    record = linear_probe(*blurred(), probe=probe).to_dict()
    again = json.loads(json.dumps(record, allow_nan=False))
    assert set(again["strict"]) == {"mean", "std", "low", "high", "count"}
    assert again["strict"]["count"] == len(again["splits"]) == 10
    assert [score["label"] for score in again["splits"][0]["per_class"]] == [0, 1, 2]


def test_one_split_has_a_mean_and_no_spread():
    embeddings, labels = blurred()
    split = make_splits("random", labels, 3, count=1)
    result = linear_probe(embeddings, labels, split)
    assert (result.strict.mean, result.strict.std) == (result.splits[0].strict, None)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda z, y: (z[:-1], y), "Got 119 embeddings and 120 labels"),
        (lambda z, y: (z[0], y), r"shape \[nodes, dim\]. Got \[8\]"),
        (
            lambda z, y: (z.index_fill(0, torch.tensor([4, 9]), torch.nan), y),
            r"rows 4, 9 \(2 in all\)",
        ),
        (lambda z, y: (z, ["a"] * len(y)), "one whole number per node"),
        (lambda z, y: (z, y + 0.5), "Labels must be whole numbers. Got"),
        (lambda z, y: (z, y - 5), "classes from 0 on, or -1 for none. Got -5, -4, -3"),
        (lambda z, y: (z, torch.full_like(y, -1)), "no node has one"),
        (lambda z, y: (z, torch.zeros_like(y)), "at least 2 classes. Got class 0 alone"),
        (lambda z, y: (z[:0], y[:0]), "Got no labels"),
    ],
)
def test_what_cannot_be_probed_is_refused(change, sentence):
    with pytest.raises(GraphError, match=sentence):
        linear_probe(*change(*blurred()))


def test_published_splits_must_be_given():
    with pytest.raises(GraphError, match="publishes no splits"):
        linear_probe(*blurred(), "published")


def test_too_few_classes_are_refused():
    embeddings, labels = blurred()
    splits = make_splits("random", labels, 3)
    with pytest.raises(SettingsError, match=r"above the largest label, 2. Got 2"):
        linear_probe(embeddings, labels, splits, num_classes=2)


def test_validation_and_test_sets_of_one_class_are_served():
    embeddings, labels = blurred(num_classes=2)
    nodes = torch.arange(len(labels))
    zeros, ones = nodes[labels == 0], nodes[labels == 1]
    split = Split(torch.cat([zeros[:20], ones[:20]]), zeros[20:30], ones[20:30])
    result = linear_probe(embeddings, labels, [split])
    assert result.roc_auc is None
    assert result.splits[0].per_class[0].recall is None
    assert result.splits[0].per_class[1].recall == result.strict.mean
