#!/usr/bin/env python3
"""codemie beside ccusage on one tree: the same days, weeks, months, sessions and windows, with time and memory of each.

npm i --prefix target/peers ccusage@20.0.24
python3 benches/usage.py target/dist/codemie target/peers/node_modules/.bin/ccusage

A tree of Claude session files is made with plain calls alone (no forks, no copies, no revisions: what both count exactly), and a
store with 10,000 sessions for the status line and the commands of every day, `usage --by commit` and the picker among them. Times are the smallest of several runs; memory is the largest resident size.
"""

import fcntl
import json
import os
import pty
import random
import sqlite3
import struct
import subprocess
import sys
import tempfile
import termios
import time
import uuid
from datetime import datetime, timedelta, timezone

CODEMIE, CCUSAGE = (os.path.abspath(path) for path in sys.argv[1:3])
SESSIONS, CALLS = 400, 60
MODELS = ["claude-opus-4-5-20251101", "claude-sonnet-4-5-20250929", "claude-haiku-4-5-20251001"]
NOW = datetime.now(timezone.utc).replace(microsecond=0)


def make_tree(root):
    """Sessions of the last hundred days; the last ones are of the last hours."""
    random.seed(7)
    for number in range(SESSIONS):
        session = str(uuid.UUID(int=random.getrandbits(128), version=4))
        folder = f"{root}/projects/-home-dev-project{number % 7}"
        os.makedirs(folder, exist_ok=True)
        at = NOW - timedelta(hours=6) * (SESSIONS - 1 - number) - timedelta(minutes=CALLS + 1)
        with open(f"{folder}/{session}.jsonl", "w", encoding="utf-8") as out:
            for call in range(CALLS):
                at += timedelta(seconds=random.randint(5, 60))
                tokens = [random.randint(1, 5000) for _ in range(4)]
                out.write(json.dumps({
                    "type": "assistant", "sessionId": session, "uuid": str(uuid.uuid4()), "cwd": f"/home/dev/project{number % 7}",
                    "timestamp": at.strftime("%Y-%m-%dT%H:%M:%S.000Z"), "requestId": f"req_{number}_{call}", "version": "2.1.197",
                    "gitBranch": "main",
                    "message": {"id": f"msg_{number}_{call}", "role": "assistant", "type": "message",
                                "model": MODELS[call % 3], "content": [{"type": "text", "text": "x" * 400}],
                                "usage": {"input_tokens": tokens[0], "output_tokens": tokens[1],
                                          "cache_read_input_tokens": tokens[2], "cache_creation_input_tokens": tokens[3]}},
                }, separators=(",", ":")) + "\n")  # as Claude writes it: ccusage finds lines by their bytes
    return session, f"{folder}/{session}.jsonl"


