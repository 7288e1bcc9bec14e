"""The three methods of grpc.health.v1.Health, for a server of threads and one of asyncio alike."""

from __future__ import annotations

from typing import Any

import grpc

from stepwarden.edge.health_messages import (
    SERVICE,
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)


def health_rpc_handlers(check: Any, watch: Any, list_all: Any) -> Any:
    """The generic handler that gives Check, Watch and List to these three, as the server wants."""
    one = {
        "request_deserializer": HealthCheckRequest.FromString,
        "response_serializer": HealthCheckResponse.SerializeToString,
    }
    many = {
        "request_deserializer": HealthListRequest.FromString,
        "response_serializer": HealthListResponse.SerializeToString,
    }
    methods = {
        "Check": grpc.unary_unary_rpc_method_handler(check, **one),
        "Watch": grpc.unary_stream_rpc_method_handler(watch, **one),
        "List": grpc.unary_unary_rpc_method_handler(list_all, **many),
    }
    return grpc.method_handlers_generic_handler(SERVICE, methods)
