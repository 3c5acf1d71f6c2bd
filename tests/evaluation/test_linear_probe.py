"""Both linear probes: test labels are read last, bad input is refused, trained probes."""

import json

import pytest
import torch

from aspect.data.graph import UNLABELLED
from aspect.data.splits import Split, make_splits
from aspect.errors import GraphError, SettingsError, UnknownNameError
from aspect.evaluation.linear_probe import (
    NeutralProbe,
    PaperProbe,
    TrainedProbe,
    evasion_probe,
    linear_probe,
    probe_named,
    validation_scores,
)

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


def test_probes_have_names():
    assert [probe_named(name).name for name in ("neutral", "paper")] == ["neutral", "paper"]
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
    expected = linear_probe(embeddings, labels, probe=PROBES[0])
    arrays = linear_probe(embeddings.double().numpy(), labels.double().numpy(), probe=PROBES[0])
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
        (lambda z, y: (z, torch.zeros_like(y)), "at least 2 classes. Got 1 class"),
        (lambda z, y: (z[:0], y[:0]), "Got no labels"),
        (lambda z, y: (z, y.double().index_fill(0, torch.tensor([3]), torch.inf)), "Got inf"),
        (lambda z, y: (z + 1j, y), r"real and dense. Got torch\.complex64"),
        (lambda z, y: ((z + 1j).numpy(), y), r"real and dense. Got torch\.complex64"),
        (lambda z, y: (z.to_sparse(), y), r"real and dense. .*sparse_coo"),
        (lambda z, y: (z.numpy().astype(str), y), r"must be numbers. Got an array of <U"),
        (lambda z, y: (z.double() * 1e200, y), "finite as float32"),
    ],
)
def test_what_cannot_be_probed_is_refused(change, sentence):
    with pytest.raises(GraphError, match=sentence):
        linear_probe(*change(*blurred()))


@pytest.mark.parametrize("first", [2001, 10**12])
def test_classes_may_be_any_integers(first):
    embeddings, labels = blurred()
    labels[7] = -1
    years = torch.where(labels < 0, labels, first + 7 * labels)
    assert linear_probe(embeddings, years) == linear_probe(embeddings, labels)


@pytest.mark.parametrize("form", [lambda rows: rows, lambda rows: rows.numpy()])
def test_a_large_offset_in_float64_changes_no_score(form):
    embeddings, labels = blurred()
    rows = embeddings.double()
    far = rows.clone()
    far[5] = 1e20  # which must not become the offset of all
    for same in (rows, far):
        expected = linear_probe(form(same), labels)
        moved = linear_probe(form(torch.where(same == 1e20, same, same + 1e7)), labels)
        assert (moved.strict, moved.validation) == (expected.strict, expected.validation)
    of_floats, of_doubles = linear_probe(embeddings, labels), linear_probe(form(rows), labels)
    assert of_floats.strict == of_doubles.strict


def test_missing_masks_and_too_few_classes_are_refused():
    embeddings, labels = blurred()
    with pytest.raises(GraphError, match="publishes no splits"):
        linear_probe(embeddings, labels, "published")
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


QUICK = NeutralProbe(penalties=(0.1, 1e-2, 1e-3))
CLASSES = 3


def validated(embeddings, labels, splits):
    return validation_scores(embeddings, labels, splits, num_classes=CLASSES, probe=QUICK)


def test_equals_the_validation_column_of_the_linear_probe():
    embeddings, labels = blurred()
    labels[::7] = UNLABELLED  # nodes in no split
    splits = make_splits("random", labels, CLASSES)
    probed = linear_probe(embeddings, labels, splits, num_classes=CLASSES, probe=QUICK)
    expected = tuple(each.validation for each in probed.splits)
    assert len(set(expected)) > 1
    assert validated(embeddings, labels, splits) == expected


def test_nonsense_in_the_test_labels_changes_nothing():
    embeddings, labels = blurred()
    for split in make_splits("random", labels, CLASSES, count=2):
        spoilt = labels.clone()
        spoilt[split.test] = 10**6
        assert validated(embeddings, spoilt, [split]) == validated(embeddings, labels, [split])


