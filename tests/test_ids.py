"""Ids are ordered by when they were made, also within a millisecond."""

import uuid

from parley.ids import is_id, new_id


def test_ids_of_one_process_are_ordered_and_unique() -> None:
    made = [new_id() for _ in range(20_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_an_id_is_a_uuid_of_version_7() -> None:
    found = uuid.UUID(new_id())
    assert (found.version, found.variant) == (7, uuid.RFC_4122)
    assert is_id(str(found))
