"""Real faults, and the alerts that they must fire: see README.md."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

import disk_faults
import group_faults
import node_faults
from bench import Bench
from scraper import RULES, dashboard_expressions

FAULTS = [
    node_faults.old_certificate,
    node_faults.old_list,
    node_faults.user_limit,
    node_faults.wrong_passwords,
    node_faults.killed,
    node_faults.notified,
    node_faults.paused,
    node_faults.stuck_log,
    node_faults.clock_ahead,
    node_faults.little_memory,
    node_faults.many_shards,
    disk_faults.full_disk,
    disk_faults.refused_hints,
    disk_faults.failed_write,
    disk_faults.flipped_byte,
    group_faults.no_majority,
    group_faults.elections,
    group_faults.slow_link,
    group_faults.damaged_group,
    group_faults.blocked_refill,
]


def check_expressions(bench):
    """Each expression of the dashboard gives data."""
    empty = [expression for expression in dashboard_expressions() if not bench.scraper.query(expression)]
    assert not empty, f"no data: {empty}"
    print(f"  {len(list(dashboard_expressions()))} expressions of the dashboard give data")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--only", action="append", choices=[fault.__name__ for fault in FAULTS])
    args = parser.parse_args()
    folder = tempfile.mkdtemp()
    bench = None
    try:
        bench = Bench(os.path.abspath(args.binary), folder)
        for fault in FAULTS:
            if args.only and fault.__name__ not in args.only:
                continue
            print(f"{fault.__name__}: {fault.__doc__}", flush=True)
            fault(bench)
            bench.is_whole()
        if not args.only:
            print("check_expressions")
            check_expressions(bench)
            with open(RULES, encoding="utf-8") as rules:
                missing = set(re.findall(r"alert: (\w+)", rules.read())) - bench.fired
            assert not missing, f"never fired: {sorted(missing)}"
        print(f"{len(bench.fired)} alerts fired and cleared")
    except AssertionError as error:
        for node in bench.nodes if bench else ():
            print(f"last lines of the log of {node.name}:", *node.last_lines(), sep="\n  ")
        sys.exit(f"FAILED: {error}")
    finally:
        if bench:
            bench.stop()
        for node in bench.nodes if bench else ():
            subprocess.run(["umount", node.data], check=False)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
