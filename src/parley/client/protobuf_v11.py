"""Protobuf messages of A2A 1.1, made from the SDK's messages of 1.0 and the field numbers of the new fields.

| message | field | number |
|---|---|---|
| `Task` | `int64 generation` | 7 |
| `TaskStatusUpdateEvent` | `int64 generation` | 5 |
| `TaskArtifactUpdateEvent` | `int64 generation` | 7 |
| `SendMessageConfiguration` | `optional int64 if_generation_match` | 5 |
| `GetTaskRequest` | `optional int64 current_generation` | 4 |

They are those of branch `dev-1.1` of the public repository a2aproject/A2A, commit 28491879.
"""

from typing import Any, cast

from a2a.types import a2a_pb2 as pb2
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

FIELDS = (
    ("Task", "generation", 7, False),
    ("TaskStatusUpdateEvent", "generation", 5, False),
    ("TaskArtifactUpdateEvent", "generation", 7, False),
    ("SendMessageConfiguration", "if_generation_match", 5, True),
    ("GetTaskRequest", "current_generation", 4, True),
)
"""Message, name and number of each new field, and whether it is optional."""

_GENERATIONS = {message: number for message, name, number, _ in FIELDS if name == "generation"}


def _extended() -> FileDescriptorProto:
    """Return the schema of 1.0 with the new fields."""
    file = FileDescriptorProto()
    pb2.DESCRIPTOR.CopyToProto(file)
    by_name = {message.name: message for message in file.message_type}
    for message, name, number, optional in FIELDS:
        fields = by_name[message]
        if any(known.name == name for known in fields.field):
            continue  # a later SDK
        if optional:
            # Protobuf tells an absent value from 0 by a oneof of its own for each optional field.
            fields.oneof_decl.add(name=f"_{name}")
        fields.field.add(
            name=name,
            number=number,
            type=FieldDescriptorProto.TYPE_INT64,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
            proto3_optional=optional or None,
            oneof_index=len(fields.oneof_decl) - 1 if optional else None,
        )
    return file


def _pool() -> DescriptorPool:
    """Return a pool of its own: in the default pool the same names are those of 1.0."""
    pool = DescriptorPool()
    for needed in _dependencies(pb2.DESCRIPTOR, {}).values():
        file = FileDescriptorProto()
        needed.CopyToProto(file)
        pool.Add(file)  # pyright: ignore[reportUnknownMemberType]
    pool.Add(_extended())  # pyright: ignore[reportUnknownMemberType]
    return pool


def _dependencies(file: FileDescriptor, found: dict[str, FileDescriptor]) -> dict[str, FileDescriptor]:
    """Return the files that a file imports, each after the files that it imports itself."""
    for needed in file.dependencies:
        if needed.name not in found:
            _dependencies(needed, found)
            found[needed.name] = needed
    return found


_POOL = _pool()


def message_type(of: type[Message]) -> type[Message]:
    """Return the message of 1.1 for one of 1.0; any other message is the same in both."""
    if of.DESCRIPTOR.file.name != pb2.DESCRIPTOR.name:
        return of
    return GetMessageClass(_POOL.FindMessageTypeByName(of.DESCRIPTOR.full_name))


def generation_of(message: Message) -> int:
    """Return the generation of a task or an update that was read as a message of 1.0: there it is an unknown field."""
    number = _GENERATIONS[message.DESCRIPTOR.name]
    if number in message.DESCRIPTOR.fields_by_number:
        return int(cast(Any, message).generation)  # a later SDK
    return next((int(field.data) for field in UnknownFieldSet(message) if field.field_number == number), 0)


def poll_request(task: str, generation: int) -> pb2.GetTaskRequest:
    """Return a request for a task with a higher generation, as a message of 1.0 with an unknown field."""
    newer: type[Message] = message_type(pb2.GetTaskRequest)
    return pb2.GetTaskRequest.FromString(newer(id=task, current_generation=generation).SerializeToString())
