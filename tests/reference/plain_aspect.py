"""One ASPECT epoch in its plain form: nothing is shared, blocked or skipped.

Features are dense, every band is propagated by itself, and each direction of each contrast has a
similarity matrix of its own, all through torch's autograd. The weights are those of the method it
is built from, so that loss terms and gradients can be compared. It is the yardstick of `make
speed`, too.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from aspect.data.features import dense
from aspect.data.graph import Graph
from aspect.methods.aspect import AspectMethod
from aspect.methods.base import Step
from aspect.nn.normalisation import BatchNorm


class PlainAspect:
    """The two-band method, written out; views are drawn in the same order as in the fast form."""

    def __init__(self, method: AspectMethod, graph: Graph) -> None:
        self.method, self.config, self.encoder = method, method.config, method.encoder
        assert self.config.lambda_max == "two"
        features = dense(graph.features)
        if self.config.row_normalise:
            sums = features.abs().sum(1, keepdim=True)
            features = features / torch.where(sums > 0, sums, torch.ones_like(sums))
        self.features = features
        self.num_nodes = graph.num_nodes
        self.pairs = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
        self.clean = self.laplacian(torch.ones(self.pairs.shape[1], dtype=graph.dtype))

    def laplacian(self, weights: Tensor) -> Tensor:
        """`L - I = -D^(-1/2) A D^(-1/2)` of the graph with a weight per undirected edge."""
        source, target = self.pairs
        rows, columns = torch.cat([source, target]), torch.cat([target, source])
        values = torch.cat([weights, weights])
        if self.config.self_loops:
            nodes = torch.arange(self.num_nodes)
            rows, columns = torch.cat([rows, nodes]), torch.cat([columns, nodes])
            values = torch.cat([values, values.new_ones(self.num_nodes)])
        degrees = values.new_zeros(self.num_nodes).index_add(0, rows, values)
        roots = torch.where(
            degrees > 0, degrees.clamp(min=1e-30) ** -0.5, torch.zeros_like(degrees)
        )
        values = -roots[rows] * values * roots[columns]
        shape = (self.num_nodes, self.num_nodes)
        return torch.sparse_coo_tensor(
            torch.stack([rows, columns]), values, shape, check_invariants=False
        ).to_sparse_csr()

    def loss_terms(self, step: Step) -> dict[str, Tensor]:
        """The same terms as `AspectMethod.loss_terms`."""
        config, generator = self.config, step.generator
        first_input = (
            self.augmented(generator) if config.views == "both" else (self.features, self.clean)
        )
        first_low, first_high = self.embed(*first_input, generator)
        second_input = self.augmented(generator)
        second_low, second_high = self.embed(*second_input, generator)
        gate = self.gate(first_low, first_high, first_input[1])
        first_fused = gate * first_low + (1 - gate) * first_high
        second_gate = self.gate(second_low, second_high, second_input[1])
        second_fused = second_gate * second_low + (1 - second_gate) * second_high

        terms = {"contrast": self.contrast(first_fused, second_fused).mean()}
        low = self.contrast(first_low, second_low)
        high = self.contrast(first_high, second_high)
        if config.channel_weight > 0:
            terms["channels"] = config.channel_weight * (low.mean() + high.mean()) / 2
        if config.fusion == "node-wise" and config.policy_weight > 0:
            evidence = torch.stack([low.detach(), high.detach()], dim=1)
            target = self.target(*self.mean_of_neighbours(evidence, first_input[1]).unbind(1))
            loss = functional.binary_cross_entropy(gate.squeeze(1), target)
            terms["policy"] = config.policy_weight * loss
        return terms

    def augmented(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Features with columns masked, and the Laplacian with edges dropped."""
        features, laplacian = self.features, self.clean
        if self.config.column_mask > 0:
            keep = features.new_empty(features.shape[1])
            features = features * keep.bernoulli_(1 - self.config.column_mask, generator=generator)
        if self.config.edge_drop > 0:
            weights = features.new_empty(self.pairs.shape[1])
            laplacian = self.laplacian(
                weights.bernoulli_(1 - self.config.edge_drop, generator=generator)
            )
        return features, laplacian

    def embed(
        self, features: Tensor, laplacian: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Both bands of a view; they share the input-dropout mask and nothing else."""
        x = _dropout(features, self.encoder.input_dropout, generator)
        linear, norm, activation = self.encoder.linear, self.encoder.norm, self.encoder.activation
        bands = []
        for band in self.encoder.filters:
            if self.encoder.project_first:
                hidden = _filtered(laplacian, x @ linear.weight.t(), band()) + linear.bias
                hidden = _normed(_dropout(hidden, self.encoder.dropout, generator), norm)
            else:
                hidden = _filtered(laplacian, x, band())
                hidden = _dropout(hidden, self.encoder.dropout, generator)
                hidden = linear(_normed(hidden, norm))
            bands.append(activation(hidden))
        return bands[0], bands[1]

    def gate(self, low: Tensor, high: Tensor, laplacian: Tensor) -> Tensor:
        """The low band's weight at every node, [nodes, 1] (Eq. (9), gate)."""
        if self.config.fusion == "half":
            return torch.full((self.num_nodes, 1), 0.5, dtype=low.dtype)
        if self.config.fusion == "global":
            return torch.sigmoid(self.method.gate.logits).expand(self.num_nodes, 1)
        if not self.config.gate_gradient:
            low, high = low.detach(), high.detach()
        if self.config.gate_input == "layer-norm":
            low, high = (functional.layer_norm(z, z.shape[1:]) for z in (low, high))
        logits = self.method.gate.network(torch.cat([low, high], dim=1))
        return torch.sigmoid(self.mean_of_neighbours(logits, laplacian))

    def mean_of_neighbours(self, x: Tensor, laplacian: Tensor) -> Tensor:
        """A lazy walk's mean, as often as the setting says."""
        ones = x.new_ones(self.num_nodes, 1)
        for _ in range(self.config.gate_hops):
            x = (x - laplacian @ x) / (ones - laplacian @ ones)
        return x

    def contrast(self, queries: Tensor, keys: Tensor) -> Tensor:
        """InfoNCE of every node, with a similarity matrix per direction."""
        rows = self.direction(queries, keys)
        return (rows + self.direction(keys, queries)) / 2 if self.config.symmetric else rows

    def direction(self, queries: Tensor, keys: Tensor) -> Tensor:
        """One direction's losses (Eq. (11), standard loss)."""
        similarity = functional.normalize(queries, dim=1) @ functional.normalize(keys, dim=1).t()
        scores = similarity / self.config.temperature
        return torch.logsumexp(scores, dim=1) - scores.diagonal()

    def target(self, low: Tensor, high: Tensor) -> Tensor:
        """The low band's target weight (Eqs. (14) and (15))."""
        both = torch.cat([low, high])
        deviation = both.std(correction=0)
        low, high = (low - both.mean()) / deviation, (high - both.mean()) / deviation
        trust_low = torch.exp(-low / self.config.gate_temperature)
        trust_high = torch.exp(-high / self.config.gate_temperature)
        return trust_low / (trust_low + trust_high)


def _filtered(laplacian: Tensor, x: Tensor, coefficients: Tensor) -> Tensor:
    """`sum_k w_k T_k(L)x` by the three-term recursion."""
    before, current = x, laplacian @ x
    total = coefficients[0] * before + coefficients[1] * current
    for coefficient in coefficients[2:]:
        before, current = current, 2 * (laplacian @ current) - before
        total = total + coefficient * current
    return total


def _normed(x: Tensor, norm: BatchNorm | None) -> Tensor:
    """Batch norm of a training step, if there is any: by the batch's own mean and variance."""
    if norm is None:
        return x
    deviation = (x.var(0, correction=0) + 1e-5).sqrt()
    return (x - x.mean(0)) / deviation * norm.weight + norm.bias


def _dropout(x: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    if rate == 0:
        return x
    keep = torch.empty_like(x, requires_grad=False).bernoulli_(1 - rate, generator=generator)
    return x * keep / (1 - rate)
