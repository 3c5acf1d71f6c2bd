"""ASPECT-S: when it searches, what it minimises, and that it is ASPECT wherever it does not."""

import copy

import pytest
import torch
from torch.testing import assert_close

from adversarial.searches import BASE, generator, make, small_graph
from aspect import Aspect, mixed_graph
from aspect.adversarial.problem import stability
from aspect.data.datasets import load_named
from aspect.data.graph import Graph
from aspect.losses.edges import rayleigh_energy
from aspect.losses.policy_target import channel_costs
from aspect.methods.aspect import AspectMethod
from aspect.methods.aspect_config import AspectConfig
from aspect.methods.aspect_s import AspectSMethod
from aspect.methods.aspect_s_config import AspectSConfig
from aspect.methods.base import Step
from aspect.nn.spectral_encoder import Signal
from aspect.training.trainer import train
from reference import inner_problem as reference

# Short trainings with settings near the shipped ones, both with batch norm.
REAL = {
    "citeseer": {
        "self_loops": False,
        "temperature": 0.2,
        "input_dropout": 0.5,
        "dropout": 0.2,
        "edge_drop": 0.5,
        "gate_hops": 0,
        "epochs": 10,
        "width": 64,
    },
    "actor": {
        "row_normalise": False,
        "views": "both",
        "temperature": 0.58,
        "dropout": 0.28,
        "column_mask": 0.54,
        "activation": "relu",
        "gate_hops": 0,
        "epochs": 10,
        "width": 64,
    },
}

OWN = {name: value for name, value in BASE.items() if name in AspectConfig.model_fields}


def step(epoch=1, seed=5):
    return Step(epoch, torch.Generator().manual_seed(seed))


def state_after(stable, epochs, **settings):
    graph = mixed_graph(num_nodes=40, degree=4.0, num_features=6, seed=0)
    quick = {"width": 8, "epochs": epochs, "device": "cpu", **settings}
    model = Aspect(stable=stable, **quick).fit(graph)
    return model.method.state_dict()


def test_where_no_search_is_due_training_is_byte_for_byte_that_of_aspect():
    plain = state_after(False, 6)
    stable = state_after(True, 6, warm_up=6)
    assert plain.keys() == stable.keys()
    assert all(torch.equal(plain[name], stable[name]) for name in plain)


def test_the_first_search_changes_the_training():
    plain = state_after(False, 6)
    stable = state_after(True, 6, warm_up=4, interval=2)
    assert not torch.equal(plain["encoder.linear.weight"], stable["encoder.linear.weight"])


def test_the_schedule_is_the_papers():
    method = make(small_graph(), warm_up=5, interval=3)
    assert [epoch for epoch in range(1, 16) if method.is_due(epoch)] == [8, 11, 14]
    always = make(small_graph(), warm_up=0, interval=1)
    assert all(always.is_due(epoch) for epoch in range(1, 5))


def test_an_epoch_after_a_search_is_aspects():
    graph = small_graph()
    method = make(graph, warm_up=0, interval=2).train()
    plain = AspectMethod(AspectConfig(**OWN), graph.num_features).to(graph.dtype).train()
    plain.load_state_dict(method.state_dict())
    assert "stability" in method.loss_terms(graph, step(epoch=2))
    assert any(name.startswith("search") for name in method.monitors())
    found, expected = (each.loss_terms(graph, step(epoch=3)) for each in (method, plain))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert not any(name.startswith("search") for name in method.monitors())


def test_the_plain_terms_of_an_epoch_with_a_search_are_those_of_aspect():
    graph = small_graph()
    method = make(graph, sensitivity_weight=0.0, dropout=0.3).train()
    plain = AspectMethod(AspectConfig(**OWN | {"dropout": 0.3}), graph.num_features)
    plain = plain.to(graph.dtype).train()
    plain.load_state_dict(method.state_dict())
    expected = plain.loss_terms(graph, step())
    found = method.loss_terms(graph, step())
    assert set(found) == {*expected, "stability"}
    for name, term in expected.items():
        assert torch.equal(found[name], term), name


@pytest.mark.parametrize("target", ["fused", "band"])
def test_the_stability_loss_is_the_formula(target):
    graph = small_graph()
    method = make(graph, batch_norm=False, stability_target=target, stability_weight=1.7)
    terms = method.train().loss_terms(graph, step())
    probe = method._probe
    clean = method.see(graph)
    changed = method.encoder(probe.signal)
    total = 0.0
    for band, own, weights in zip(changed, clean.views, clean.weights.t(), strict=True):
        keys = clean.fused if target == "fused" else own
        total = total + (weights * reference.losses(band, keys, method.config.temperature)).mean()
    assert_close(terms["stability"], 1.7 * total)


def test_the_stability_loss_compares_graphs_that_are_rescaled_alike():
    graph = small_graph()
    method = make(graph, batch_norm=False, lambda_max="power-iteration").train()
    other = make(graph, batch_norm=False, lambda_max="two").train()
    assert method.ready(graph).propagation.lambda_max < 2
    found, expected = (each.loss_terms(graph, step())["stability"] for each in (method, other))
    assert_close(found, expected)