def fill_store(home, env):
    """10,000 ended sessions with 20 calls each, and a chain of three that runs now."""
    subprocess.run([CODEMIE, "run", "--", "true"], env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    store = sqlite3.connect(f"{home}/codemie.db")
    columns = [row[1] for row in store.execute("PRAGMA table_info(session)")]
    row = dict(zip(columns, store.execute("SELECT * FROM session").fetchone()))
    base = int(NOW.timestamp() * 1000)
    for number in range(10_000):
        session = str(uuid.uuid4())
        age = (10_000 - number) * 300_000
        row.update(n=number + 10, id=session, name=f"s{number}", name_base=f"s{number}", agent="claude", local_only=0,
                   agent_session=f"conversation-{number}", started_at=base - age, run=None)
        store.execute(f"INSERT INTO session ({','.join(row)}) VALUES ({','.join('?' * len(row))})", list(row.values()))
        before = last if number >= 9_998 else None
        store.execute("INSERT INTO opening (session, number, reason, opened_at, transitioned_from) VALUES (?, 1, 'clear', ?, ?)",
                      (number + 10, base - age, before))
        last = session
        # A commit every third session.
        calls = [("claude", "usage", f"m-{number}-{call}", number + 10, base - age + call, "claude-opus-4-5", 10, 20, 30, 0, 0, 0,
                  5_000_000_000, "main", f"{number // 3:040x}") for call in range(20)]
        store.executemany("INSERT INTO record (agent, kind, key, session, at, model, input, output, cache_read, cache_write_5m,"
                          " cache_write_1h, reasoning, cost, branch, head) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", calls)
        store.execute("INSERT INTO total VALUES (?, 20, 200, 400, 600, 0, 0, ?, 0, 0, 0, 0, 0, 0, 0)",
                      (number + 10, 20 * 5_000_000_000))
    store.commit()


def measured(command, env, text="", runs=5):
    """Output of the last run, the shortest time in milliseconds, the largest memory in MiB."""
    best, memory, output = float("inf"), 0, ""
    for _ in range(runs):
        begin = time.perf_counter()
        done = subprocess.run(["/usr/bin/time", "-f", "%M", *command], env=env, input=text, capture_output=True, text=True, check=False)
        best = min(best, (time.perf_counter() - begin) * 1000)
        memory = max(memory, int(done.stderr.strip().splitlines()[-1]) / 1024)
        output = done.stdout
    return output, best, memory


def counts(row):
    return tuple(row[name] for name in ("inputTokens", "outputTokens"))


def main():
    with tempfile.TemporaryDirectory() as folder:
        session, transcript = make_tree(f"{folder}/claude")
        env = dict(os.environ, CLAUDE_CONFIG_DIR=f"{folder}/claude", CODEMIE_HOME=f"{folder}/home", HOME=folder, TZ="UTC",
                   CODEX_HOME=f"{folder}/none", GEMINI_CLI_HOME=f"{folder}/none")
        print(f"{'':10} {'codemie':>18} {'ccusage':>18}  same rows and tokens")
        for by, ours, theirs, name in [("day", "day", "daily", "daily"), ("week", "week", "weekly", "weekly"),
                                       ("month", "month", "monthly", "monthly"), ("session", "session", "session", "session"),
                                       ("5 hours", None, "blocks", "blocks")]:
            command = [CODEMIE, "limits", "--all", "--json"] if ours is None else [CODEMIE, "usage", "--scan", "--by", ours, "--json"]
            own, own_ms, own_mib = measured(command, env)
            other, other_ms, other_mib = measured(
                [CCUSAGE, "claude", theirs, "--offline", "--json", *(["--start-of-week", "monday"] if theirs == "weekly" else [])] if name != "blocks" else [CCUSAGE, "blocks", "--offline", "--json"],
                env, runs=2)
            print(f"{by:10} {own_ms:8.0f} ms {own_mib:3.0f} MiB {other_ms:8.0f} ms {other_mib:3.0f} MiB  {same(name, own, other)}")
        fill_store(f"{folder}/home", env)
        for status, title in [({"session_id": "conversation-9999"}, "status")]:
            status.update(transcript_path=transcript, model={"id": MODELS[0], "display_name": "Opus"},
                          workspace={"current_dir": "/home/dev", "project_dir": "/home/dev"}, cost={"total_cost_usd": 0.1}, cwd="/home/dev",
                          context_window={"used_percentage": 12, "total_input_tokens": 24000, "context_window_size": 200000}, version="2.1.197", hook_event_name="Status")
            own, own_ms, own_mib = measured([CODEMIE, "statusline"], env, json.dumps(status), runs=30)
            status["session_id"] = session
            other, other_ms, other_mib = measured([CCUSAGE, "statusline", "--offline", "--no-cache"], env, json.dumps(status), runs=3)
            print(f"{title:10} {own_ms:7.1f} ms {own_mib:3.0f} MiB {other_ms:8.0f} ms {other_mib:3.0f} MiB\n  {own.strip()}\n  {other.strip()}")
        daily(env)


def daily(env):
    """Commands of every day in that store, and the picker until it shows the newest session."""
    for command in (["list"], ["list", "--json"], ["show", "s9999"], ["usage", "--by", "commit"], ["usage", "--by", "month"], ["limits"],
                    ["budget", "show"]):
        output, ms, mib = measured([CODEMIE, *command], env)
        print(f"{' '.join(command):18} {ms:7.1f} ms {mib:3.0f} MiB, {len(output.splitlines())} lines")
    print(f"{'resume (picker)':18} {min(painted('s9999', env) for _ in range(5)):7.1f} ms to its first list")


def painted(text, env):
    """Milliseconds until `codemie resume` on a terminal shows this."""
    begin = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(CODEMIE, [CODEMIE, "resume"], dict(env, TERM="xterm-256color"))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    shown = b""
    while text.encode() not in shown:
        piece = os.read(terminal, 65536)
        assert piece, shown
        shown += piece
    elapsed = (time.perf_counter() - begin) * 1000
    os.write(terminal, b"\x1b")
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass  # its end: the terminal has no other side any more
    os.waitpid(pid, 0)
    os.close(terminal)
    return elapsed


def same(name, own, other):
    try:
        own, other = json.loads(own), json.loads(other)
    except ValueError:
        return "no JSON"
    if name == "blocks":
        mine = {row["begin"] // 1000: row["tokens"] for row in own if row["window"] == "5h" and row["model"] is None}
        theirs = {}
        for block in other["blocks"]:
            if not block.get("isGap"):
                begin = datetime.fromisoformat(block["startTime"].replace("Z", "+00:00")).timestamp()
                theirs[int(begin)] = block["totalTokens"]
        return f"{mine == theirs} ({len(mine)} and {len(theirs)})"
    key = {"daily": "date", "weekly": "week", "monthly": "month", "session": "sessionId"}[name]
    rows = other.get(name) or other.get("sessions") or other.get("data") or []
    mine = sorted(counts(row) for row in own["rows"])
    theirs = sorted(counts(row) for row in rows)
    mine_total, theirs_total = own["total"]["costUsd"], (other.get("totals") or {}).get("totalCost", 0)
    keys = sorted(str(row["key"]) for row in own["rows"])[-1:] + sorted(str(row.get(key) or row.get("period")) for row in rows)[-1:]
    return f"{mine == theirs} ({len(mine)} and {len(theirs)}), {keys}, ${mine_total:.4f} and ${theirs_total:.4f}"


main()
