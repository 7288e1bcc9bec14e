"""The messages of grpc.health.v1, built in a descriptor pool of their own.

Why not generated code: protobuf allows one definition of a symbol per pool, and the generated file
of grpcio-health-checking carries another file name than the specification's own health.proto.
Whichever of the two were loaded second into the default pool would fail with a TypeError, in a
process (a plugin, a test, an engine) that imports that package too. A private pool can collide
with nothing.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FILE_NAME = "grpc/health/v1/health.proto"
SERVICE = "grpc.health.v1.Health"

UNKNOWN = 0
SERVING = 1
NOT_SERVING = 2
SERVICE_UNKNOWN = 3

_Field = descriptor_pb2.FieldDescriptorProto
_RESPONSE = ".grpc.health.v1.HealthCheckResponse"


def _field(message: descriptor_pb2.DescriptorProto, name: str, number: int, **more: Any) -> None:
    more.setdefault("label", _Field.LABEL_OPTIONAL)
    message.field.add(name=name, number=number, **more)


def _file() -> descriptor_pb2.FileDescriptorProto:
    made = descriptor_pb2.FileDescriptorProto(
        name=FILE_NAME, package="grpc.health.v1", syntax="proto3"
    )
    request = made.message_type.add(name="HealthCheckRequest")
    _field(request, "service", 1, type=_Field.TYPE_STRING)

    response = made.message_type.add(name="HealthCheckResponse")
    _field(response, "status", 1, type=_Field.TYPE_ENUM, type_name=f"{_RESPONSE}.ServingStatus")
    status = response.enum_type.add(name="ServingStatus")
    for number, name in enumerate(("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")):
        status.value.add(name=name, number=number)

    made.message_type.add(name="HealthListRequest")
    listing = made.message_type.add(name="HealthListResponse")
    entry = listing.nested_type.add(name="StatusesEntry")
    entry.options.map_entry = True
    _field(entry, "key", 1, type=_Field.TYPE_STRING)
    _field(entry, "value", 2, type=_Field.TYPE_MESSAGE, type_name=_RESPONSE)
    _field(
        listing,
        "statuses",
        1,
        type=_Field.TYPE_MESSAGE,
        label=_Field.LABEL_REPEATED,
        type_name=".grpc.health.v1.HealthListResponse.StatusesEntry",
    )

    service = made.service.add(name="Health")
    check = {"input_type": ".grpc.health.v1.HealthCheckRequest", "output_type": _RESPONSE}
    service.method.add(name="Check", **check)
    service.method.add(name="Watch", server_streaming=True, **check)
    service.method.add(
        name="List",
        input_type=".grpc.health.v1.HealthListRequest",
        output_type=".grpc.health.v1.HealthListResponse",
    )
    return made


POOL = descriptor_pool.DescriptorPool()
POOL.Add(_file())


def _message(name: str) -> Any:
    descriptor = POOL.FindMessageTypeByName(f"grpc.health.v1.{name}")
    return message_factory.GetMessageClass(descriptor)


HealthCheckRequest = _message("HealthCheckRequest")
HealthCheckResponse = _message("HealthCheckResponse")
HealthListRequest = _message("HealthListRequest")
HealthListResponse = _message("HealthListResponse")
