"""The messages of the kubelet's device plugin interface, v1beta1: the fields that are used here, with the numbers that
Kubernetes publishes (staging/src/k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto).

Made as the program starts, so that neither protoc nor code from it is needed."""

from collections.abc import Callable

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "v1beta1"
# message: {field: (number, type)}. A type in a list is repeated.
_MESSAGES: dict[str, dict[str, tuple[int, str | list[str]]]] = {
    "Empty": {},
    "DevicePluginOptions": {"get_preferred_allocation_available": (2, "bool")},
    "RegisterRequest": {
        "version": (1, "string"),
        "endpoint": (2, "string"),
        "resource_name": (3, "string"),
        "options": (4, "DevicePluginOptions"),
    },
    "Device": {"ID": (1, "string"), "health": (2, "string")},
    "ListAndWatchResponse": {"devices": (1, ["Device"])},
    "ContainerPreferredAllocationRequest": {
        "available_deviceIDs": (1, ["string"]),
        "must_include_deviceIDs": (2, ["string"]),
        "allocation_size": (3, "int32"),
    },
    "PreferredAllocationRequest": {"container_requests": (1, ["ContainerPreferredAllocationRequest"])},
    "ContainerPreferredAllocationResponse": {"deviceIDs": (1, ["string"])},
    "PreferredAllocationResponse": {"container_responses": (1, ["ContainerPreferredAllocationResponse"])},
    "ContainerAllocateRequest": {"devices_ids": (1, ["string"])},
    "AllocateRequest": {"container_requests": (1, ["ContainerAllocateRequest"])},
    "CDIDevice": {"name": (1, "string")},
    "Variable": {"key": (1, "string"), "value": (2, "string")},  # of a map, which has these on the wire
    "ContainerAllocateResponse": {"envs": (1, ["Variable"]), "cdi_devices": (5, ["CDIDevice"])},
    "AllocateResponse": {"container_responses": (1, ["ContainerAllocateResponse"])},
}
_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {"string": _FIELD.TYPE_STRING, "bool": _FIELD.TYPE_BOOL, "int32": _FIELD.TYPE_INT32}


def _class_maker(pool) -> Callable:
    """Makes a class of a descriptor. Debian 12 has protobuf 3.21, which has only the second way; protobuf 5 has only
    the first."""
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass
    return message_factory.MessageFactory(pool).GetPrototype  # pyright: ignore[reportAttributeAccessIssue]


def _make() -> dict:
    file = descriptor_pb2.FileDescriptorProto(name="sluice/deviceplugin.proto", package=_PACKAGE, syntax="proto3")
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, (number, kind) in fields.items():
            repeated = isinstance(kind, list)
            kind = kind[0] if isinstance(kind, list) else kind
            field = described.field.add(name=name, number=number)
            field.label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
            field.type = _TYPES.get(kind, _FIELD.TYPE_MESSAGE)
            if field.type == _FIELD.TYPE_MESSAGE:
                field.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    class_of = _class_maker(pool)
    return {name: class_of(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


# name: class, as protoc would make it.
MESSAGES = _make()
