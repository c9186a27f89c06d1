"""Seeds that are played again and again: some that were always fine, and all that ever failed."""

FIXED = tuple(range(6))
FAILED_ONCE = (
    7, 11, 38, 42, 86, 1051, 5013, 5096, 20005, 20068, 20075, 20083, 307906203, 792223007, 1091838153,
    1239670198, 1775040205, 1785181215, 2082178711,
)  # fmt: skip
"""Seeds whose worlds once violated a rule, because of a defect in the engine or in the simulation. Since then the
scenario has grown, so they lead to other worlds; the defects of the engine have tests of their own."""
