"""Limits on connections, on nodes that are started with low ones."""

import socket
import time

from case import Case, start_server
from wire import error_text

# Bounds what would hang; a node looks at its connections a few times a second.
SECONDS_MAX = 60


class Limits(Case):
    own_nodes = True

    def setUp(self):
        pass

    def eventually(self, what, attempt):
        """Tries until it succeeds: the node learns that a client has gone only some time after."""
        deadline = time.monotonic() + SECONDS_MAX
        while not (result := attempt()):
            self.assertLess(time.monotonic(), deadline, what)
        return result

    def admitted(self):
        """A connection that is served, or None."""
        wire = self.wire()
        try:
            if wire.ping():
                return wire
        except ConnectionError:
            pass
        wire.socket.close()
        return None

    def test_one_connection_too_many_is_told_so(self):
        self.server = start_server(self, "--connections-max", "3")
        held = [self.eventually("no connection is served", self.admitted) for _ in range(3)]
        for _ in range(5):
            extra = self.wire()
            self.assertEqual(error_text(extra.receive()), "too many connections: the limit is 3")
            self.assertIsNone(extra.receive())
        for wire in held:
            self.assertTrue(wire.ping())
        held.pop().socket.close()
        self.eventually("the place of a client that went is not given to another", self.admitted)
        self.assertEqual(self.server.stop(), 0)

    def test_who_says_nothing_is_closed_and_who_speaks_is_not(self):
        self.server = start_server(self, "--idle-timeout", "1s")
        idle, busy = self.wire(), self.wire()
        self.assertTrue(idle.ping())
        idle.socket.settimeout(0.1)

        def is_closed():
            self.assertTrue(busy.ping())
            try:
                return idle.receive() is None
            except socket.timeout:
                return False

        self.eventually("an idle connection is not closed", is_closed)
        self.assertTrue(busy.ping())
        self.assertEqual(self.server.stop(), 0)
