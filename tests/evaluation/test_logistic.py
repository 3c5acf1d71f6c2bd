import pytest
import torch
from sklearn.linear_model import LogisticRegression

from aspect.errors import SettingsError
from aspect.evaluation.logistic import ProbeSettings, Tasks, Trace, scores_of, train, with_constant
from aspect.graph.splits import Split, make_splits
from reference import probe as reference


@pytest.fixture(scope="module")
def problem():
    """Three blurred classes in float64, with splits of different sizes."""
    generator = torch.Generator().manual_seed(7)
    labels = torch.randint(3, (90,), generator=generator)
    centres = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    rows = centres[labels] + 1.5 * torch.randn(90, 6, generator=generator, dtype=torch.float64)
    splits = make_splits("random", labels, 3, count=3)
    splits[1] = Split(splits[1].train[:30], splits[1].validation[:11], splits[1].test[:7])
    return rows, labels, splits


def trace_of(problem, settings):
    rows, labels, splits = problem
    inputs = with_constant(rows)
    tasks = Tasks.build(labels, splits, 3, inputs)
    return train(inputs, tasks, settings, settings.weight_decays)


def test_every_step_equals_torch_adam_with_autograd(problem):
    rows, labels, splits = problem
    settings = ProbeSettings(steps=80, weight_decays=(0.0, 5e-4, 0.1))
    trace = trace_of(problem, settings)
    for number, split in enumerate(splits):
        for place, weight_decay in enumerate(settings.weight_decays):
            run = reference.run(rows, labels, split, weight_decay, 3, settings)
            hits = torch.tensor(run.validation) * len(split.validation)
            assert trace.correct[:, number, place].tolist() == hits.round().int().tolist()
            answers = trace.answers[:, number, place, : len(split.test)]
            assert torch.equal(answers.long(), torch.stack(run.answers))
            best = reference.first_best(run.validation)
            # Adam's first step divides by the gradient: where that is zero but for rounding (the
            # bias of a class with a third of the nodes), rounding is all that is left.
            weights = trace.weights[:, number, place]
            torch.testing.assert_close(weights, run.weights[best], rtol=1e-9, atol=1e-9)
            last = trace.last[:, number, place]
            torch.testing.assert_close(last, run.weights[-1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("weight_decay", [1e-2, 1e-1])
def test_converges_to_the_solution_of_scikit_learn(problem, weight_decay):
    rows, labels, splits = problem
    settings = ProbeSettings(learning_rate=0.02, steps=3000, weight_decays=(weight_decay,))
    last = trace_of(problem, settings).last
    for number, split in enumerate(splits):
        strength = 1 / (weight_decay * len(split.train))
        solver = LogisticRegression(C=strength, tol=1e-10, max_iter=10_000)
        solver.fit(rows[split.train].numpy(), labels[split.train].numpy())
        expected = torch.from_numpy(solver.predict_log_proba(rows.numpy()))
        logits = scores_of(last, with_constant(rows))[:, number, 0]
        torch.testing.assert_close(logits.log_softmax(dim=0).t(), expected, rtol=1e-4, atol=1e-4)


def test_weight_decays_in_parts_join_to_the_same_trace(problem):
    rows, labels, splits = problem
    settings = ProbeSettings(steps=15)
    inputs = with_constant(rows)
    tasks = Tasks.build(labels, splits, 3, inputs)
    decays = settings.weight_decays
    parts = [train(inputs, tasks, settings, decays[:2]), train(inputs, tasks, settings, decays[2:])]
    joined, whole = Trace.join(parts), train(inputs, tasks, settings, decays)
    assert torch.equal(joined.correct, whole.correct)
    assert torch.equal(joined.answers, whole.answers)
    torch.testing.assert_close(joined.weights, whole.weights)
    torch.testing.assert_close(joined.last, whole.last)


def test_the_inputs_are_left_alone(problem):
    rows, labels, splits = problem
    inputs = with_constant(rows)
    before, known = inputs.clone(), labels.clone()
    train(inputs, Tasks.build(labels, splits, 3, inputs), ProbeSettings(steps=3), (0.0,))
    assert torch.equal(inputs, before)
    assert torch.equal(labels, known)


def test_huge_logits_stay_finite(problem):
    rows, labels, splits = problem
    last = trace_of((rows * 1e4, labels, splits), ProbeSettings(learning_rate=10.0, steps=20)).last
    assert bool(torch.isfinite(last).all())


def test_equal_logits_go_to_the_first_class():
    labels = torch.tensor([1, 2, 1, 2])
    split = Split(torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3]))
    inputs = with_constant(torch.zeros(4, 2))
    trace = train(inputs, Tasks.build(labels, [split], 3, inputs), ProbeSettings(steps=5), (0.0,))
    assert trace.answers.flatten().tolist() == [1] * 5  # classes 1 and 2 tie, class 0 is behind


def test_many_classes_do_not_overflow_the_kept_answers():
    labels = torch.arange(300).repeat(3)
    parts = torch.arange(900).split(300)
    inputs = with_constant(torch.eye(300).repeat(3, 1))
    tasks = Tasks.build(labels, [Split(*parts)], 300, inputs)
    trace = train(inputs, tasks, ProbeSettings(learning_rate=0.1, steps=3), (0.0,))
    assert torch.equal(trace.answers[-1].flatten().long(), torch.arange(300))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"learning_rate": 0.0}, "Learning rate of the probe must be a number > 0. Got 0.0"),
        ({"learning_rate": float("nan")}, "Got nan"),
        ({"steps": 0}, "Steps of the probe must be an integer >= 1. Got 0"),
        ({"weight_decays": ()}, r"one or more numbers >= 0. Got \[\]"),
        ({"weight_decays": (0.0, -1.0)}, r"Got \[0.0, -1.0\]"),
    ],
)
def test_impossible_settings_are_refused(values, sentence):
    with pytest.raises(SettingsError, match=sentence):
        ProbeSettings(**values)