def test_the_stability_loss_trains_encoder_and_gate():
    graph = small_graph()
    method = make(graph).train()
    method.loss_terms(graph, step())["stability"].backward()
    for part in (method.encoder.linear.weight, *method.gate.network.parameters()):
        assert float(part.grad.abs().max()) > 0


def test_the_target_hears_of_the_sensitivity_and_is_detached():
    graph = small_graph()
    method = make(graph, sensitivity_weight=0.6, policy_weight=1.0).train()
    terms = method.loss_terms(graph, step())
    moved = method._probe.sensitivity
    assert not moved.requires_grad
    losses = torch.rand(2, graph.num_nodes, dtype=torch.float64, generator=generator())
    signal = method.ready(graph).signal
    expected = channel_costs(losses) + 0.6 * channel_costs(moved)
    assert_close(method._costs(losses, signal), expected)
    method.zero_grad()
    terms["policy"].backward()
    assert method.encoder.filters[0].increments.grad is not None  # through what the gate reads


def test_what_the_target_is_made_of_has_no_gradient():
    graph = small_graph()
    method = make(graph, sensitivity_weight=0.6, gate_gradient=False, channel_weight=1.0).train()
    method.loss_terms(graph, step())["policy"].backward()
    assert all(parameter.grad is None for parameter in method.encoder.parameters())
    assert all(float(part.grad.abs().max()) > 0 for part in method.gate.network.parameters())


def test_without_sensitivity_the_target_is_that_of_aspect():
    graph = small_graph()
    method = make(graph, sensitivity_weight=0.0).train()
    method.loss_terms(graph, step())
    losses = torch.rand(2, graph.num_nodes, dtype=torch.float64, generator=generator())
    assert torch.equal(method._costs(losses, method.ready(graph).signal), channel_costs(losses))


def test_sensitivity_is_how_far_the_bands_move_when_nothing_is_dropped():
    graph = small_graph()
    method = make(graph, dropout=0.5, input_dropout=0.5).train()
    probe = method.search(graph, generator())
    method.eval()
    with torch.no_grad():
        changed, clean = method.encoder(probe.signal), method.see(graph).views
    assert_close(probe.sensitivity, (changed - clean).norm(dim=2))
    assert float(probe.sensitivity.min()) >= 0


def test_a_search_leaves_the_model_as_it_was():
    graph = small_graph()
    method = make(graph).train()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    method.search(graph, generator())
    assert method.training
    assert_close(dict(method.state_dict()), before, rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in method.parameters())


def test_an_outer_step_holds_no_embeddings_of_the_search():
    graph = small_graph()
    method = make(graph).train()
    searched = method.search(graph, generator())
    light = searched.without_views()
    assert searched.found.seen.views.numel() == 2 * graph.num_nodes * 8
    for ours, theirs in zip(
        (light.found.before, light.found.seen),
        (searched.found.before, searched.found.seen),
        strict=True,
    ):
        assert ours.views.untyped_storage().nbytes() == 0
        assert torch.equal(ours.energies, theirs.energies)
        assert torch.equal(ours.objective, theirs.objective)
    assert torch.equal(light.sensitivity, searched.sensitivity)
    method.loss_terms(graph, step())
    assert method._probe.found.seen.views.numel() == 0


def test_a_changed_graph_is_within_the_budgets():
    graph = small_graph()
    method = make(graph, perturbation_budget=0.1, feature_budget=0.1)
    change = method.search(graph, generator()).found.change
    assert int(change.flips.sum()) <= round(0.1 * graph.num_edges)
    assert len(change.moves) == round(0.1 * int((graph.features != 0).sum()))


def test_the_log_tells_of_searches_where_there_were_any():
    graph = small_graph()
    method = make(graph, warm_up=1, interval=1).train()
    method.loss_terms(graph, step(1))
    assert "search_after" not in method.monitors()
    method.loss_terms(graph, step(2))
    values = method.monitors()
    assert float(values["search_after"]) > float(values["search_before"])
    told = {"gate_mean", "gate_std", "search_flips", "search_moves", "sensitivity_low"}
    assert told | {"sensitivity_high", "rayleigh_low", "rayleigh_high_changed"} <= set(values)


def test_early_stopping_watches_what_aspect_watches():
    graph = small_graph()
    method = make(graph).train()
    terms = method.loss_terms(graph, step())
    assert_close(method.watched(terms), terms["contrast"] + terms["policy"])


def test_the_ablations_are_settings():
    graph = small_graph()
    without_rayleigh = make(graph, rayleigh_weight=0.0)
    problem = without_rayleigh.inner_problem(graph, generator())
    seen = problem.see(problem.nothing())
    losses = torch.stack(
        [problem.contrast(a, b) for a, b in zip(seen.views, problem.keys, strict=True)]
    )
    assert_close(seen.objective, stability(losses, problem.weights))
    only_target = make(graph, stability_weight=0.0).train()
    assert "stability" not in only_target.loss_terms(graph, step())


