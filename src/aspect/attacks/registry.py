"""Names of attacks to attacks. What an attack declares can be had without importing torch.

An attack of another package is found as `aspect.plugins` says.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator

from aspect.errors import SettingsError, UnknownNameError
from aspect.plugins import Plugins, reference_of

if TYPE_CHECKING:
    from aspect.attacks.base import Attack
    from aspect.config import Config

Changed = Literal["edges", "features"]


@dataclass(frozen=True)
class AttackInfo:
    """What an attack declares about itself, in its decorator."""

    name: str  # as the command line and plans call it; `module:Class` of one from outside
    solvers: Mapping[str, str] = field(default_factory=dict)  # variants, with a word on each
    changes: Changed = "edges"
    nested: bool = True  # the flips of a smaller budget are the first of a larger one's
    stored: bool = True  # its flips are kept in a file; off: they are drawn where they are needed
    needs_labels: bool = True  # of the training nodes
    needs_model: bool = False  # it searches on a trained model
    targeted: bool = False  # on single nodes, its setting `targets`; features are never masked
    short: str = ""  # the registered name of one from outside, for titles and names of files

    @property
    def title(self) -> str:
        """The name for titles and names of files."""
        return self.short or self.name


_attacks: dict[str, type[Attack]] = {}
_outside = Plugins("attack", "aspect.attacks")

PACKAGE = __name__.rpartition(".")[0]  # where the attacks of aspect are

IMPORTED = "imported"  # the kind of flips that were found elsewhere; see `aspect.attacks.imported`
_imported = AttackInfo(IMPORTED, nested=False)

AnyAttack = TypeVar("AnyAttack", bound="type[Attack]")


def register_attack(
    name: str,
    *,
    config: type[Config],
    **declared: Any,  # noqa: ANN401 - the fields of AttackInfo
) -> Callable[[AnyAttack], AnyAttack]:
    """Class decorator: make an attack known under its name; a name used twice is an error.

    All arguments but `config` are fields of `AttackInfo`, and must be literals, since they are read
    from the source as well. An attack with solvers has a setting `solver`.
    """

    def enter(attack: AnyAttack) -> AnyAttack:
        is_ours = attack.__module__.rpartition(".")[0] == PACKAGE
        if is_ours and name in _attacks:
            raise SettingsError(f"Two attacks are called {name!r}.")
        info = AttackInfo(name, **declared)
        if not is_ours:
            info = AttackInfo(reference_of(attack), **declared, short=name)
        if bool(info.solvers) != ("solver" in config.model_fields):
            raise SettingsError(f"The attack {name!r} must declare the solvers of its settings.")
        if not is_ours:
            _outside.register(name, attack, (*_declared(), IMPORTED))
        attack.info, attack.config_type = info, config
        _attacks[info.name] = attack
        return attack

    return enter


@cache
def _declared() -> dict[str, tuple[AttackInfo, str]]:
    """Each attack with the sibling module that registers it, read from the source."""
    declared: dict[str, tuple[AttackInfo, str]] = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for call in getattr(node, "decorator_list", ()):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "register_attack":
                    name = str(ast.literal_eval(call.args[0]))
                    values = {
                        str(keyword.arg): ast.literal_eval(keyword.value)
                        for keyword in call.keywords
                        if keyword.arg != "config"
                    }
                    declared[name] = AttackInfo(name, **values), path.stem
    return declared


def attack_names() -> list[str]:
    """All short names, those from outside among them, without importing anything heavy."""
    return sorted({*_declared(), *_outside.names()})


def attack_info(name: str) -> AttackInfo:
    """What an attack declares; one of aspect is not imported for it."""
    if name == IMPORTED:
        return _imported
    return _declared()[name][0] if name in _declared() else find_attack(name).info


def check_flips_edges(name: str) -> None:
    """Refuse an attack that changes features alone: it has no flips to keep in a file."""
    if attack_info(name).changes == "features":
        raise SettingsError(
            f"{name} flips no edges, so that there is no file of flips to make. Name it in a plan, "
            "or try it with: aspect stability."
        )


def masks_features(name: object) -> bool:
    """Whether features are masked along with the flips; a wrong name is refused elsewhere."""
    try:
        return name != IMPORTED and not attack_info(str(name)).targeted
    except (UnknownNameError, SettingsError):
        return True


def find_attack(name: str) -> type[Attack]:
    """Import the attack's module and return its class."""
    if name == IMPORTED:
        raise SettingsError(
            "Imported flips were found elsewhere, and are not searched for here. Make their file "
            "with: aspect attack GRAPH --from FILE."
        )
    if name in _declared():
        import_module(f"{PACKAGE}.{_declared()[name][1]}")
        return _attacks[name]
    found = _outside.find(name)
    if found is None:
        raise UnknownNameError("attack", name, attack_names())
    attack = _attacks.get(reference_of(found))
    if attack is None or attack is not found:
        raise SettingsError(
            f"An attack must be a class under @register_attack. {reference_of(found)} is none."
        )
    return attack


def check_solver(name: str, solver: str) -> None:
    """Refuse a solver that the attack does not have, or none where it has several."""
    solvers = attack_info(name).solvers
    if solver and not solvers:
        raise ValueError(f"{name} has no solver: leave it out")
    if solvers and solver not in solvers:
        listed = " or ".join(f"{known} ({word})" for known, word in solvers.items())
        raise ValueError(f"{name} must name its solver: {listed}")


def attack_title(name: str, solver: str = "") -> str:
    """The attack in words: `metattack (implicit)`, or its name where it has no solvers."""
    title = attack_info(name).title
    return f"{title} ({solver})" if solver else title


def _known(name: str) -> str:
    try:
        return attack_info(name).name
    except UnknownNameError as error:  # a KeyError, which pydantic would not report as a setting
        raise ValueError(str(error).rstrip(".")) from error


AttackName = Annotated[str, AfterValidator(_known)]
"""The name of a registered attack, checked where it enters."""
