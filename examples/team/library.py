"""The library of the team: an agent on another server, which the team reaches over A2A."""

from parley import Text, Turn, agent

SHELVES = {
    "rivers": "Twain, Life on the Mississippi (1883); Magris, Danube (1986)",
}


@agent("librarian")
async def librarian(turn: Turn):
    """Knows which books there are about something."""
    for subject, books in SHELVES.items():
        if subject in turn.text.lower():
            yield Text(f"{books}.")
            return
    yield Text("There is no book about that here.")
