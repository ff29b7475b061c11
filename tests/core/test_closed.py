"""Labels of closed sets."""

from __future__ import annotations

from fleet_ett.core.closed import closed


def test_what_the_taxonomy_knows_keeps_its_name() -> None:
    known = (("component", "compiler"), ("phase", "compile_cold"), ("cause", "link_flap"), ("kind", "infra"))
    assert known == closed(known)


def test_all_else_has_one_name_a_label() -> None:
    """However many names are made up; labels without a closed set keep theirs."""
    made_up = {
        closed(
            (
                ("component", f"c{n}"),
                ("phase", f"p{n}"),
                ("heading", f"custom:p{n}"),
                ("cause", f"because {n}"),
            )
        )
        for n in range(300)
    }
    assert {
        (("component", "other"), ("phase", "custom"), ("heading", "custom"), ("cause", "other"))
    } == made_up
    assert (("le", "+Inf"),) == closed((("le", "+Inf"),))
