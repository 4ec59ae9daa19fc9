"""`scripts/chaos`: a long chaos run with a progress bar and a closing table."""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.chaos.run import WORKERS, Order, Verdict, run


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
    console = Console()
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
    console.print(f"seed {seed}")
    folder = logs or Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    verdict = _run(order, folder, console)
    _show(verdict, console)
    if verdict.ok and logs is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        console.print(f"logs are in {folder}")
    sys.exit(0 if verdict.ok else 1)


def _run(order: Order, folder: Path, console: Console) -> Verdict:
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting", total=order.seconds)

        def tell(seconds: float, words: str) -> None:
            progress.update(task, completed=seconds, description=words)

        return run(order, folder, tell=tell)


def _show(verdict: Verdict, console: Console) -> None:
    console.print(verdict.report.table())
    console.print(_damage_table(verdict))
    for problem in verdict.problems[:50]:
        console.print(f"PROBLEM {problem}", style="red", highlight=False)
    words = "every promise was kept" if verdict.ok else f"{len(verdict.problems)} problems"
    console.print(f"seed {verdict.order.seed}: {words}", style="green" if verdict.ok else "red")


def _damage_table(verdict: Verdict) -> Table:
    table = Table(title="what was done")
    table.add_column("damage")
    table.add_column("times", justify="right")
    for name, times in sorted(verdict.damages.items()):
        table.add_row(name, str(times))
    table.add_section()
    for name, exits in verdict.exits.items():
        table.add_row(f"{name} ended with", _counted(exits))
    table.add_row("closest turns of the gate", f"{verdict.closest_turns_ms} ms")
    table.add_row("settled in", f"{verdict.settle_seconds:.0f} s")
    return table


def _counted(exits: list[int]) -> str:
    return ", ".join(f"{code} ({times})" for code, times in sorted(Counter(exits).items())) or "-"


if __name__ == "__main__":
    main()
