"""Losses as pure functions: tensors in, tensors out."""

from typing import TYPE_CHECKING

from aspect.exports import exporting

if TYPE_CHECKING:
    from aspect.losses.correlation import barlow_loss, canonical_loss
    from aspect.losses.edges import edge_ranking_loss, rayleigh_energy
    from aspect.losses.info_nce import (
        intra_view_info_nce,
        sampled_info_nce,
        several_positives_info_nce,
    )
    from aspect.losses.mutual_information import two_group_loss
    from aspect.losses.policy_target import channel_costs, policy_loss
    from aspect.losses.similarity import bootstrap_loss, information_hinge, top_similarity_loss

__all__ = [
    "barlow_loss",
    "bootstrap_loss",
    "canonical_loss",
    "channel_costs",
    "edge_ranking_loss",
    "information_hinge",
    "intra_view_info_nce",
    "policy_loss",
    "rayleigh_energy",
    "sampled_info_nce",
    "several_positives_info_nce",
    "top_similarity_loss",
    "two_group_loss",
]

__getattr__, __dir__ = exporting(__name__, __file__)
