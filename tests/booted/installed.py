"""Installed from a bare Debian: active, answering, hardened, and without a secret in sight."""

import re
from collections.abc import Iterator

from tests.booted.box import SERVICES, Box
from tests.booted.rounds import check

NOW, NEXT = "/src/now", "/src/next"
NEXT_VERSION = "99.0.0"
OPTIONS = ("--wheels", "/wheels", "--capped-mb", "64")
RUNNING = (*(f"linedesk-{name}.service" for name in SERVICES), "linedesk-frontdesk.socket")
UNITS = (*RUNNING, "linedesk-worker.service", "linedesk-export.service")
UNITS += ("linedesk-export.timer", "linedesk.target")
MOST_EXPOSED = 2.0


def install(box: Box, *more: str, source: str = NOW) -> str:
    """Run install.sh and return its last line."""
    environ = {"LINE_CHANNEL_SECRET": box.sim.secret, "LINE_CHANNEL_ACCESS_TOKEN": box.sim.token}
    command = (f"{source}/deploy/install.sh", *OPTIONS, *more)
    done = box.machine.run(*command, environ=environ, seconds=300)
    with (box.work / "install.txt").open("a") as file:
        file.write(done.stdout + done.stderr)
    for secret in box.secrets:
        assert secret not in done.stdout + done.stderr, "a secret is in its output"
    return done.stdout.strip().splitlines()[-1]


@check("install.sh brings a bare Debian to running services", vital=True)
def installs(box: Box) -> str:
    box.configure()
    box.shorten_watchdogs()
    said = install(box)
    box.machine.systemctl("enable", "--now", "linedesk-console.service")
    box.wait_until_active()
    enabled = box.machine.systemctl("is-enabled", *RUNNING, "linedesk.target").split()
    assert enabled == ["enabled"] * (len(RUNNING) + 1), str(enabled)
    return said


@check("a second install.sh changes nothing")
def installs_again(box: Box) -> str:
    before = [box.pid(name) for name in SERVICES]
    said = install(box)
    assert said == "changed: 0", said
    assert [box.pid(name) for name in SERVICES] == before, "a service was restarted"
    return said


@check("systemd-analyze verify finds nothing")
def verified(box: Box) -> str:
    done = box.machine.run("systemd-analyze", "verify", *UNITS, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "linedesk" not in said, said
    return ", ".join(UNITS)


@check("systemd-analyze security rates each 2.0 or better")
def hardened(box: Box) -> str:
    rated = dict(_ratings(box))
    assert all(rating <= MOST_EXPOSED for rating in rated.values()), str(rated)
    return ", ".join(f"{name} {rating}" for name, rating in rated.items())


def _ratings(box: Box) -> Iterator[tuple[str, float]]:
    for name in (*SERVICES, "export"):
        said = box.machine.run("systemd-analyze", "security", f"linedesk-{name}.service").stdout
        found = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
        assert found, said[-500:]
        yield name, float(found[1])


@check("a message is answered, and a timer rings")
def answers(box: Box) -> str:
    (user,) = box.people(1)
    since = len(box.sim.deliveries)
    taken = box.sim.say(user, "hello-5")
    assert taken.status == 200, str(taken)
    box.judge(since)
    return "; ".join(str(bubble.text) for bubble in box.sim.answers(user))


def console_password(box: Box) -> str:
    """As install.sh has made it."""
    path = box.machine.files / "etc/linedesk/credentials/console/CONSOLE_PASSWORD"
    return path.read_text().strip()


@check("no secret in an environment, in systemctl show, or in the journal")
def keeps_secrets(box: Box) -> str:
    secrets = [*box.secrets, *_passwords(box)]
    shown = box.machine.systemctl("show", "linedesk-*")
    places = {"systemctl show": shown, "the journal": box.machine.journal()}
    for name in SERVICES:
        pid = str(box.pid(name))
        places[f"the environment of {name}"] = box.machine.run("cat", f"/proc/{pid}/environ").stdout
        places[f"the arguments of {name}"] = box.machine.run("cat", f"/proc/{pid}/cmdline").stdout
    for place, text in places.items():
        assert not any(secret in text for secret in secrets), f"a secret is in {place}"
    modes = box.machine.run("stat", "-c", "%a %U", "/etc/linedesk/credentials").stdout.strip()
    assert modes == "700 root", modes
    return f"{len(secrets)} secrets in {len(places)} places not found"


def _passwords(box: Box) -> Iterator[str]:
    folder = box.machine.files / "etc/linedesk/credentials"
    for path in sorted(folder.glob("*/MONGODB_URI")):
        found = re.search(r"://[^:/@]+:([^@]+)@", path.read_text())
        assert found, f"no password in {path.name} of {path.parent.name}"
        yield found[1]
    yield console_password(box)


@check("only its own user, no capability, and nothing but its own folder to write to")
def confined(box: Box) -> str:
    user = box.machine.run("id", "-u", "linedesk").stdout.strip()
    for name in SERVICES:
        status = box.machine.run("cat", f"/proc/{box.pid(name)}/status").stdout
        facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert facts["NoNewPrivs"] == "1", name
        assert facts["Seccomp"] == "2", name
        assert int(facts["CapBnd"], 16) == 0, name
        assert facts["Uid"].split()[0] == user, name
    writable = {name: [each for each in FOLDERS if _writable(box, name, each)] for name in SERVICES}
    assert writable == {
        "frontdesk": ["/var/lib/linedesk", "/var/lib/linedesk/bot"],
        "dispatcher": ["/var/lib/linedesk/bot"],
        "console": [],
    }, str(writable)
    modes = box.machine.run("stat", "-c", "%a %U", "/var/lib/linedesk").stdout.strip()
    assert modes == "700 linedesk", modes
    return f"{writable}"


FOLDERS = ("/etc/linedesk", "/opt/linedesk/bot", "/var/lib/linedesk", "/var/lib/linedesk/bot")


def _writable(box: Box, name: str, folder: str) -> bool:
    """Whether anybody may write there in the service's own view of the disk."""
    inside = ("nsenter", "-t", str(box.pid(name)), "-m", "--")
    tried = box.machine.run(*inside, "findmnt", "-no", "OPTIONS", "-T", folder, check=False)
    return tried.stdout.split(",")[0] == "rw"