def test_a_validation_label_does_change_it():
    embeddings, labels = blurred()
    split = make_splits("random", labels, CLASSES, count=1)[0]
    spoilt = labels.clone()
    spoilt[split.validation] = (labels[split.validation] + 1) % CLASSES
    assert validated(embeddings, spoilt, [split]) != validated(embeddings, labels, [split])


def test_splits_are_masked_each_by_itself():
    embeddings, labels = blurred()
    splits = make_splits("random", labels, CLASSES)
    together = validated(embeddings, labels, splits)
    assert together == tuple(validated(embeddings, labels, [split])[0] for split in splits)


@pytest.mark.parametrize("probe", [QUICK, PaperProbe(steps=5)], ids=lambda probe: probe.name)
def test_a_probe_is_handed_no_test_label(monkeypatch, probe):
    embeddings, labels = blurred()
    splits = make_splits("random", labels, CLASSES)
    seen, answer = [], type(probe).answer

    def spy(self, rows, known, some, num_classes):
        seen.extend(zip(known, some, strict=True))
        return answer(self, rows, known, some, num_classes)

    monkeypatch.setattr(type(probe), "answer", spy)
    validation_scores(embeddings, labels, splits, num_classes=CLASSES, probe=probe)
    assert len(seen) == len(splits)
    for line, split in seen:
        assert bool((line[split.test] == UNLABELLED).all())
        assert torch.equal(line[split.train], labels[split.train])


def test_what_does_not_fit_is_refused():
    embeddings, labels = blurred()
    splits = make_splits("random", labels, CLASSES, count=1)
    with pytest.raises(GraphError, match="Got 119 embeddings and 120 labels"):
        validated(embeddings[1:], labels, splits)
    embeddings[3, 0] = float("nan")
    with pytest.raises(GraphError, match="NaN or infinity in rows 3"):
        validated(embeddings, labels, splits)


@pytest.fixture(params=PROBES, ids=lambda probe: probe.name)
def kind(request):
    return request.param


@pytest.fixture
def classes():
    classes = torch.arange(90) % 3
    classes[80:] = UNLABELLED  # nodes that no split uses
    return classes


@pytest.fixture
def splits(classes):
    drawn = make_splits("random", classes, 3, count=3)
    return {number: drawn[number] for number in (0, 2)}


def embedding(labels, seed=0):
    noise = torch.randn(90, 5, generator=torch.Generator().manual_seed(seed))
    return noise + 0.8 * labels[:, None]


@pytest.fixture
def trained(classes, splits, kind):
    return TrainedProbe.fit(embedding(classes), classes, splits, num_classes=3, probe=kind)


def test_on_its_own_embedding_it_is_the_linear_probe(trained, classes, splits, kind):
    clean = embedding(classes)
    plain = linear_probe(clean, classes, list(splits.values()), num_classes=3, probe=kind)
    assert trained.clean.splits == plain.splits
    for number, score in zip(splits, plain.splits, strict=True):
        assert trained.strict(number, clean) == score.strict


def test_on_others_it_is_the_probe_of_evasion(trained, classes, splits, kind):
    clean = embedding(classes)
    other = clean + 0.5 * (embedding(classes, seed=1) - clean)
    evaded = evasion_probe(
        clean, [other] * 2, classes, list(splits.values()), num_classes=3, probe=kind
    )
    for number, score in zip(splits, evaded.splits, strict=True):
        assert trained.strict(number, other) == score.strict


def test_labels_of_test_nodes_are_read_for_the_score_alone(classes, splits, kind):
    clean, own, poisoned = embedding(classes), {2: splits[2]}, classes.clone()
    poisoned[splits[2].test] = (poisoned[splits[2].test] + 1) % 3
    probe, other = (
        TrainedProbe.fit(clean, known, own, num_classes=3, probe=kind)
        for known in (classes, poisoned)
    )
    assert torch.equal(other.weights[2], probe.weights[2])
    assert other.strict(2, clean) != probe.strict(2, clean)


def test_only_test_nodes_are_looked_at(trained, classes, splits):
    wild = torch.full((90, 5), 1e6)
    wild[splits[0].test] = embedding(classes)[splits[0].test]
    assert trained.strict(0, wild) == trained.clean.splits[0].strict
