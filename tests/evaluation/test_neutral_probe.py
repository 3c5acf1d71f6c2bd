"""The neutral probe: invariances of its scores; its solver against scikit-learn's solutions."""

import logging
import math

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from torch.nn.functional import one_hot

from aspect.data.splits import make_splits
from aspect.errors import SettingsError, UnknownNameError
from aspect.evaluation import logistic_regression, neutral_probe
from aspect.evaluation.linear_probe import linear_probe
from aspect.evaluation.logistic_regression import Solver, logits_of
from aspect.evaluation.metrics import accuracy
from aspect.evaluation.neutral_probe import (
    NeutralProbe,
    pick_setting,
    principal_axes,
)
from aspect.evaluation.paper_probe import PaperProbe
from aspect.evaluation.result import with_constant, without_test_labels

SHORT = NeutralProbe(penalties=(1.0, 1e-1, 1e-2, 1e-3, 1e-4))


def blurred(num_classes=3, num_nodes=120, dim=8, noise=1.5, seed=3):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(num_classes, (num_nodes,), generator=generator)
    centres = torch.randn(num_classes, dim, generator=generator)
    return centres[labels] + noise * torch.randn(num_nodes, dim, generator=generator), labels


def orthogonal(dim):
    return torch.linalg.qr(torch.randn(dim, dim, generator=torch.Generator().manual_seed(1)))[0]


def scaled(rows, train):
    """As the protocol says, slowly: centred by the training mean, divided by the mean length."""
    rows = rows.double() - rows[train].double().mean(dim=0)
    return rows / rows[train].norm(dim=1).mean()


@pytest.mark.parametrize("dim", [8, 200])  # fewer columns than rows, and more
def test_every_split_is_the_regression_of_scikit_learn(dim):
    embeddings, labels = blurred(dim=dim)
    embeddings = 7 + 30 * embeddings
    splits = make_splits("random", labels, 3, count=3)
    for penalty in (1e-1, 1e-4):
        probe = NeutralProbe(penalties=(penalty,), tolerance=1e-9)
        known = without_test_labels(labels, splits)
        answers = probe.answer(embeddings.double(), known, splits, 3)
        for split, answer in zip(splits, answers, strict=True):
            rows = scaled(embeddings, split.train).numpy()
            strength = 1 / (penalty * len(split.train))
            reference = LogisticRegression(C=strength, tol=1e-12, max_iter=100_000)
            reference.fit(rows[split.train], labels[split.train].numpy())
            expected = torch.from_numpy(reference.predict_proba(rows[split.test])).t()
            torch.testing.assert_close(answer.scores.softmax(0), expected, rtol=1e-3, atol=1e-5)
            validated = torch.from_numpy(reference.predict(rows[split.validation]))
            assert answer.validation == accuracy(labels[split.validation], validated)


@pytest.mark.parametrize("dim", [8, 200])
@pytest.mark.parametrize(
    "change",
    [
        lambda z: 1e-30 * z,
        lambda z: 1e30 * z,
        lambda z: 1000 + 5 * z @ orthogonal(z.shape[1]),
        lambda z: torch.cat([z, torch.full((len(z), 1), 10.0), torch.zeros(len(z), 3)], dim=1),
    ],
    ids=["tiny", "huge", "shift and turn", "constant and zeros"],
)
def test_shift_scale_and_rotation_change_no_score(change, dim):
    embeddings, labels = blurred(dim=dim)
    splits = make_splits("random", labels, 3, count=2)
    expected = linear_probe(embeddings, labels, splits, probe=SHORT)
    found = linear_probe(change(embeddings), labels, splits, probe=SHORT)
    assert [score.choice for score in found.splits] == [score.choice for score in expected.splits]
    assert all(map(torch.equal, found.predictions, expected.predictions))
    assert found.strict == expected.strict


def test_one_scale_for_all_columns():
    """A column is not brought to the length of the others: its size says how much it counts."""
    embeddings, labels = blurred()
    stretched = embeddings * torch.logspace(0, 4, 8)
    splits = make_splits("random", labels, 3)
    one, other = (linear_probe(rows, labels, splits) for rows in (embeddings, stretched))
    assert one.strict.mean != other.strict.mean


