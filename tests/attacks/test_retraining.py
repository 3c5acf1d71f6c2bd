"""The model that tells how strong an attack is: what it computes, and what it may look at."""

import torch

from aspect import mixed_graph
from aspect.data.features import dense, row_normalise
from aspect.data.graph import UNLABELLED
from aspect.data.splits import make_splits
from attacks.tasks import class_task
from reference.metattack import dense_adjacency, normalised
from scripts import load_script

retraining = load_script("retraining")

LABELLED = mixed_graph(120, degree=8.0, purity=0.95, share=0.0, num_features=16, num_classes=3)
SPLIT = make_splits("class-balanced", LABELLED.labels, LABELLED.num_classes)[0]


def retrained(labels=LABELLED.labels, seed=0, graph=LABELLED.graph):
    return retraining.retrained(graph, labels, LABELLED.num_classes, SPLIT, seed)


def test_the_model_is_two_propagations_with_a_layer_each():
    graph = class_task(dtype=torch.float64).graph
    model = retraining.GCN(graph.num_features, 3).double().eval()
    features, adjacency = retraining._inputs(graph)
    spread = normalised(dense_adjacency(graph))
    x = dense(row_normalise(graph.features))
    hidden = (spread @ x @ model.first.lin.weight.t() + model.first.bias).relu()
    expected = spread @ hidden @ model.second.lin.weight.t() + model.second.bias
    torch.testing.assert_close(model(features, adjacency), expected)


def test_the_seed_decides_and_labels_of_test_nodes_are_not_read(monkeypatch):
    monkeypatch.setattr(retraining, "EPOCHS", 5)
    before = torch.get_rng_state()
    hidden = LABELLED.labels.clone()
    hidden[SPLIT.test] = UNLABELLED
    assert torch.equal(retrained(hidden), retrained())
    assert torch.equal(torch.get_rng_state(), before)


def test_validation_nodes_choose_the_epoch_and_the_first_best_is_kept(monkeypatch):
    """Epochs after the best one change nothing; with none before it, it is the first."""
    found = {}
    for epochs in (1, 2, 40):
        monkeypatch.setattr(retraining, "EPOCHS", epochs)
        found[epochs] = retrained()
    right = {
        epochs: int((guess == LABELLED.labels)[SPLIT.validation].sum())
        for epochs, guess in found.items()
    }
    assert right[1] <= right[2] <= right[40]
    assert right[1] < right[40]
    tested = found[40][SPLIT.test] == LABELLED.labels[SPLIT.test]
    assert float(tested.double().mean()) > 0.75  # the classes can be learned
    constant = LABELLED.labels.clone()
    constant[SPLIT.validation] = UNLABELLED  # no epoch is better than another
    last = retrained(constant)
    monkeypatch.setattr(retraining, "EPOCHS", 1)
    assert torch.equal(last, retrained(constant))
