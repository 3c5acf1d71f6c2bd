"""Text for LaTeX: letters that mean something there are written out; names may be hostile."""

from __future__ import annotations

__all__ = ["escape_latex", "latex_number"]

# Brackets and stars in braces: behind `\\` they would be taken for its options.
SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    '"': r"{\char34}",
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "±": r"$\pm$",
    "×": r"$\times$",  # noqa: RUF001 - not the letter
    "·": r"$\cdot$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "−": "$-$",  # noqa: RUF001 - the minus sign of Unicode
    "–": "--",  # noqa: RUF001 - the dash of ranges
    "—": "---",
    "…": r"\ldots{}",
    "†": r"$^\dagger$",
    "→": r"$\to$",
    "∞": r"$\infty$",
}
GREEK = {
    "α": "alpha",  # noqa: RUF001 - Greek it is
    "β": "beta",
    "γ": "gamma",  # noqa: RUF001
    "δ": "delta",
    "ε": "varepsilon",
    "ζ": "zeta",
    "η": "eta",
    "θ": "theta",
    "κ": "kappa",
    "λ": "lambda",
    "μ": "mu",
    "ν": "nu",  # noqa: RUF001
    "ξ": "xi",
    "π": "pi",
    "ρ": "rho",  # noqa: RUF001
    "σ": "sigma",  # noqa: RUF001
    "τ": "tau",
    "φ": "varphi",
    "χ": "chi",
    "ψ": "psi",
    "ω": "omega",
    "Γ": "Gamma",
    "Δ": "Delta",
    "Θ": "Theta",
    "Λ": "Lambda",
    "Σ": "Sigma",
    "Φ": "Phi",
    "Ψ": "Psi",
    "Ω": "Omega",
}
WRITTEN = {**SPECIAL, **{letter: f"$\\{name}$" for letter, name in GREEK.items()}}


def escape_latex(text: str) -> str:
    r"""The text as LaTeX prints it, on one line; other letters are left to the engine.

    >>> print(escape_latex("50% & _x_"))
    50\% \& \_x\_
    """
    line = " ".join(text.split())
    return "".join(WRITTEN.get(letter, letter) for letter in line if letter.isprintable())


def latex_number(number: float, digits: int) -> str:
    """A number for running text, with the minus sign of a formula.

    >>> latex_number(-1.25, 1)
    '$-$1.2'
    """
    text = f"{number:.{digits}f}"
    return text.replace("-", "$-$", 1)
