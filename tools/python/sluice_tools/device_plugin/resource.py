"""One resource of the device plugin: its server, and its registration with the kubelet."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from sluice_tools.device_plugin.messages import MESSAGES
from sluice_tools.device_plugin.slots import Gpus, gpu_of, prefer, slots_of

_CALL_LIMIT_S = 5
_LOOK_EVERY_S = 1.0


def _handler(function, request: str, response: str, stream: bool = False):
    kind = grpc.unary_stream_rpc_method_handler if stream else grpc.unary_unary_rpc_method_handler
    return kind(
        function,
        request_deserializer=MESSAGES[request].FromString,
        response_serializer=MESSAGES[response].SerializeToString,
    )


class Resource:
    """sluice.dev/NAME: `count` slots of each GPU, of which each gives a container that GPU, the priority NAME, and the
    environment variables in `settings` that have a value."""

    def __init__(self, name: str, count: int, gpus: Gpus, gpu_kind: str | None, settings: dict[str, str | None]):
        self.name = f"sluice.dev/{name}"
        self._priority = f"sluice.dev/priority={name}"
        self._count = count
        self._gpus = gpus
        self._settings = {key: value for key, value in settings.items() if value}
        self._gpu_kind = gpu_kind  # None: the GPUs have no CDI devices, as the simulated ones
        self._endpoint = f"sluice-{name}.sock"
        self._server: grpc.Server | None = None
        self._socket: Path | None = None
        self._stopped = threading.Event()

    @property
    def serves(self) -> bool:
        """A kubelet that starts removes the sockets of all plugins."""
        return self._socket is not None and self._socket.exists()

    def start(self, folder: Path) -> None:
        """Serves in the kubelet's folder, and registers there. Raises grpc.RpcError."""
        self.stop()
        self._stopped = threading.Event()
        self._socket = folder / self._endpoint
        self._server = grpc.server(ThreadPoolExecutor(max_workers=8))
        self._server.add_generic_rpc_handlers((self._handlers(),))
        self._server.add_insecure_port(f"unix:{self._socket}")
        self._server.start()
        self._register(folder / "kubelet.sock")

    def stop(self) -> None:
        self._stopped.set()
        if self._server is not None:
            self._server.stop(grace=None).wait()
            self._server = None

    def _register(self, kubelet: Path) -> None:
        request = MESSAGES["RegisterRequest"](
            version="v1beta1", endpoint=self._endpoint, resource_name=self.name, options=self._options(None, None)
        )
        with grpc.insecure_channel(f"unix:{kubelet}") as channel:
            register = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=MESSAGES["RegisterRequest"].SerializeToString,
                response_deserializer=MESSAGES["Empty"].FromString,
            )
            register(request, timeout=_CALL_LIMIT_S)

    def _handlers(self):
        return grpc.method_handlers_generic_handler(
            "v1beta1.DevicePlugin",
            {
                "GetDevicePluginOptions": _handler(self._options, "Empty", "DevicePluginOptions"),
                "ListAndWatch": _handler(self._list_and_watch, "Empty", "ListAndWatchResponse", stream=True),
                "GetPreferredAllocation": _handler(
                    self._preferred, "PreferredAllocationRequest", "PreferredAllocationResponse"
                ),
                "Allocate": _handler(self._allocate, "AllocateRequest", "AllocateResponse"),
            },
        )

    def _options(self, _request, _context):
        return MESSAGES["DevicePluginOptions"](get_preferred_allocation_available=True)

    def _list_and_watch(self, _request, context):
        stopped, sent = self._stopped, None
        while context.is_active() and not stopped.is_set():
            gpus = self._gpus.wait_for_change(sent, _LOOK_EVERY_S)
            if gpus == sent:
                continue
            sent = gpus
            response = MESSAGES["ListAndWatchResponse"]()
            for gpu, healthy in gpus.items():
                for slot in slots_of(gpu, self._count):
                    response.devices.add(ID=slot, health="Healthy" if healthy else "Unhealthy")
            yield response

    def _preferred(self, request, _context):
        response = MESSAGES["PreferredAllocationResponse"]()
        for wanted in request.container_requests:
            chosen = prefer(
                list(wanted.available_deviceIDs), list(wanted.must_include_deviceIDs), wanted.allocation_size
            )
            response.container_responses.add(deviceIDs=chosen)
        return response

    def _allocate(self, request, context):
        gpus = self._gpus.wait_for_change(None, 0)
        response = MESSAGES["AllocateResponse"]()
        for wanted in request.container_requests:
            container = response.container_responses.add()
            for slot in wanted.devices_ids:
                if slot not in slots_of(gpu_of(slot), self._count) or not gpus.get(gpu_of(slot)):
                    context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{self.name} has no usable device {slot}")
            if self._gpu_kind:
                for gpu in dict.fromkeys(map(gpu_of, wanted.devices_ids)):
                    container.cdi_devices.add(name=f"{self._gpu_kind}={gpu}")
            container.cdi_devices.add(name=self._priority)
            for key, value in self._settings.items():
                container.envs.add(key=key, value=value)
        return response
