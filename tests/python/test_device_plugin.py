"""`sluice device-plugin`: a plugin that the kubelet does not know after a restart, or that gives a container another
GPU than its priority is for, is noticed only by pods that wait indefinitely or by the latency of the critical one.

A fake kubelet speaks the published protocol in bytes, with the field numbers of Kubernetes' api.proto written here
again: it shares no code with the plugin."""

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sluice_tools.device_plugin.slots import Gpus, prefer

PROGRAM = os.environ.get("SLUICE_TEST_PROGRAM", "")
MANIFEST = Path(__file__).parents[2] / "tools/python/sluice_tools/device_plugin/kubernetes.yaml"
ADDRESS = {"critical": "unix:{}/sluice-critical.sock", "besteffort": "unix:{}/sluice-besteffort.sock"}


def field(number: int, value: bytes | str | int) -> bytes:
    """A field of a message, as it is on the wire; numbers and lengths below 128 only."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    value = value.encode() if isinstance(value, str) else value
    assert len(value) < 128
    return bytes([number << 3 | 2, len(value)]) + value


def fields(message: bytes) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = []

    def number() -> int:
        nonlocal message
        value = shift = 0
        while True:
            byte, message = message[0], message[1:]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while message:
        key = number()
        value = number()
        if key & 7 == 2:
            found.append((key >> 3, message[:value]))
            message = message[value:]
        else:
            found.append((key >> 3, value))
    return found


class Kubelet:
    """The kubelet's folder, and its registration service while it runs."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.registrations: queue.Queue = queue.Queue()
        self.refusal = ""
        self._server = None

    def start(self) -> None:
        """As the kubelet does: the sockets of all plugins go first."""
        grpc = pytest.importorskip("grpc")
        for socket in self.folder.glob("*.sock"):
            socket.unlink()

        def register(request, context):
            if self.refusal:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refusal)
            self.registrations.put(dict(fields(request)))
            return b""

        handler = grpc.method_handlers_generic_handler(
            "v1beta1.Registration", {"Register": grpc.unary_unary_rpc_method_handler(register)}
        )
        self._server = grpc.server(ThreadPoolExecutor(max_workers=4))
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{self.folder}/kubelet.sock")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=None).wait()

    def expect_both(self) -> dict[str, dict]:
        both = [self.registrations.get(timeout=20) for _ in range(2)]
        return {request[3].decode(): request for request in both}

    def call(self, name: str, method: str, request: bytes) -> bytes:
        import grpc

        with grpc.insecure_channel(ADDRESS[name].format(self.folder)) as channel:
            return channel.unary_unary(f"/v1beta1.DevicePlugin/{method}")(request, timeout=10)

    def watch(self, name: str) -> queue.Queue:
        """What ListAndWatch sends, as it comes: slot to health."""
        import grpc

        channel = grpc.insecure_channel(ADDRESS[name].format(self.folder))
        stream = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"")
        sent: queue.Queue = queue.Queue()

        def read():
            try:
                for message in stream:
                    devices = [dict(fields(device)) for _, device in fields(message)]
                    sent.put({device[1].decode(): device[2].decode() for device in devices})
            except grpc.RpcError:
                sent.put("ended")

        threading.Thread(target=read, daemon=True).start()
        return sent


