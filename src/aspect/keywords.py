"""Settings of `Aspect` as typed keywords. Made by `make tables` from their classes."""

from __future__ import annotations

from typing import Literal, TypedDict


class AspectKeywords(TypedDict, total=False):
    """The keywords; those left out have the defaults that `help(Aspect)` shows."""

    epochs: int
    """Passes over the graph."""
    patience: int | None
    """Epochs without a lower watched loss before stopping at the best; none: never stop early."""
    stop_on_collapse: bool
    """Look at the embedding every ten epochs, and stop with the weights of the last healthy look
    when it is close to representation collapse."""
    norm_statistics: Literal["recomputed", "running", "graph"]
    """What batch norm embeds by: the clean training graph (`recomputed` after training), averages
    over training (`running`), or the graph at hand (`graph`); official codes have the last two."""
    row_normalise: bool | None
    """Divide each node's features by the sum of their sizes; off: raw, as in the paper."""
    self_loops: bool
    """Add a self-loop to every node before propagation."""
    lambda_max: Literal["two", "power-iteration"]
    """Largest eigenvalue used to rescale the Laplacian: its bound, or its true value."""
    order: int
    """Order of the Chebyshev filters (K)."""
    width: int
    """Dimensions of each band's embedding (Hidden Dim)."""
    learned_start: bool
    """Learn the filters' first value as well; off: PolyGCL's constants 2 and 0."""
    input_dropout: float
    """Dropout of feature entries before the filter (DP Rate)."""
    dropout: float
    """Dropout after the filter (Dropout)."""
    batch_norm: bool
    """Batch norm before the linear layer, after it with `project-first` (Batch Norm)."""
    activation: Literal["relu", "prelu"]
    """Activation after the linear layer (Activation)."""
    layer_order: Literal["filter-first", "project-first"]
    """Dropout and batch norm before the linear layer, as in PolyGCL's code, or after it."""
    fusion: Literal["node-wise", "global", "half"]
    """Gate weights for each node, one learned weight for all (`global`), or equal ones (`half`)."""
    gate_width: int
    """Hidden units of the gate."""
    gate_input: Literal["layer-norm", "raw"]
    """Input of the gate: the bands' embeddings at one scale, or raw as in the paper."""
    gate_hops: int
    """Hops over which gate logits and channel losses are averaged (ours; the paper has none)."""
    gate_gradient: bool
    """Let the gate's gradient reach the encoder through the gate's input."""
    readout: Literal["fused", "concatenated", "weighted"]
    """The embedding: the blend, the bands side by side with their gate weights, or without them
    (`concatenated`, an ablation: the gate does not reach it)."""
    centred: bool
    """Subtract each band's mean over the training graph before the readout; off as in the paper."""
    unit_rows: bool
    """Bring each band's rows to length one before the readout, since InfoNCE compares directions
    alone; off as in the paper."""
    skip_weight: float
    """Weight of a skip connection beside the bands: the leading principal components of the
    features as given and of their averages over two hops (ours); 0: none, as in the paper."""
    skip_dim: int
    """Components of the skip connection."""
    views: Literal["one", "both"]
    """Augment one view and leave the other clean, as in the paper, or augment both."""
    edge_drop: float
    """Rate of edges dropped in an augmented view."""
    column_mask: float
    """Rate of feature columns masked in an augmented view."""
    temperature: float
    """Temperature of InfoNCE (tau)."""
    symmetric: bool
    """Both directions of InfoNCE; off: the first view has the queries, the second the keys."""
    negatives: int | None
    """Negatives drawn per step, as many as nodes: all; none: all up to 50,000 nodes and 8,192 drawn
    beyond, on a CPU all up to 2,048 and 256 drawn beyond."""
    channel_weight: float
    """Weight of InfoNCE within each band, averaged over the bands (ours; the paper has none)."""
    policy_weight: float
    """Weight of the policy regulariser (lambda_pol)."""
    gate_temperature: float
    """Softness of the policy's target (tau_g)."""
    learning_rate: float
    """Learning rate of encoder and gate (LR1)."""
    weight_decay: float
    """Weight decay of encoder and gate (WD1)."""
    filter_learning_rate: float
    """Learning rate of the filters (LR)."""
    filter_weight_decay: float
    """Weight decay of the filters (WD)."""
    warm_up: int
    """Epochs of plain ASPECT (T_warm); the first search comes `interval` epochs later."""
    interval: int
    """Epochs from one search to the next (r)."""
    stability_weight: float
    """Weight of the stability loss (lambda_stab; epsilon in the paper's table)."""
    stability_target: Literal["fused", "band"]
    """What a perturbed band is contrasted with: the clean fused embedding, as in the paper, or the
    clean band."""
    sensitivity_weight: float
    """Weight of a band's sensitivity in the policy's target (lambda_s); the paper has some."""
    unit_sensitivity: bool
    """Measure a band's sensitivity on rows of length one, as InfoNCE and readout compare them; off
    as in the paper."""
    perturbation_budget: float
    """Pairs flipped at most, as a ratio of the edges (Perturbation Budget)."""
    candidates: float
    """Pairs without an edge that the search may join, for each edge; half are two hops apart."""
    feature_budget: float
    """Feature entries that may be moved, as a ratio of those that are not zero."""
    feature_box: float
    """The largest move of an entry, as a multiple of their mean size."""
    perturbation_steps: int
    """Steps of ascent in a search (Perturbation Steps); 0: flips at random, a control."""
    edge_step: float
    """Size of the first step over pairs (LR_alpha)."""
    step_rule: Literal["normalised", "raw"]
    """`normalised`: a step of one flips about as many pairs as are allowed; `raw`: the paper's."""
    feature_step: float
    """Size of a step over feature entries, as a multiple of their mean size (LR_beta)."""
    rayleigh_weight: float
    """Weight of the Rayleigh term that guides the search (lambda_ray)."""
    discretisation: Literal["draws", "largest"]
    """From fractional flips to whole ones: the best of several draws, or the largest."""
    draws: int
    """Draws to choose from."""
