"""Every command of the tutorials is carried out, and prints what they show."""

import pytest

from tests.docs.pages import read, with_code
from tests.docs.shell import Shell
from tests.docs.walking import walk


@pytest.mark.slow
@pytest.mark.parametrize("page", with_code("tutorials/"))
def test_the_page_can_be_followed(page: str, shell: Shell) -> None:
    walk(read(page), shell)