def test_validation_accuracy_decides_then_the_loss_then_the_order():
    assert pick_setting(torch.tensor([3, 4, 2]), torch.tensor([0.1, 0.9, 0.1])) == 1
    assert pick_setting(torch.tensor([5, 5, 5]), torch.tensor([0.4, 0.3, 0.5])) == 1
    assert pick_setting(torch.tensor([4, 4, 4]), torch.tensor([0.2, 0.2, 0.2])) == 0


def test_the_metric_that_is_reported_chooses_the_penalty():
    """Against one probe for every penalty, each scored by scikit-learn on validation nodes."""
    rows, labels = blurred(num_classes=2, num_nodes=300, dim=40, noise=4.0)
    labels[(labels == 1) & (torch.arange(300) % 5 > 0)] = 0  # one in ten
    splits = make_splits("random", labels, 2, count=4)
    known = without_test_labels(labels, splits)
    result = linear_probe(rows, labels, splits, probe=SHORT, metric="roc-auc")
    areas = []
    for penalty in SHORT.penalties:
        answers = NeutralProbe(penalties=(penalty,)).answer(rows, known, splits, 2)
        areas.append([])
        for split, answer in zip(splits, answers, strict=True):
            logits = answer.weights @ with_constant(rows).double().t()
            scores = (logits[1] - logits[0])[split.validation]
            areas[-1].append(100 * roc_auc_score(labels[split.validation], scores))
    best = torch.tensor(areas).max(dim=0).values
    assert [score.validation for score in result.splits] == pytest.approx(best.tolist(), abs=1e-4)
    by_accuracy = linear_probe(rows, labels, splits, probe=SHORT)
    assert by_accuracy == linear_probe(rows, labels, splits, probe=SHORT, metric="accuracy")
    choices = [[score.choice for score in each.splits] for each in (result, by_accuracy)]
    assert choices[0] != choices[1]
    assert result.metric == result.to_dict()["metric"] == "roc-auc"
    assert "ROC AUC" in repr(result)


def test_a_metric_that_the_classes_lack_is_refused():
    rows, labels = blurred()
    with pytest.raises(SettingsError, match=r"roc-auc needs 2 classes\. Got 3"):
        linear_probe(rows, labels, metric="roc-auc")
    with pytest.raises(SettingsError, match=r"paper probe chooses by accuracy\. Got .*roc-auc"):
        linear_probe(rows, labels, probe=PaperProbe(), metric="roc-auc")
    with pytest.raises(UnknownNameError, match="Did you mean 'roc-auc'"):
        linear_probe(rows, labels, metric="roc_auc")


def test_it_says_which_choices_are_ends_of_the_path():
    embeddings, labels = blurred()
    splits = make_splits("random", labels, 3)
    result = linear_probe(embeddings, labels, splits, probe=SHORT)
    ends = [score.choice in (1.0, 1e-4) for score in result.splits]
    assert [score.at_path_end for score in result.splits] == ends
    assert result.at_path_end == 10 * sum(ends)
    assert (result.probe, result.choice_name) == ("neutral", "penalty")
    assert {(score.step, score.optimistic) for score in result.splits} == {(None, None)}
    assert result.optimistic is None


def test_weights_apply_to_the_embeddings_as_given():
    embeddings, labels = blurred()
    embeddings = 100 + 3 * embeddings @ orthogonal(8)
    splits = make_splits("random", labels, 3, count=3)
    known = without_test_labels(labels, splits)
    for split, answer in zip(splits, SHORT.answer(embeddings, known, splits, 3), strict=True):
        inputs = with_constant(embeddings[split.test].double())
        found = (answer.weights @ inputs.t()).log_softmax(dim=0)
        expected = answer.scores.double().log_softmax(dim=0)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_test_nodes_far_off_disturb_nothing():
    embeddings, labels = blurred()
    split = make_splits("random", labels, 3, count=1)[0]
    wild = embeddings.clone()
    wild[split.test[0]] = 1e8
    one, other = (linear_probe(rows, labels, [split]) for rows in (embeddings, wild))
    assert one.splits[0].choice == other.splits[0].choice
    assert torch.equal(one.predictions[0][1:], other.predictions[0][1:])