def test_the_same_seed_gives_the_same_numbers():
    graph = small_graph()
    first, again = make(graph, epochs=3), make(graph, epochs=3)
    for method in (first, again):
        train(method, graph, seed=4)
    assert_close(dict(first.state_dict()), dict(again.state_dict()), rtol=0, atol=0)


# On the model as trained


def flipped(method, graph, problem, flips):
    return Signal(method.ready(graph).features, problem.edges.operator(flips))


def random_flips(problem, flips, draw):
    """As many edges removed and as many pairs joined, of the same candidates."""
    chosen = torch.zeros_like(flips)
    for pool in (problem.edges.present.bool(), ~problem.edges.present.bool()):
        pairs = pool.nonzero().squeeze(1)
        count = int(flips[pool].sum())
        chosen[pairs[torch.randperm(len(pairs), generator=draw)[:count]]] = 1
    return chosen


@torch.no_grad()
def stability_loss(method, graph, signal, *, training):
    """Of a changed graph, nothing dropped: by statistics of the batch, or by stored ones."""
    model = copy.deepcopy(method).train(training)
    clean, changed = model(model.ready(graph).bounded), model.encoder(signal)
    total = 0.0
    for band, weights in zip(changed, clean.weights.t(), strict=True):
        losses = model.node_losses(band, clean.fused, generator()).rows
        total = total + float((weights * losses).mean())
    return total


def assert_the_search_beats_random_flips(method, graph, draws=4):
    problem, probe = (look(graph, generator(1)) for look in (method.inner_problem, method.search))
    flips, draw = probe.found.change.flips, generator(2)
    assert int(flips.sum()) > 0
    drawn = [random_flips(problem, flips, draw) for _ in range(draws)]
    assert all(int(other.sum()) == int(flips.sum()) for other in drawn)
    for training in (True, False):
        clean, searched, *random = (
            stability_loss(
                method, graph, flipped(method, graph, problem, change), training=training
            )
            for change in (torch.zeros_like(flips), flips, *drawn)
        )
        gain, random_gain = searched - clean, sum(random) / draws - clean
        assert gain > 0, f"training {training}: {clean} to {searched}"
        assert gain > random_gain, f"training {training}: {gain} against {random_gain}"


def with_batch_norm(graph, **settings):
    """Trained without searches; only edges may be changed, and their loss alone is climbed."""
    changes = {"batch_norm": True, "feature_budget": 0.0, "rayleigh_weight": 0.0, **settings}
    config = AspectSConfig(**{"warm_up": 10_000, "stability_target": "fused", **changes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        method = AspectSMethod(config, graph.num_features).to(graph.dtype)
    train(method, graph, seed=0)
    return method


@pytest.mark.parametrize("layer_order", ["filter-first", "project-first"])
@pytest.mark.parametrize("seed", range(3))
def test_a_search_moves_the_model_as_trained_more_than_random_flips_do(layer_order, seed):
    mixed = mixed_graph(num_nodes=120, degree=6.0, num_features=12, seed=seed).graph
    # Far smaller than a running variance that begins with one: averages of a short training are
    # those of another function, on which a search can lower this loss.
    graph = Graph.build(0.01 * mixed.features, mixed.edge_index)
    small = {"width": 16, "epochs": 30, "learning_rate": 0.01, "row_normalise": False}
    method = with_batch_norm(graph, layer_order=layer_order, **small)
    assert_the_search_beats_random_flips(method, graph)


def test_a_search_in_the_midst_of_training_sees_the_statistics_of_now():
    graph = small_graph()
    method = make(graph, dropout=0.5, input_dropout=0.5).train()  # statistics that are not its own
    now = copy.deepcopy(method)
    now.calibrate(graph)
    assert not torch.allclose(method.encoder.norm.running_var, now.encoder.norm.running_var)
    method.loss_terms(graph, step())
    assert_close(dict(method.state_dict()), dict(now.state_dict()), rtol=0, atol=0)
    clean = now.train().see(graph).views  # by batch statistics
    energies = [rayleigh_energy(now.ready(graph).bounded.operator, band.detach()) for band in clean]
    assert_close(method._probe.found.before.energies, torch.stack(energies))


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", REAL)
def test_on_real_graphs_too(name):
    graph = load_named(name).graph
    settings = {"rayleigh_weight": 0.5, **REAL[name]}
    assert_the_search_beats_random_flips(with_batch_norm(graph, **settings), graph)


@pytest.mark.gpu
def test_a_search_on_a_gpu_does_harm_within_its_budgets():
    graph = small_graph().to(torch.float32).to("cuda")
    method = make(graph).to("cuda").eval()
    probe = method.search(graph, torch.Generator("cuda").manual_seed(0))
    found = probe.found
    assert float(found.seen.objective) > float(found.before.objective)
    assert int(found.change.flips.sum()) <= round(0.2 * graph.num_edges)
    with torch.no_grad():
        assert_close(method.encoder(probe.signal), found.seen.views, rtol=1e-4, atol=1e-5)
    terms = method.train().loss_terms(graph, Step(1, torch.Generator("cuda").manual_seed(0)))
    sum(terms.values()).backward()
    assert all(bool(p.grad.isfinite().all()) for p in method.parameters() if p.grad is not None)
