"""The checks, in the order in which they are printed. Each looks and changes nothing."""

import ctypes
import importlib.util
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sluice_tools.common.command import how_to_get

OK, WARNING, PROBLEM = "ok", "warning", "problem"
_LIMIT_S = 30
_OLDEST_CUDA = 12
_LEAST_FREE_MIB = 64  # a board, with room for the traces and sockets of other programs


@dataclass(frozen=True)
class Finding:
    check: str
    level: str
    said: str
    todo: str = ""  # empty if ok


@dataclass(frozen=True)
class Surroundings:
    """What the checks look at. Tests put broken ones here."""

    program: Path  # bin/sluice of the installation
    environment: Mapping[str, str]
    session: str = "default"
    gpu: str = "real"  # or sim
    files: Path = Path("/")  # the folder that has dev/ and tmp/
    has_package: Callable[[str], bool] = lambda name: importlib.util.find_spec(name) is not None
    has_library: Callable[[str], bool] = lambda name: loads(name)

    def sluice(self, *arguments: str) -> tuple[dict, str]:
        """The JSON that a command of ours printed, {} without one, and its error line without its name."""
        done = run([str(self.program), *arguments], self.environment)
        error = done.stderr.strip().partition(": ")[2] or f"exit code {done.returncode}"
        return json.loads(done.stdout or "{}"), error if done.returncode else ""


def loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def run(command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess:
    try:
        return subprocess.run(command, env=dict(environment), capture_output=True, text=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]}: no answer in {_LIMIT_S} s")
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]}: {error.strerror}")


def default_session(program: Path, environment: Mapping[str, str]) -> str:
    """The session of programs that are given none. `sluice status` decides as they do."""
    found, _ = Surroundings(program, environment).sluice("status", "--json")
    return found.get("session", "default")


def driver_and_gpu(about: Surroundings) -> Iterator[Finding]:
    found, error = about.sluice("gpus", "--gpu", about.gpu, "--json")
    if not found:
        todo = "install NVIDIA's driver, or give the container or job a GPU; --gpu sim checks for the simulated GPU"
        if "is the stub of" in error:
            error, _, todo = error.partition("; ")
        yield Finding("driver", PROBLEM, error, todo)
        return
    said = f"CUDA {found['driver_version']}, {found['library']}"
    if int(found["driver_version"].partition(".")[0]) < _OLDEST_CUDA:
        todo = f"install a driver for CUDA {_OLDEST_CUDA}.0 or later"
        yield Finding("driver", PROBLEM, f"{said}: Sluice needs CUDA {_OLDEST_CUDA}.0", todo)
    else:
        yield Finding("driver", OK, said)
    for device in found["devices"]:
        said = f"{device['name']}, {device['memory_bytes'] >> 30} GiB"
        if device["compute_mode"] == "default":
            yield Finding("gpu", OK, said)
        else:
            todo = f"as root: nvidia-smi -c DEFAULT -i {device['uuid']}; with an MPS daemon, exclusive process is right"
            yield Finding("gpu", WARNING, f"{said}: compute mode {device['compute_mode']}, one process only", todo)
    if about.gpu == "real" and not about.has_library("libnvidia-ml.so.1"):
        said = "no libnvidia-ml.so.1: sluice status cannot name the programs that run without Sluice"
        yield Finding(
            "gpu", WARNING, said, "give the container the driver capability utility, or install NVIDIA's NVML"
        )


def permissions(about: Surroundings) -> Iterator[Finding]:
    if about.gpu == "sim":
        return
    devices = about.files / "dev"
    needed = [*sorted(devices.glob("nvidia[0-9]*")), devices / "nvidiactl", devices / "nvidia-uvm"]
    for device in needed:
        if not device.exists():
            todo = "load the driver (nvidia-modprobe -u -c 0), or give the container all device files of the GPU"
            yield Finding("permissions", PROBLEM, f"{device} is missing", todo)
        elif not os.access(device, os.R_OK | os.W_OK):
            todo = f"ask the administrator for access (ls -l {device} names the group)"
            yield Finding("permissions", PROBLEM, f"this user may not read and write {device}", todo)
    if all(os.access(device, os.R_OK | os.W_OK) for device in needed):
        yield Finding("permissions", OK, ", ".join(map(str, needed)))


