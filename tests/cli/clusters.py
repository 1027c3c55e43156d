"""Clusters of one machine, for as long as a test needs them: Slurm from Debian's packages, Ray with two nodes."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

SLURM = ("munged", "slurmctld", "slurmd", "sbatch")
CONF = """ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmdPort={node}
AuthInfo=socket={folder}/munge/socket
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES State=UP
"""


def no_slurm():
    """Why Slurm cannot be started here, None where it can."""
    missing = [name for name in SLURM if _program(name) is None]
    if missing:
        return f"{', '.join(missing)}: not installed (Debian's slurm-wlm and munge)"
    return None if os.geteuid() == 0 else "Slurm's daemons are started by root"


def _program(name):
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


@contextlib.contextmanager
def slurm(folder):
    """A Slurm of one node; the variables by which its commands find it."""
    (folder / "munge").mkdir(parents=True, mode=0o711)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    control, node = _free_ports(2)
    host = socket.gethostname().split(".")[0]
    (folder / "slurm.conf").write_text(CONF.format(host=host, control=control, node=node, folder=folder))
    env = {"SLURM_CONF": str(folder / "slurm.conf")}
    munge = {name: f"{folder}/munge/{name}" for name in ("socket", "pid-file", "log-file", "seed-file")}
    started = []
    try:
        for command in (
            ["munged", "--force", "--foreground", f"--key-file={key}", *(f"--{k}={v}" for k, v in munge.items())],
            ["slurmctld", "-D"],
            ["slurmd", "-D", "-N", host],
        ):
            program = [_program(command[0]), *command[1:]]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            started.append(subprocess.Popen(program, env={**os.environ, **env}, **quiet))
            time.sleep(1)
        _wait_until(lambda: "idle" in _said(["sinfo", "-h", "-o", "%T"], env), "Slurm's node is not idle")
        yield env
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _said(command, env):
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False).stdout


def _wait_until(holds, what, seconds=60):
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.5)


@contextlib.contextmanager
def ray_of_two_nodes(folder):
    """Ray with two nodes of one core, the second with a `second` that the first lacks; the variables to reach it."""
    from ray.cluster_utils import Cluster

    Path(folder).mkdir()
    with contextlib.chdir(folder):  # where its workers stand
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            cluster.add_node(num_cpus=1, resources={"second": 1})
            cluster.wait_for_nodes()
            yield {"RAY_ADDRESS": cluster.address}
        finally:
            cluster.shutdown()
