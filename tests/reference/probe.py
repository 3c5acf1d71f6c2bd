"""The linear probe, slowly: one split, one weight decay, one step after another, with autograd."""

from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy


@dataclass
class Run:
    """What one training of one weight decay on one split showed after every step."""

    weight_decay: float
    validation: list[float]  # accuracies, as shares
    test: list[float]
    losses: list[float]  # validation cross-entropy
    answers: list[torch.Tensor]  # predictions for the test nodes
    weights: list[torch.Tensor]  # [classes, dim + 1], the bias last


def run(rows, labels, split, weight_decay, num_classes, settings):
    layer = torch.nn.Linear(rows.shape[1], num_classes).to(rows)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    groups = [
        {"params": [layer.weight], "weight_decay": weight_decay},
        {"params": [layer.bias], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.Adam(groups, lr=settings.learning_rate)
    result = Run(weight_decay, [], [], [], [], [])
    for _ in range(settings.steps):
        optimiser.zero_grad()
        cross_entropy(layer(rows[split.train]), labels[split.train]).backward()
        optimiser.step()
        with torch.no_grad():
            note(result, layer, rows, labels, split)
    return result


def note(result, layer, rows, labels, split):
    validation, test = layer(rows[split.validation]), layer(rows[split.test])
    right = validation.argmax(1) == labels[split.validation]
    result.validation.append(right.double().mean().item())
    result.test.append((test.argmax(1) == labels[split.test]).double().mean().item())
    result.losses.append(cross_entropy(validation, labels[split.validation]).item())
    result.answers.append(test.argmax(1))
    result.weights.append(torch.cat([layer.weight, layer.bias.unsqueeze(1)], dim=1).clone())


def first_best(values):
    best = 0
    for position, value in enumerate(values):
        if value > values[best]:
            best = position
    return best


def choose(runs):
    """The run with the best validation accuracy, then the lower loss there, then the first."""
    chosen = runs[0]
    for candidate in runs[1:]:
        here, there = first_best(chosen.validation), first_best(candidate.validation)
        better = candidate.validation[there] > chosen.validation[here]
        equal = candidate.validation[there] == chosen.validation[here]
        if better or (equal and candidate.losses[there] < chosen.losses[here]):
            chosen = candidate
    return chosen


def strict(chosen):
    return chosen.test[first_best(chosen.validation)]


def optimistic(chosen):
    """PolyGCL's rule: at every step that ties or beats the record, keep the best test accuracy."""
    record, reported = 0.0, 0.0
    for validation, test in zip(chosen.validation, chosen.test, strict=True):
        if validation >= record:
            record = validation
            reported = max(reported, test)
    return reported