def test_little_memory_and_few_axes_change_nothing(monkeypatch):
    embeddings, labels = blurred()
    splits = make_splits("random", labels, 3, count=3)
    expected = linear_probe(embeddings, labels, splits, probe=SHORT)
    monkeypatch.setattr(neutral_probe, "BATCH_BYTES", 40_000)
    assert linear_probe(embeddings, labels, splits, probe=SHORT).splits == expected.splits
    monkeypatch.setitem(neutral_probe.MOST_AXES, "cpu", 5)
    assert principal_axes(torch.randn(6, 7)) is None
    assert principal_axes(torch.randn(6, 5)) is not None
    assert linear_probe(embeddings, labels, splits, probe=SHORT).strict == expected.strict


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"penalties": ()}, r"one or more numbers > 0. Got \[\]"),
        ({"penalties": (1.0, 0.0)}, r"Got \[1.0, 0.0\]"),
        ({"penalties": (float("inf"),)}, r"Got \[inf\]"),
        ({"tolerance": 0.0}, "Tolerance of the probe must be a number > 0. Got 0.0"),
    ],
)
def test_impossible_settings_are_refused(values, sentence):
    with pytest.raises(SettingsError, match=sentence):
        NeutralProbe(**values)


@pytest.mark.gpu
def test_cuda_agrees_with_the_cpu():
    embeddings, labels = blurred()
    expected = linear_probe(embeddings, labels)
    found = linear_probe(embeddings.cuda(), labels.cuda())
    assert found.strict.mean == pytest.approx(expected.strict.mean, abs=0.5)