def board(about: Surroundings) -> Iterator[Finding]:
    folder = about.files / "dev" / "shm"
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        todo = "mount a tmpfs there with mode 1777; in a container, mount that of the host (docs/guide/containers.md)"
        yield Finding("board", PROBLEM, f"{folder} is missing or cannot be written", todo)
        return
    for name in (f"sluice.{os.geteuid()}.{about.session}", f"sluice-{os.geteuid()}"):
        if os.path.lexists(folder / name) and (folder / name).lstat().st_uid != os.geteuid():
            yield Finding("board", PROBLEM, f"{folder / name} belongs to another user", "remove it, as root")
            return
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize >> 20
    if free < _LEAST_FREE_MIB:
        todo = f"remove files there, but none named sluice*, or give it more: mount -o remount,size=1G {folder}"
        yield Finding("board", WARNING, f"{folder} has {free} MiB left", todo)
    else:
        yield Finding("board", OK, f"{folder}, {free} MiB free")


def session(about: Surroundings) -> Iterator[Finding]:
    status, error = about.sluice("status", "--json", "--session", about.session)
    if not status:
        yield Finding("session", PROBLEM, error, "sluice status --help; the board may be of another version of Sluice")
        return
    if apart := status.get("apart"):
        said = f"session {about.session} is only of this container ({apart}): it holds no program outside"
        todo = "share it: sluice cdi, or --ipc=host --pid=host (docs/guide/containers.md); nothing if it is alone there"
        yield Finding("session", WARNING, said, todo)
    if status["controller"] is None:
        yield Finding("session", OK, f"no controller of session {about.session} yet; sluice exec starts one")
        return
    controller, clients = status["controller"], status["clients"]
    if not controller["alive"]:
        todo = f"sluice controller --session {about.session}; if process {controller['pid']} is stopped, continue it"
        said = f"no controller of session {about.session} answers: new programs run ungated"
        yield Finding("session", PROBLEM, said, todo)
    else:
        said = f"{about.session}: controller pid {controller['pid']}, clients: {len(clients)}"
        yield Finding("session", OK, said)
    for client in clients:
        if client["bypassed"]:
            said = f"pid {client['pid']} ({client['name']}) launched work that passed no gate"
            yield Finding("session", WARNING, said, f"sluice status --session {about.session} says why")
        elif client.get("unhooked_asked"):
            said = f"some launches of pid {client['pid']} ({client['name']}) may pass by: {client['unhooked_name']}"
            yield Finding("session", WARNING, said, f"sluice status --session {about.session} says why")
        if client["labels"].get("priority") == "default":
            said = f"pid {client['pid']} ({client['name']}) was given no priority and is best effort"
            yield Finding("session", WARNING, said, "start it with sluice exec --priority N, or set SLUICE_PRIORITY")
    for process in status["outside"]:
        if process["pid"] is None:
            continue
        said = f"pid {process['pid']} ({process['command']}) uses the GPU and is not a client of this session"
        yield Finding("session", WARNING, said, "start it with sluice exec --priority N -- PROGRAM")


def node(about: Surroundings) -> Iterator[Finding]:
    chosen = about.environment.get("SLUICE_NODE_DIR")
    folder = about.files / "run" / "sluice" if chosen is None else Path(chosen)
    socket = folder / "node.sock"
    # As programs do: without an absolute path there is no node service.
    if not folder.is_absolute() or not os.path.lexists(socket):
        yield Finding("node service", OK, "none here: each user has sessions of their own")
        return
    status, error = about.sluice("status", "--json", "--session", "node")
    if not status:
        todo = f"as root: systemctl restart sluice-node; ls -ld {folder} shows the owner (docs/guide/users.md)"
        yield Finding("node service", PROBLEM, error, todo)
    elif status["controller"] is None:
        said = f"nobody answers on {socket}: new programs of all users run ungated"
        todo = f"as root: systemctl start sluice-node; if this machine is to have none, rm {socket}"
        yield Finding("node service", PROBLEM, said, todo)
    else:
        said = f"pid {status['controller']['pid']}, {status['service']}"
        yield Finding("node service", OK, said)


