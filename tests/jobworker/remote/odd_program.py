"""A program of the worker contract that misbehaves on request; standard library only.

It repeats any other message. Its argument selects the misbehaviour at its start.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

MEGABYTE = 1024 * 1024
HOW = sys.argv[1] if len(sys.argv) > 1 else ""
LIMIT_SECONDS = 1.0 if HOW.startswith(("late:", "short")) else 3.0
RULES = {"rules": [{"name": "any", "limit": LIMIT_SECONDS}]}
HELLO = {"type": "hello", "contract": 1, "version": "odd", "rules": RULES}
OUT = sys.stdout.buffer


def put(line: bytes) -> None:
    OUT.write(line + b"\n")
    OUT.flush()


def put_json(message: object) -> None:
    put(json.dumps(message).encode())


def decided(job: dict, *replies: str) -> dict:
    actions = [{"do": "reply", "messages": list(replies)}] if replies else []
    return {
        "type": "decision",
        "attempt": job["attempt"],
        "outcome": "decided",
        "actions": actions,
        "data": {"seen": text_of(job)},
    }


def text_of(job: dict) -> str:
    return job["events"][0]["message"]["text"]


def misbehave(words: str, job: dict, former: dict) -> None:
    word, _, rest = words.partition(" ")
    answer = decided(job, words)
    if word == "exit":
        print("Traceback: the program's own", file=sys.stderr)
        sys.exit(3)
    elif word == "hang":
        child = subprocess.Popen(["sleep", "1000"])
        Path(rest).write_text(f"{os.getpid()} {child.pid}")
        time.sleep(1000)
    elif word == "garbage":
        put(b"\xff\xfe not JSON")
    elif word == "large":
        put_json({**answer, "data": {"x": "x" * 20 * MEGABYTE}})
    elif word == "half":
        put_json({**answer, "data": {"x": "\ud800"}})
    elif word == "deep":
        put(
            json.dumps({**answer, "data": 0})[:-2].encode() + b"[" * 100_000 + b"]" * 100_000 + b"}"
        )
    elif word == "nested":
        put_json({**answer, "data": nested(int(rest))})
    elif word == "earlier":
        put_json({**decided(job, text_of(former)), "attempt": former["attempt"]})
    elif word == "action":
        put_json({**answer, "actions": [{"do": "sell"}]})
    elif word == "twice":
        put_json(answer)
        put_json(answer)
    elif word == "afterwards":
        Path(rest).write_text(str(os.getpid()))
        put_json(answer)
        sys.exit(0)
    elif word == "slow":
        Path(rest).touch()
        time.sleep(0.5)
        put_json(answer)
    else:
        put_json(answer)


def nested(depth: int) -> dict:
    found: dict = {}
    for _ in range(depth):
        found = {"x": found}
    return found


def start_late(started: Path) -> None:
    """The first one is quick; from then on each says its process id, and takes too long."""
    if started.exists():
        started.write_text(str(os.getpid()))
        time.sleep(LIMIT_SECONDS + 1.5)
    else:
        started.touch()
    put_json(HELLO)


def main(how: str) -> None:
    former: dict = {"attempt": "", "events": [{"message": {"text": "nothing"}}]}
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "job":
            misbehave(text_of(message), message, former)
            former = message
        elif how == "exit":
            sys.exit(3)
        elif how == "contract":
            put_json({**HELLO, "contract": 2})
        elif how.startswith("late:"):
            start_late(Path(how.partition(":")[2]))
        elif how == "versions":
            put_json({**HELLO, "version": str(time.time())})
        else:
            put_json(HELLO)


main(HOW)