def problem(dim=6, num_nodes=90, num_classes=3, noise=1.5, seed=7):
    """Blurred classes in float64, and two overlapping training sets of different sizes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(num_classes, (num_nodes,), generator=generator)
    centres = torch.randn(num_classes, dim, generator=generator, dtype=torch.float64)
    blur = torch.randn(num_nodes, dim, generator=generator, dtype=torch.float64)
    trained = torch.stack([torch.arange(num_nodes) % 3 > 0, torch.arange(num_nodes) < 50])
    return centres[labels] + noise * blur, labels, trained


def tasks_of(labels, trained, penalties, num_classes=3):
    share = trained.double() / trained.sum(dim=1, keepdim=True)
    targets = share.unsqueeze(1) * one_hot(labels, num_classes).t().double()
    return targets, torch.as_tensor(penalties, dtype=torch.float64)


def solved(rows, tasks, tolerance=1e-9, start=None):
    inputs, (targets, penalties) = with_constant(rows), tasks
    start = rows.new_zeros(*targets.shape[:2], inputs.shape[1]) if start is None else start
    return Solver(inputs, targets).solve(penalties, start, torch.full_like(penalties, tolerance))


@pytest.mark.parametrize("penalty", [10.0, 1e-4])
@pytest.mark.parametrize("dim", [6, 120])  # fewer columns than rows, and more: separable
def test_the_solution_is_that_of_scikit_learn(penalty, dim):
    rows, labels, trained = problem(dim)
    found = solved(rows, tasks_of(labels, trained, [penalty, penalty]))
    for weights, mask in zip(found, trained, strict=True):
        strength = 1 / (penalty * int(mask.sum()))
        reference = LogisticRegression(C=strength, tol=1e-12, max_iter=100_000)
        reference.fit(rows[mask].numpy(), labels[mask].numpy())
        slopes = torch.from_numpy(reference.coef_)
        torch.testing.assert_close(weights[:, :-1], slopes, rtol=1e-3, atol=1e-4)
        expected = torch.from_numpy(reference.predict_proba(rows.numpy()))
        logits = with_constant(rows) @ weights.t()
        torch.testing.assert_close(logits.softmax(dim=1), expected, rtol=1e-3, atol=1e-4)


def test_the_start_does_not_matter():
    rows, labels, trained = problem()
    tasks = tasks_of(labels, trained, [1e-2, 1e-3])
    wild = 5 * torch.randn(2, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    # All intercepts may be raised together, so that they are compared by their differences.
    found, other = (
        weights - weights.mean(dim=1, keepdim=True)
        for weights in (solved(rows, tasks), solved(rows, tasks, start=wild))
    )
    torch.testing.assert_close(found, other, rtol=1e-6, atol=1e-6)


def test_a_class_without_training_rows_is_never_predicted():
    rows, labels, trained = problem()
    trained[1] &= labels != 2
    tasks = tasks_of(labels, trained, [1e-3, 1e-3])
    found = solved(rows, tasks)
    logits = logits_of(found, with_constant(rows), tasks[0].sum(dim=2))
    assert bool(torch.isfinite(found).all())
    assert bool((logits[1, 2] == -math.inf).all())
    two = solved(rows, tasks_of(labels.clamp_max(1), trained[1:], [1e-3], num_classes=2))
    torch.testing.assert_close(found[1, :2], two[0], rtol=1e-6, atol=1e-8)


def test_rows_that_are_all_the_same_leave_the_shares_of_the_classes():
    _, labels, trained = problem()
    rows = torch.zeros(len(labels), 4, dtype=torch.float64)
    tasks = tasks_of(labels, trained, [1.0, 1e-8])
    found = solved(rows, tasks)
    torch.testing.assert_close(found[..., -1].softmax(dim=1), tasks[0].sum(dim=2))
    assert bool((found[..., :-1] == 0).all())


@pytest.mark.parametrize("shape", [(90, 6), (40, 120)])
def test_axes_keep_lengths_and_leave_rows_uncorrelated(shape):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(shape, generator=generator) @ torch.randn(2 * shape[1:], generator=generator)
    rows = rows - rows.mean(dim=0)
    axes = principal_axes(rows)
    assert axes.shape[1] == min(shape[1], shape[0] - 1)
    turned = rows @ axes
    torch.testing.assert_close(turned.norm(dim=1), rows.norm(dim=1), rtol=1e-5, atol=1e-5)
    products = turned.t() @ turned
    torch.testing.assert_close(
        products, products.diag().diag(), rtol=0, atol=1e-5 * len(products) ** 3
    )


def test_what_is_not_solved_is_said_and_stays_finite(caplog):
    rows, labels, trained = problem(120)
    tasks = tasks_of(labels, trained, [1e-8, 1e-8])
    single = tuple(table.float() for table in tasks)
    with caplog.at_level(logging.WARNING):
        found = solved(rows.float(), single, tolerance=1e-20)  # rounding does not allow it
    assert "2 of 2 logistic regressions of the probe were not solved" in caplog.text
    assert bool(torch.isfinite(found).all())
    exact = solved(rows, tasks, tolerance=1e-12)
    agreed = (with_constant(rows) @ found.double().mT).argmax(2) == (
        with_constant(rows) @ exact.mT
    ).argmax(2)
    assert float(agreed.double().mean()) > 0.97


@pytest.mark.gpu
def test_steps_that_are_replayed_lead_to_the_solutions_of_the_cpu():
    rows, labels, trained = problem(40)
    targets, _ = tasks_of(labels, trained, [1.0, 1.0])
    inputs = with_constant(rows)
    solvers = Solver(inputs, targets), Solver(inputs.cuda(), targets.cuda())
    found = [torch.zeros_like(solver.weights) for solver in solvers]
    for penalty in (1e-1, 1e-2, 1e-4):
        found = [
            solver.solve(start.new_full((2,), penalty), start, start.new_full((2,), 1e-9))
            for solver, start in zip(solvers, found, strict=True)
        ]
        torch.testing.assert_close(found[1].cpu(), found[0], rtol=1e-5, atol=1e-6)
    assert solvers[1].captured is not None


def test_a_line_search_cut_short_goes_on_in_the_next_step(monkeypatch):
    rows, labels, trained = problem(40)
    tasks = tasks_of(labels, trained, [1e-3, 1e-3])
    expected = solved(rows, tasks)
    steps = []

    class Replayed:
        def __init__(self, solver):
            self.solver = solver

        def replay(self):
            steps.append("replayed")
            self.solver._step(1)

    plain = Solver.__init__

    def captured(solver, *arguments):
        plain(solver, *arguments)
        solver.memory.is_captured = True  # what is kept moves on, as in a CUDA graph
        solver.captured = Replayed(solver)

    monkeypatch.setattr(Solver, "__init__", captured)
    monkeypatch.setattr(logistic_regression, "FLATTENED", 1e-4)  # one trial does not do
    whole = Solver._step

    def counted(solver, trials):
        steps.append(trials)
        whole(solver, trials)

    monkeypatch.setattr(Solver, "_step", counted)
    torch.testing.assert_close(solved(rows, tasks), expected, rtol=1e-5, atol=1e-6)
    assert {"replayed", 1, logistic_regression.MOST_TRIALS} == set(steps)