class Plugin:
    """`sluice device-plugin`, with a stand-in for `sluice gpus` that lists what the test says."""

    def __init__(self, folder: Path, kubelet: Kubelet):
        self.folder, self.kubelet = folder, kubelet
        self.program = folder / "sluice"
        self.program.write_text(f'#!/bin/sh\n[ "$1 $2 $3" = "gpus --json --gpu" ] && cat {folder}/gpus.json\n')
        self.program.chmod(0o755)
        self.process = None

    def has(self, *uuids: str) -> None:
        devices = ", ".join(f'{{"uuid": "{uuid}"}}' for uuid in uuids)
        new = self.folder / "new.json"
        new.write_text(f'{{"devices": [{devices}]}}')
        new.rename(self.folder / "gpus.json")

    def start(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "sluice_tools.device_plugin",
                "--kubelet",
                self.kubelet.folder,
                "--every",
                "0.2",
                *options,
            ],
            env=os.environ | {"SLUICE_PROGRAM": str(self.program), "PYTHONPATH": ":".join(sys.path)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def stop(self, number=signal.SIGTERM) -> str:
        self.process.send_signal(number)
        return self.process.communicate(timeout=20)[1]


@pytest.fixture
def kubelet(tmp_path):
    folder = Path("/tmp") / f"kubelet-{os.getpid()}"  # names of sockets are short
    folder.mkdir()
    kubelet = Kubelet(folder)
    kubelet.start()
    yield kubelet
    kubelet.stop()
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


@pytest.fixture
def plugin(tmp_path, kubelet):
    plugin = Plugin(tmp_path, kubelet)
    plugin.has("GPU-a", "GPU-b")
    yield plugin
    if plugin.process and plugin.process.poll() is None:
        plugin.stop(signal.SIGKILL)


def allocate(kubelet: Kubelet, name: str, *containers: list[str], variables: dict | None = None) -> list[list[str]]:
    """The CDI devices that each container gets. All must get these variables."""
    request = b"".join(field(1, b"".join(field(1, slot) for slot in slots)) for slots in containers)
    given = []
    for number, container in fields(kubelet.call(name, "Allocate", request)):
        assert number == 1
        parts = fields(container)
        envs = [dict(fields(value)) for part, value in parts if part == 1]
        assert {variable[1].decode(): variable[2].decode() for variable in envs} == (variables or {})
        assert all(part in (1, 5) for part, _ in parts)
        given.append([dict(fields(device))[1].decode() for part, device in parts if part == 5])
    return given


def test_both_resources_are_registered_as_kubernetes_wants_it(kubelet, plugin):
    plugin.start()
    both = kubelet.expect_both()
    assert set(both) == {"sluice.dev/critical", "sluice.dev/besteffort"}
    critical = both["sluice.dev/critical"]
    assert critical[1] == b"v1beta1" and critical[2] == b"sluice-critical.sock"
    assert (kubelet.folder / critical[2].decode()).is_socket()
    preferred_allocation = field(2, 1)
    assert critical[4] == preferred_allocation
    assert kubelet.call("critical", "GetDevicePluginOptions", b"") == preferred_allocation


def test_a_container_gets_the_gpu_and_the_priority_together(kubelet, plugin):
    plugin.start("--critical", "2")
    kubelet.expect_both()
    assert kubelet.watch("critical").get(timeout=10) == dict.fromkeys(
        ["GPU-a::0", "GPU-a::1", "GPU-b::0", "GPU-b::1"], "Healthy"
    )
    assert len(kubelet.watch("besteffort").get(timeout=10)) == 8
    assert allocate(kubelet, "critical", ["GPU-b::1"]) == [["nvidia.com/gpu=GPU-b", "sluice.dev/priority=critical"]]
    assert allocate(kubelet, "besteffort", ["GPU-a::3"], ["GPU-b::0", "GPU-a::1", "GPU-b::2"]) == [
        ["nvidia.com/gpu=GPU-a", "sluice.dev/priority=besteffort"],
        ["nvidia.com/gpu=GPU-b", "nvidia.com/gpu=GPU-a", "sluice.dev/priority=besteffort"],
    ]


def test_a_container_gets_the_settings_of_its_resource(kubelet, plugin):
    plugin.start("--critical-memory", "40GiB", "--critical-give", "2.5%")
    kubelet.expect_both()
    given = {"SLUICE_MEMORY": "40GiB", "SLUICE_GIVE": "2.5%"}
    assert allocate(kubelet, "critical", ["GPU-b::0"], variables=given)
    assert allocate(kubelet, "besteffort", ["GPU-a::3"])


@pytest.mark.parametrize("slot", ["GPU-a::1", "GPU-c::0", "GPU-a", "GPU-a::x", ""])
def test_a_slot_that_there_is_not_is_refused(kubelet, plugin, slot):
    import grpc

    plugin.start()
    kubelet.expect_both()
    with pytest.raises(grpc.RpcError) as refused:
        allocate(kubelet, "critical", ["GPU-b::0", slot])
    assert refused.value.details() == f"sluice.dev/critical has no usable device {slot}"


def test_a_gpu_that_is_lost_is_reported_and_not_given(kubelet, plugin):
    import grpc

    plugin.start("--besteffort", "0")
    assert kubelet.registrations.get(timeout=20)[3] == b"sluice.dev/critical"
    sent = kubelet.watch("critical")
    assert sent.get(timeout=10) == {"GPU-a::0": "Healthy", "GPU-b::0": "Healthy"}
    plugin.has("GPU-b", "GPU-c")
    assert sent.get(timeout=10) == {"GPU-a::0": "Unhealthy", "GPU-b::0": "Healthy", "GPU-c::0": "Healthy"}
    with pytest.raises(grpc.RpcError):
        allocate(kubelet, "critical", ["GPU-a::0"])
    (plugin.folder / "gpus.json").unlink()  # the driver fails
    assert set(sent.get(timeout=10).values()) == {"Unhealthy"}
    plugin.has("GPU-a", "GPU-b", "GPU-c")
    assert set(sent.get(timeout=10).values()) == {"Healthy"}


def test_it_registers_again_when_the_kubelet_restarts(kubelet, plugin):
    plugin.start()
    kubelet.expect_both()
    for _ in range(2):
        sent = kubelet.watch("critical")
        sent.get(timeout=10)
        kubelet.stop()
        time.sleep(1)  # a kubelet that is away is no reason to end
        kubelet.start()
        kubelet.expect_both()
        assert sent.get(timeout=10) == "ended"
        assert allocate(kubelet, "critical", ["GPU-a::0"])[0][0] == "nvidia.com/gpu=GPU-a"
    assert kubelet.registrations.empty()


def test_it_waits_for_a_kubelet_that_comes_later(kubelet, plugin):
    kubelet.stop()
    (kubelet.folder / "kubelet.sock").touch()  # of a kubelet that was killed
    plugin.start()
    time.sleep(2)
    assert plugin.process.poll() is None
    kubelet.start()
    kubelet.expect_both()


def test_a_refusal_of_the_kubelet_ends_it_with_a_line(kubelet, plugin):
    kubelet.refusal = "unsupported version"
    plugin.start()
    assert plugin.process.wait(timeout=20) == 1
    said = plugin.process.stderr.read().splitlines()
    assert said[-1] == "sluice device-plugin: the kubelet refuses sluice.dev/critical: unsupported version"


def test_stopped_it_leaves_no_socket_and_killed_its_successor_works(kubelet, plugin):
    plugin.start()
    kubelet.expect_both()
    plugin.stop(signal.SIGKILL)
    assert len(list(kubelet.folder.glob("sluice-*.sock"))) == 2
    plugin.start()
    kubelet.expect_both()
    assert allocate(kubelet, "critical", ["GPU-a::0"])
    said = plugin.stop()
    assert plugin.process.returncode == 143 and "Traceback" not in said
    assert not list(kubelet.folder.glob("sluice-*.sock"))
    assert said.splitlines()[0] == "sluice device-plugin: GPUs: GPU-a, GPU-b"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--critical", "-1"], "'-1' is not a whole number from 0 to 1000"),
        (["--besteffort-memory", "20"], "'20' is not one of 20GiB, 1.5GiB"),
        (["--critical-give", "5"], "'5' is not 0, or a percentage from 0.1% to 50%"),
        (["--critical", "0", "--besteffort", "0"], "nothing to offer"),
        (["--every", "0"], "'0' is not a number of seconds above 0"),
        (["--gpus", "2"], "unrecognized arguments"),
    ],
)
def test_wrong_usage_is_one_line(plugin, options, said):
    plugin.start(*options)
    err = plugin.process.communicate(timeout=20)[1]
    assert plugin.process.returncode == 2 and said in err and len(err.splitlines()) == 1


