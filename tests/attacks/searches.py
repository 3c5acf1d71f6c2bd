"""A small ASPECT-S model in float64 and the problem that its search solves."""

import torch

from aspect.methods.aspect_s import AspectSConfig, AspectSMethod
from reference.graphs import random_graph

BASE = {
    "order": 3,
    "width": 8,
    "input_dropout": 0.0,
    "dropout": 0.0,
    "batch_norm": True,
    "self_loops": True,
    "layer_order": "filter-first",
    "gate_hops": 0,
    "temperature": 0.5,
    "negatives": None,
    "warm_up": 0,
    "interval": 1,
    "stability_target": "fused",
    "perturbation_budget": 0.2,
    "candidates": 1.0,
    "feature_budget": 0.2,
    "feature_box": 1.0,
    "perturbation_steps": 4,
    "edge_step": 0.5,
    "step_rule": "normalised",
    "feature_step": 0.25,
    "rayleigh_weight": 0.7,
    "discretisation": "draws",
    "draws": 3,
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def small_graph(seed=0):
    """Connected enough: no node is isolated, so that dense references need no special case."""
    graph = random_graph(24, 90, seed=seed, density=0.5)
    assert int(graph.degrees().min()) > 0
    return graph


def make(graph, **changes):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        method = AspectSMethod(AspectSConfig(**(BASE | changes)), graph.num_features)
        method = method.to(graph.dtype)
        norm = method.encoder.norm
        if norm is not None:  # as if trained
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
            torch.nn.init.normal_(norm.weight)
            torch.nn.init.normal_(norm.bias)
    return method


def problem_of(method, graph, seed=0):
    with torch.no_grad():
        return method.search_problem(graph, method.scope, generator(seed))
