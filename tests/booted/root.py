"""The Debian that is booted: made once by debootstrap, wheels beside it, copied for each run."""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
SUITE = "bookworm"
PACKAGES = ("systemd", "systemd-sysv", "dbus", "python3-venv", "libcurl4", "openssl", "iproute2")
PACKAGES += ("nginx-light",)
LOCKS = ("requirements/run.txt", "requirements/amqp.txt", "requirements/build.txt")
TOOLS = ("debootstrap", "systemd-nspawn", "nsenter", "openssl")

# As MongoDB's own package has it; the binary is that of a Python package.
MONGOD_SERVICE = """\
[Unit]
Description=MongoDB Database Server
After=network-online.target
Wants=network-online.target

[Service]
User=mongodb
Group=mongodb
EnvironmentFile=-/etc/default/mongod
Environment="MONGODB_CONFIG_OVERRIDE_NOFORK=1"
ExecStart=/usr/bin/mongod --config /etc/mongod.conf
RuntimeDirectory=mongodb
LimitFSIZE=infinity
LimitCPU=infinity
LimitAS=infinity
LimitNOFILE=64000
LimitNPROC=64000
LimitMEMLOCK=infinity
TasksMax=infinity
TasksAccounting=false

[Install]
WantedBy=multi-user.target
"""


class Missing(Exception):
    """This machine lacks a requirement of a booted one; the text names it."""


def prepare(cache: Path) -> tuple[Path, Path]:
    """The Debian root and the folder of wheels in `cache`, made where they are not there yet."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise Missing(f"{', '.join(missing)}: apt-get install debootstrap systemd-container")
    cache.mkdir(parents=True, exist_ok=True)
    return _root(cache), _wheels(cache)


def checkout(target: Path, *, version: str = "") -> Path:
    """A copy of the project's present state, optionally with another version number."""
    unwanted = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(PROJECT, target, ignore=unwanted)
    if version:
        path = target / "pyproject.toml"
        changed = re.sub(r'(?m)^version = ".*"', f'version = "{version}"', path.read_text())
        path.write_text(changed)
    return target


def copied(root: Path, target: Path) -> Path:
    """A copy of the root for one run, with a user and a unit for mongod and the test's bot."""
    if target.exists():
        shutil.rmtree(target)
    subprocess.run(["cp", "-a", str(root), str(target)], check=True)
    (target / "etc/systemd/system/mongod.service").write_text(MONGOD_SERVICE)
    for name in ("group", "passwd", "shadow"):
        _append(target / "etc" / name, _MONGODB[name])
    for folder in ("var/lib/mongodb", "var/log/mongodb"):
        (target / folder).mkdir()
        shutil.chown(target / folder, 990, 990)
    (target / "opt/linedesk/bot").mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("booted_bot.py"), target / "opt/linedesk/bot")
    return target


_MONGODB = {
    "group": "mongodb:x:990:\n",
    "passwd": "mongodb:x:990:990::/var/lib/mongodb:/usr/sbin/nologin\n",
    "shadow": "mongodb:*:19000::::::\n",
}


def _append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line)


def _root(cache: Path) -> Path:
    root = cache / f"{SUITE}-{_digest(*PACKAGES)}"
    if root.is_dir():
        return root
    # By another name until it is whole.
    half = root.with_suffix(".half")
    if half.exists():
        shutil.rmtree(half)
    print(f"Making a Debian root in {root} (once, three minutes) ...", file=sys.stderr, flush=True)
    include = f"--include={','.join(PACKAGES)}"
    command = ["debootstrap", "--variant=minbase", include, SUITE, str(half)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    half.rename(root)
    return root


def _wheels(cache: Path) -> Path:
    asked = [(PROJECT / name).read_text() for name in LOCKS]
    wheels = cache / f"wheels-{_digest(*asked)}"
    if wheels.is_dir():
        return wheels
    half = wheels.with_suffix(".half")
    if half.exists():
        shutil.rmtree(half)
    print("Fetching wheels (once) ...", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check"]
    command += ["--dest", str(half), "--require-hashes", "--only-binary", ":all:"]
    command += [word for name in LOCKS for word in ("--requirement", name)]
    subprocess.run(command, check=True, cwd=PROJECT)
    half.rename(wheels)
    return wheels


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]
