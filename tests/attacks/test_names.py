"""Words for attacks: the solver is named where there are several."""

from aspect.attacks.names import attack_title


def test_a_title_names_the_solver_where_there_is_one():
    assert attack_title("metattack", "implicit") == "metattack (implicit)"
    assert attack_title("dice", "") == "dice"
