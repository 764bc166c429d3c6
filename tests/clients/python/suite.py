"""Runs the suite against a binary: starts a node, runs every test of this folder, stops the node and judges its end.

    suite.py BINARY [PATTERN...]
"""

import os
import sys
import tempfile
import time
import unittest

import shim  # noqa: F401  (before anything that imports the client)

import case
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


def main(binary, patterns):
    with tempfile.TemporaryDirectory(prefix="annulet-client-") as folder:
        server = Server(binary, folder)
        server.start()
        case.use(binary, server)
        try:
            result = unittest.TextTestRunner(resultclass=Result, verbosity=2, warnings="ignore").run(load(patterns))
            ended_well = server.is_running() and server.stop() == 0
        finally:
            server.kill()
        if not ended_well:
            print(f"the server ended with {server.process.returncode}:\n{server.log()}", file=sys.stderr)
    for seconds, test in sorted(result.slow, reverse=True):
        print(f"{test}: {seconds:.1f} s")
    # A test with several failed parts is one failure, and so is a server that did not end as it should.
    failed = result.testsRun - result.passed - len(result.skipped) + (not ended_well)
    print(f"{result.passed} passed, {failed} failed")
    return 0 if failed == 0 and result.passed > 0 else 1


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
