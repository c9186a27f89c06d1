"""An agent of the team with built-in figures."""

LENGTHS = {"Nile": 6650, "Amazon": 6400, "Danube": 2850}


def almanac(turn):
    """Knows the lengths of rivers."""
    return "\n".join(f"- {name}: {length:,} km" for name, length in LENGTHS.items())
