"""Words of others on somebody's terminal."""


def printable(text: str) -> str:
    """Without what would move the cursor, or ring."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
