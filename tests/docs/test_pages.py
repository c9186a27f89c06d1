"""Every command and snippet of the other pages is carried out; and no page has one that is not."""

import pytest

from tests.docs.blocks import LANGUAGES
from tests.docs.not_run import NOT_RUN
from tests.docs.pages import CARRIED_OUT, everything, read, with_code
from tests.docs.shell import Shell
from tests.docs.walking import walk

COMMANDS = ("parley ", "curl ", "make ", "pip ", "python ", "a2a-runtime ", "npm ", "docker ", "$ ")


@pytest.mark.slow
@pytest.mark.parametrize("page", with_code())
def test_the_page_can_be_followed(page: str, shell: Shell) -> None:
    walk(read(page), shell)


def test_every_block_says_what_it_is() -> None:
    assert [block.place for block in everything() if block.language not in LANGUAGES | {"prepare"}] == []


def test_no_command_hides_in_a_block_that_is_not_carried_out() -> None:
    still = [block for block in everything() if block.language not in CARRIED_OUT]
    assert [block.place for block in still if block.first.startswith(COMMANDS)] == []


def test_what_is_not_run_is_known_with_its_reason() -> None:
    """A command that nobody tries is a promise that nobody keeps: each is an entry in the list."""
    found = {(block.page, block.first): block.word for block in everything() if block.how == "not run"}
    assert found == NOT_RUN
