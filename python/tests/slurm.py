"""A Slurm of one node on this machine, without systemd: munged, slurmctld and slurmd on ports of its own.

Nothing of it is left behind: configuration, state and sockets are in one folder, and the daemons and
what they have started are ended.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "sinfo")
PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
#: Seconds until the node is there.
PATIENCE = 60


class CannotStart(Exception):
    """Why there is no Slurm here."""


def _install() -> None:
    """Takes the packages from the distribution, where that is possible."""
    if not shutil.which("apt-get"):
        raise CannotStart("Slurm is not installed, and there is no apt-get")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "timeout": 300}
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    words = ["apt-get", "install", "-y", "--no-install-recommends", "slurm-wlm", "munge"]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(words, env=env, **quiet)


def _find() -> dict[str, str]:
    found = {name: shutil.which(name, path=PLACES) for name in PROGRAMS}
    return {name: path for name, path in found.items() if path}


def _ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _configure(folder: pathlib.Path, daemon_path: str) -> None:
    host = socket.gethostname().split(".")[0]
    controller, daemon = _ports(2)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    # A node of four processors, whatever this machine has: jobs must not wait for each other.
    (folder / "slurm.conf").write_text(f"""\
ClusterName=mgz
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=1
SchedulerParameters=batch_sched_delay=0
MpiDefault=none
MailProg=/bin/true
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=8000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")
    # Nothing here uses control groups. Slurm before 23 loads a plug-in for them all the same, and that
    # of version 1 asks for no systemd.
    version = subprocess.run([daemon_path, "-V"], capture_output=True, text=True, timeout=60).stdout
    major = int((re.search(r"\d+", version) or ["0"])[0])
    plugin = "disabled" if major >= 23 else "cgroup/v1"
    (folder / "cgroup.conf").write_text(f"CgroupPlugin={plugin}\n")


def _children(of: int) -> list[int]:
    """Processes below a process."""
    parents = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text().rsplit(")", 1)[1].split()
            parents[int(entry.parent.name)] = int(fields[1])
    found, new = [], [of]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found


def _ours(folder: pathlib.Path) -> list[int]:
    """Processes of our jobs and of their step daemons: those that have our configuration."""
    mark = f"SLURM_CONF={folder}/slurm.conf".encode()
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            number = int(entry.parent.name)
            if number != os.getpid() and mark in entry.read_bytes().split(b"\0"):
                found.append(number)
    return found


def _end(folder: pathlib.Path, daemons: list[subprocess.Popen[bytes]]) -> None:
    below = [child for daemon in daemons for child in _children(daemon.pid)]
    for daemon in reversed(daemons):
        daemon.terminate()
    for daemon in reversed(daemons):
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
    for number in {*below, *_ours(folder)}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


@contextlib.contextmanager
def running(folder: pathlib.Path) -> Iterator[dict[str, str]]:
    """Slurm, as the environment in which its commands reach it. Raises CannotStart."""
    if os.geteuid() != 0:
        raise CannotStart("Slurm's daemons are started by root alone")
    if len(_find()) < len(PROGRAMS):
        _install()
    programs = _find()
    missing = [name for name in PROGRAMS if name not in programs]
    if missing:
        raise CannotStart(f"{', '.join(missing)} cannot be installed (packages slurm-wlm, munge)")
    _configure(folder, programs["slurmd"])
    env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    daemons: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> None:
        with (folder / f"{name}.out").open("wb") as out:
            line = [programs[name], *words]
            daemons.append(
                subprocess.Popen(line, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
            )

    def told() -> str:
        lines = [
            f"{out.stem}: {line}"
            for out in sorted(folder.glob("*.out"))
            for line in out.read_text(errors="replace").splitlines()
            if "error" in line or "fatal" in line
        ]
        return "; ".join(lines[-4:]) or "no message"

    def until(holds, what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            gone = [d.args[0] for d in daemons if d.poll() is not None]
            if gone or time.monotonic() > end:
                raise CannotStart(f"{what} ({told()})")
            time.sleep(0.2)

    def idle() -> bool:
        words = [programs["sinfo"], "-h", "-o", "%T"]
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
        return done.stdout.strip() == "idle"

    try:
        munge = folder / "munge.socket"
        start(
            "munged",
            "--foreground",
            "--force",
            f"--key-file={folder}/munge.key",
            f"--socket={munge}",
            f"--pid-file={folder}/munged.pid",
            f"--log-file={folder}/munged.log",
            f"--seed-file={folder}/munged.seed",
        )
        until(munge.exists, "munged does not start")
        start("slurmctld", "-D", "-f", str(folder / "slurm.conf"))
        start("slurmd", "-D", "-f", str(folder / "slurm.conf"))
        until(idle, "the node of Slurm does not come up")
        yield env
    finally:
        _end(folder, daemons)