def _defines(file: Path, name: bytes) -> bool:
    """Whether a library of this machine has a function of this name for others."""
    try:
        data = file.read_bytes()
        if data[:6] != b"\x7fELF\2\1":
            return False
        start, size, count = (*struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HH", data, 58))
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
        for _, kind, _, _, at, length, link, *_ in sections:
            if kind != 11:  # SHT_DYNSYM
                continue
            texts = sections[link][4]
            for text, _, _, section in struct.iter_unpack("<IBBH16x", data[at : at + length]):
                found = data[texts + text : texts + text + len(name) + 1] == name + b"\0"
                if section and found:
                    return True
    except (OSError, struct.error, IndexError):  # cannot be read, or is damaged
        pass
    return False


def _other_interposers(about: Surroundings) -> Iterator[str]:
    """Libraries of every program here that have launches of their own: ours calls the driver past them."""
    system = about.files / "etc/ld.so.preload"
    listed = [about.environment.get("LD_PRELOAD", ""), system.read_text(errors="replace") if system.exists() else ""]
    for name in " ".join(listed).replace(":", " ").split():
        file = Path(name)
        if file.name != "libsluice_intercept.so" and file.is_file() and _defines(file, b"cuLaunchKernel"):
            yield name


def preload(about: Surroundings) -> Iterator[Finding]:
    for name in _other_interposers(about):
        said = f"{name} is preloaded and hooks launches, too: Sluice calls the driver past it, so it sees none"
        yield Finding("preload", WARNING, said, "use one of the two: take it out of LD_PRELOAD or /etc/ld.so.preload")
    library = about.program.parents[1] / "lib" / "sluice" / "libsluice_intercept.so"
    listed = about.environment.get("LD_PRELOAD", "").replace(":", " ").split()
    others = [name for name in listed if name.endswith("/" + library.name) and Path(name).resolve() != library]
    if others:
        said = f"LD_PRELOAD names the interposer of another installation: {others[0]}"
        yield Finding("preload", WARNING, said, "unset LD_PRELOAD, and use one installation")
    if not library.exists():
        yield Finding("preload", PROBLEM, f"{library} is missing", "build or install Sluice again")
    elif set(" :") & set(str(library)):
        said = f"LD_PRELOAD cannot name a path with a blank or a colon: {library}"
        yield Finding("preload", PROBLEM, said, "install Sluice elsewhere")
    else:
        # The loader prints an error and goes on if it cannot find a library, and fails if a version is missing.
        done = run(["/bin/true"], {"LD_PRELOAD": str(library)})
        if done.returncode or done.stderr:
            said = f"programs cannot load it: {(done.stderr.strip() or 'no message').splitlines()[0]}"
            yield Finding("preload", PROBLEM, said, "build Sluice on this system (CONTRIBUTING.md)")
        else:
            yield Finding("preload", OK, str(library))


def _mps_of_session(about: Surroundings) -> Iterator[Finding]:
    status, _ = about.sluice("status", "--json", "--session", about.session)
    clients = [client for client in (status or {}).get("clients", ()) if client.get("mps")]
    inside = [client for client in clients if client["mps"]["under"] == "session"]
    if not inside:
        return
    devices = {client["device"] for client in inside}
    outside = [client for client in clients if client not in inside and client["device"] in devices]
    for client in outside:
        said = f"pid {client['pid']} ({client['name']}) is outside of the session's MPS daemon: time-sliced against it"
        yield Finding("mps", WARNING, said, "start it again with sluice exec --mps")
    if not outside:
        programs = "1 program" if len(inside) == 1 else f"{len(inside)} programs"
        said = f"the session's MPS daemon has {programs}: a fatal fault of one ends the kernels of all"
        yield Finding("mps", OK, said)


def mps(about: Surroundings) -> Iterator[Finding]:
    default = about.files / "tmp" / "nvidia-mps"
    folder = Path(about.environment.get("CUDA_MPS_PIPE_DIRECTORY") or default)
    found = list(_mps_of_session(about))
    yield from found
    if (folder / "control").exists() and not folder.parent.name.endswith(".mps"):
        said = f"an MPS daemon may run ({folder}/control): a killed program can then disturb the others"
        todo = "read docs/reference/faults.md; for time-sliced mode: echo quit | nvidia-cuda-mps-control"
        yield Finding("mps", WARNING, said, todo)
    elif not found:
        yield Finding("mps", OK, "no MPS daemon: the GPU is time-sliced")


def segments(about: Surroundings) -> Iterator[Finding]:
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    # Of two, PyTorch reads the second.
    name = next((name for name in reversed(names) if name in about.environment), names[0])
    options = about.environment.get(name, "").replace(" ", "").lower().split(",")
    if "expandable_segments:false" in options:
        said = f"{name} switches expandable segments off: a training gives little memory back"
        yield Finding("segments", WARNING, said, f"export {name}=expandable_segments:True")
    elif "expandable_segments:true" in options:
        yield Finding("segments", OK, f"{name} switches them on")
    else:
        said = f"not set; a training next to sluice serve wants {name}=expandable_segments:True"
        yield Finding("segments", OK, said)


# What a build has only if a library was there: its file in libexec/sluice, the library, what does not work without it.
_PARTS = (
    (
        "sluice-worker-torch",
        "LibTorch",
        "sluice train and split, and PyTorch models in sluice run and serve",
        "in a checkout: ./x torch && ./x build; packages are built without it",
    ),
    ("sluice-serve", "gRPC", "sluice serve", "in a checkout: ./x build, which installs libgrpc++-dev"),
)
# The driver is that of the machine, or the simulated one.
_OF_THE_DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")
_PACKAGES = ("numpy", "pandas", "matplotlib", "pyarrow", "perfetto")


def parts(about: Surroundings) -> Iterator[Finding]:
    programs = about.program.parents[1] / "libexec" / "sluice"
    missing = [part for part in _PARTS if not (programs / part[0]).exists()]
    for _, library, lost, todo in missing:
        yield Finding("parts", WARNING, f"built without {library}: no {lost}", todo)
    packages = [name for name in _PACKAGES if not about.has_package(name)]
    if packages:
        said = f"{sys.executable} has no {', '.join(packages)}: no sluice parse, sweep, trace, or report of a trace"
        yield Finding("parts", WARNING, said, how_to_get(*packages))
    if not missing and not packages:
        yield Finding("parts", OK, "all programs, and the Python packages of traces and sweeps")


def _head(file: Path) -> bytes:
    with open(file, "rb") as opened:
        return opened.read(4096)


def _missing_libraries(file: Path, loader: str, environment: Mapping[str, str]) -> list[str]:
    """What the loader does not find for `file`. As `ldd`, it lists and then ends: no code of the file runs."""
    done = run([loader, str(file)], {**environment, "LD_TRACE_LOADED_OBJECTS": "1"})
    missing = [line.split()[0] for line in done.stdout.splitlines() if line.endswith("=> not found")]
    missing += re.findall(r"version `([^']+)' not found", done.stderr)
    return [name for name in missing if name not in _OF_THE_DRIVER]


def libraries(about: Surroundings) -> Iterator[Finding]:
    root = about.program.parents[1]
    files = [about.program, *sorted((root / "libexec/sluice").glob("*")), *sorted((root / "lib/sluice").glob("*.so"))]
    heads = {file: head for file in files if (head := _head(file)).startswith(b"\x7fELF")}
    loaders = [found[0].decode() for head in heads.values() if (found := re.search(rb"/[\w/.-]+/ld-[\w.-]+", head))]
    lacking: dict[str, list[str]] = {}
    for file in heads if loaders else ():
        for name in _missing_libraries(file, loaders[0], about.environment):
            lacking.setdefault(name, []).append(file.name)
    for name, programs in lacking.items():
        todo = f"install what has it (apt-file search {name}), or build Sluice on this system: ./x build in a checkout"
        yield Finding("libraries", PROBLEM, f"no {name}: {', '.join(programs)} cannot start", todo)
    if not lacking:
        yield Finding("libraries", OK, f"{len(heads)} programs and libraries have theirs")


CHECKS: tuple[Callable[[Surroundings], Iterator[Finding]], ...] = (
    driver_and_gpu,
    permissions,
    board,
    session,
    node,
    preload,
    mps,
    segments,
    parts,
    libraries,
)