def test_preferred_slots_are_of_different_gpus_and_of_the_emptiest(kubelet, plugin):
    available = ["GPU-a::0", "GPU-b::1", "GPU-b::2", "GPU-b::3", "GPU-c::2", "GPU-c::3"]
    assert prefer(available, [], 1) == ["GPU-b::1"]
    assert prefer(available, [], 4) == ["GPU-b::1", "GPU-c::2", "GPU-a::0", "GPU-b::2"]
    assert prefer(available, ["GPU-b::1"], 2) == ["GPU-b::1", "GPU-c::2"]
    assert prefer(available, ["GPU-b::1"], 9) == [
        "GPU-b::1",
        "GPU-c::2",
        "GPU-a::0",
        "GPU-b::2",
        "GPU-c::3",
        "GPU-b::3",
    ]
    plugin.start()
    kubelet.expect_both()
    wanted = b"".join(field(1, slot) for slot in available) + field(2, "GPU-b::1") + field(3, 2)
    (answer,) = fields(kubelet.call("besteffort", "GetPreferredAllocation", field(1, wanted)))
    assert answer == (1, field(1, "GPU-b::1") + field(1, "GPU-c::2"))


def test_an_old_protobuf_is_enough(monkeypatch):
    """With Debian 12's protobuf 3.21, the plugin would end with a traceback, and restart indefinitely on every node."""
    pytest.importorskip("google.protobuf")
    import google.protobuf
    from google.protobuf import descriptor_pb2, message_factory

    class OldFactory:
        """As in 3.21; later releases have a function in its place."""

        def __init__(self, pool):
            assert pool is not None and descriptor_pb2  # imported before the stand-in is there

        def GetPrototype(self, descriptor):
            return message_factory.GetMessageClass(descriptor)

    if hasattr(message_factory, "GetMessageClass"):
        # A stand-in for the module: protobuf itself calls the function by its name in the real one.
        monkeypatch.setattr(google.protobuf, "message_factory", types.SimpleNamespace(MessageFactory=OldFactory))
    monkeypatch.delitem(sys.modules, "sluice_tools.device_plugin.messages", raising=False)
    from sluice_tools.device_plugin.messages import MESSAGES

    monkeypatch.delitem(sys.modules, "sluice_tools.device_plugin.messages")
    response = MESSAGES["ContainerAllocateResponse"]()
    response.cdi_devices.add(name="a=b")
    assert response.SerializeToString() == field(5, field(1, "a=b"))


