"""What is wrong with a Docker daemon, in the words of every message about it."""

from __future__ import annotations

START = "`systemctl start docker`, or `dockerd` as root where there is no systemd"

RESTART_PANTSD = "`kill $(cat .pids/*/pantsd/pid)`"
"""What ends the Pants daemon of a checkout."""

FULL_DISK = (
    "The disk of the Docker daemon is full. `./pants cuda-doctor` shows what builds have left on it, "
    "and what removes it."
)


def no_daemon(fault: str, where: str, detail: str) -> str:
    """Why a Docker daemon does not answer, and what to do.

    `fault` is `absent`, `stopped`, `refused`, `remote` or anything else; `where` the socket or the
    address that was asked, which may be empty; `detail` what was said there.
    """
    if fault == "absent":
        return (
            f"No Docker daemon listens at {where}. Install Docker (`apt-get install docker.io`) and "
            f"start it ({START}). If it listens elsewhere, name its socket: "
            "`export DOCKER_HOST=unix:///path/to/docker.sock`."
        )
    if fault == "stopped":
        return f"The Docker daemon is stopped: nobody listens at its socket, {where}. Start it: {START}."
    if fault == "refused":
        return (
            f"You may not use the Docker daemon's socket, {where}: {detail}. Join its group "
            "(`sudo usermod -aG docker $USER`), log in again, and end Pants' daemon, which has the "
            f"rights of your old login: {RESTART_PANTSD}."
        )
    if fault == "remote":
        return (
            f"{detail}, but Pants 2.17 talks to Docker through Unix sockets only, and mounts its "
            "sandboxes in the containers, so the daemon must be on this machine. Unset DOCKER_HOST, "
            "or let it name a socket: `unix:///path/to/docker.sock`."
        )
    at = f" at {where}" if where else ""
    return (
        f"The Docker daemon could not be asked{at}: {detail}. Try `docker version` there; the "
        "daemon's log (`journalctl -u docker`) says more."
    )
