"""`scripts/chaos`: a long chaos run, a line for each damage, and the verdict."""

import secrets
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import click

from tests.chaos.run import WORKERS, Order, run


@click.command()
@click.option("--minutes", type=click.FloatRange(0.5, 24 * 60), default=1.5, show_default=True)
@click.option("--seed", type=click.IntRange(0), help="Of a former run; any unless set.")
@click.option("--rate", type=click.FloatRange(1, 500), default=25.0, show_default=True)
@click.option("--users", type=click.IntRange(1, 5_000), default=24, show_default=True)
@click.option("--nodes", type=click.Choice(["1", "3"]), default="3", show_default=True)
@click.option("--workers", type=click.Choice(["local", "amqp"]), default="local", show_default=True)
@click.option(
    "--step-downs", type=click.IntRange(0), default=0, help="Only these, forced; no process ends."
)
@click.option("--logs", type=click.Path(path_type=Path), help="Keep all logs in this new folder.")
def main(
    minutes: float,
    seed: int | None,
    rate: float,
    users: int,
    nodes: str,
    workers: str,
    step_downs: int,
    logs: Path | None,
) -> None:
    """Kill, freeze and disconnect every part under load, and judge the answers to the users."""
    seed = secrets.randbelow(2**31) if seed is None else seed
    order = Order(
        seed=seed,
        seconds=minutes * 60,
        nodes=int(nodes),
        users=users,
        rate=rate,
        workers=WORKERS if workers == "amqp" else 0,
        step_downs=step_downs,
    )
    folder = logs or Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    verdict = run(order, folder, tell=lambda at, words: print(f"{at:7.1f} s  {words}", flush=True))
    for name, found in verdict.report.as_document().items():
        print(f"{name}: {len(found) if isinstance(found, list | tuple) else found}")
    for name, times in sorted(verdict.damages.items()):
        print(f"{times:4}  {name}")
    for name, exits in verdict.exits.items():
        print(f"{name} ended with {dict(Counter(exits))}")
    print(f"closest turns {verdict.closest_turns_ms} ms; settled in {verdict.settle_seconds:.0f} s")
    for problem in verdict.problems[:50]:
        print(f"PROBLEM {problem}")
    words = "every promise was kept" if verdict.ok else f"{len(verdict.problems)} problems"
    print(f"seed {seed}: {words}")
    if verdict.ok and logs is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"logs are in {folder}")
    sys.exit(0 if verdict.ok else 1)


if __name__ == "__main__":
    main()