def test_a_change_wakes_those_who_wait(kubelet):
    gpus = Gpus()
    gpus.update(["GPU-a"])
    assert gpus.wait_for_change(None, 0) == {"GPU-a": True}
    timer = threading.Timer(0.2, gpus.update, [["GPU-b"]])
    timer.start()
    assert gpus.wait_for_change({"GPU-a": True}, 60) == {"GPU-a": False, "GPU-b": True}


def test_the_manifest_is_for_this_program():
    """A DaemonSet with an option that is none would restart indefinitely on every node."""
    text = MANIFEST.read_text()
    for name in ("/var/lib/kubelet/device-plugins", "/etc/cdi", "/run/sluice", "/opt/sluice"):
        assert re.search(rf"hostPath: {{path: {name}[,}}]", text)
    assert "hostPID: true" in text
    commands = re.findall(r'command: \["/opt/sluice/bin/sluice", (.*)\]', text)
    commands += [found.replace(" ", ", ") for found in re.findall(r"/opt/sluice/bin/sluice (.*?) >", text)]
    assert [command.split(",")[0].strip('"') for command in commands] == ["node", "device-plugin", "cdi"]
    # The init container runs before the service.
    assert commands[2] == "cdi, --node"
    for command in commands:
        words = [word.strip().strip('"') for word in command.split(",")]
        if PROGRAM:
            help_text = subprocess.run([PROGRAM, words[0], "--help"], capture_output=True, text=True)
            assert help_text.returncode == 0
            assert all(word.split("=")[0] in help_text.stdout for word in words if word.startswith("--"))


def site_policy() -> str:
    [policy] = re.findall(r"node.json: '(.*)'", MANIFEST.read_text())
    return policy


def test_the_manifests_site_policy_allows_what_the_resources_give():
    """A critical pod would run as best effort."""
    policy = json.loads(site_policy())
    assert policy["default"]["max_priority"] == 1
    # Root without a rule could ask for more than `critical`.
    assert policy["rules"] == [{"user": 0}]


@pytest.mark.skipif(not PROGRAM or os.geteuid() != 0, reason="needs a build of Sluice, and root")
def test_the_node_service_takes_the_manifests_site_policy(tmp_path):
    """Its container would restart indefinitely on every node."""
    policy = tmp_path / "node.json"
    policy.write_text(site_policy())
    environment = os.environ | {"SLUICE_NODE_DIR": f"/tmp/node-{os.getpid()}"}
    started = subprocess.Popen(
        [PROGRAM, "node", "--policy", policy], env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        said = started.stderr.readline() if started.stderr else ""
        assert "sluice node ready" in said and str(policy) in said
    finally:
        started.terminate()
        started.communicate()
        shutil.rmtree(environment["SLUICE_NODE_DIR"], ignore_errors=True)


@pytest.mark.skipif(not PROGRAM, reason="needs a build of Sluice")
def test_on_simulated_gpus(kubelet):
    environment = os.environ | {"SLUICE_SIM_DEVICES": "2", "SLUICE_SESSION": f"test-{os.getpid()}-plugin"}
    with subprocess.Popen(
        [PROGRAM, "device-plugin", "--gpu", "sim", "--kubelet", kubelet.folder], env=environment
    ) as started:
        try:
            kubelet.expect_both()
            slots = kubelet.watch("critical").get(timeout=10)
            assert len(slots) == 2 and all(re.fullmatch(r"GPU-[0-9a-f-]{36}::0", slot) for slot in slots)
            assert allocate(kubelet, "critical", [next(iter(slots))]) == [["sluice.dev/priority=critical"]]
        finally:
            started.terminate()
