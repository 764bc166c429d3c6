"""Runs the suite against a binary: starts a node, runs every test of this folder, stops the node and judges its end.
Then starts three nodes and runs those tests once more on one of them that are not about nodes of their own.

    suite.py BINARY [PATTERN...]
"""

import os
import sys
import tempfile
import time
import unittest

import shim  # noqa: F401  (before anything that imports the client)

import case
from cluster import NODES, Cluster
from server import Server


class Result(unittest.TextTestResult):
    """Counts what passed, which unittest does not, and notes what took long."""

    SLOW_SECONDS = 5

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.passed = 0
        self.slow = []

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        seconds = time.monotonic() - self.started
        if seconds > self.SLOW_SECONDS:
            self.slow.append((seconds, test.id()))

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def load(patterns):
    loader = unittest.TestLoader()
    if patterns:
        loader.testNamePatterns = [f"*{pattern}*" for pattern in patterns]
    return loader.discover(os.path.dirname(os.path.abspath(__file__)))


def sharing(suite):
    """Only those tests that use the node which all share."""
    parts = [sharing(part) if isinstance(part, unittest.TestSuite) else part for part in suite]
    return unittest.TestSuite(part for part in parts if not getattr(part, "own_nodes", False))


def run(title, tests, servers):
    """Runs tests, then stops the nodes; how many passed and failed. A node that does not end as it should fails."""
    print(f"=== {title}", file=sys.stderr)
    try:
        result = unittest.TextTestRunner(resultclass=Result, verbosity=2, warnings="ignore").run(tests)
        ended_badly = [server for server in servers if not server.is_running() or server.stop() != 0]
    finally:
        for server in servers:
            server.kill()
    for server in ended_badly:
        print(f"a node ended with {server.process.returncode}:\n{server.log()}", file=sys.stderr)
    for seconds, test in sorted(result.slow, reverse=True):
        print(f"{test}: {seconds:.1f} s")
    # A test with several failed parts is one failure.
    return result.passed, result.testsRun - result.passed - len(result.skipped) + len(ended_badly)


def main(binary, patterns):
    with tempfile.TemporaryDirectory(prefix="annulet-client-") as folder:
        server = Server(binary, folder)
        server.start()
        case.use(binary, server)
        alone = run("a node alone", load(patterns), [server])
    with tempfile.TemporaryDirectory(prefix="annulet-client-") as folder:
        cluster = Cluster(binary, folder)
        try:
            cluster.start()
            cluster.until_whole()
            case.use(binary, cluster[0], nodes=NODES)
            together = run(f"a node of {NODES}", sharing(load(patterns)), cluster.nodes)
        finally:
            cluster.kill()
    passed, failed = (sum(counts) for counts in zip(alone, together))
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
