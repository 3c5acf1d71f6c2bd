"""Small changes of a graph, made on purpose: a graph in, a perturbed graph out."""

from typing import TYPE_CHECKING

from aspect.exports import exporting

if TYPE_CHECKING:
    from aspect.attacks.base import Attack, Known, apply_flips
    from aspect.attacks.file import PerturbationFile, read_files
    from aspect.attacks.perturbation import Perturbation
    from aspect.attacks.pruning import Pruning
    from aspect.attacks.purification import edge_scores, purify
    from aspect.attacks.registry import attack_names, find_attack, register_attack
    from aspect.attacks.run import AttackRequest, plan_attacks, run_attack

__all__ = [
    "Attack",
    "AttackRequest",
    "Known",
    "Perturbation",
    "PerturbationFile",
    "Pruning",
    "apply_flips",
    "attack_names",
    "edge_scores",
    "find_attack",
    "plan_attacks",
    "purify",
    "read_files",
    "register_attack",
    "run_attack",
]

__getattr__, __dir__ = exporting(__name__, __file__)
