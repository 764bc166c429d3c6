"""Three secured nodes under load of two users, one of which loses its grants."""

import os
import threading
import time

from riak import RiakClient, RiakError
from riak.security import SecurityCreds

from case import new, start_cluster
from cluster import PATIENCE_SECONDS, until
from secured import PASSWORD, Secured

# Within this time after its answer a revoke holds for open connections of all nodes.
REVOKED_SECONDS = 1.0

# Requests of each connection before and after the revoke.
REQUESTS = 50


class Load(threading.Thread):
    """One connection of a user to a node, which writes and reads until it is refused or told to end."""

    def __init__(self, user, client):
        super().__init__(daemon=True)
        self.user, self.client = user, client
        self.is_over = threading.Event()
        self.done, self.last_success, self.error = 0, 0.0, None

    def run(self):
        bucket = self.client.bucket("b")
        key = f"{self.user}-{self.ident}"
        try:
            while not self.is_over.is_set():
                new(bucket, key, b"%d" % self.done).store()
                bucket.get(key)
                self.last_success = time.monotonic()
                self.done += 1
        except Exception as error:  # noqa: BLE001  (each is told by the test)
            self.error = error


class SecuredCluster(Secured):
    def setUp(self):
        self.cluster = start_cluster(self, *self.make_certificates())
        self.cluster.until_whole()
        self.make_users(lambda *words: self.security(self.cluster[0], *words))
        self.security(self.cluster[0], "enable")
        for node in self.cluster:
            until(f"security at {node.name}", lambda: self.security(node, "status") == b"Enabled\n")

    def security(self, node, *words):
        """A command by the local socket of a node."""
        return self.annulet("admin", "--data", os.path.join(node.folder, "data"), "security", *words)

    def load(self, user, **credentials):
        """A connection of a user to each node."""
        creds = SecurityCreds(username=user, cacert_file=self.file("ca.pem"), **credentials)
        loads = []
        for node in self.cluster:
            client = RiakClient(protocol="pbc", host=node.host, pb_port=node.pb_port, credentials=creds)
            self.addCleanup(client.close)
            loads.append(Load(user, client))
            loads[-1].start()
        return loads

    def end(self, loads):
        for load in loads:
            load.is_over.set()
            load.join(PATIENCE_SECONDS)
            self.assertFalse(load.is_alive(), f"a connection of {load.user} hangs")

    def test_a_revoke_under_load_holds_at_all_nodes(self):
        ann = self.load("ann", password=PASSWORD)
        bob = self.load("bob", cert_file=self.file("bob.pem"), pkey_file=self.file("bob.key"))
        try:
            until("requests", lambda: all(load.done >= REQUESTS or load.error for load in ann + bob))
            self.assertEqual([load.error for load in ann + bob], [None] * 6)

            self.security(self.cluster[0], "revoke", "riak_kv.get,riak_kv.put", "on", "default", "from", "ann")
            revoked = time.monotonic()
            before = [load.done for load in bob]
            for load in ann:
                load.join(PATIENCE_SECONDS)
            until("requests of bob", lambda: all(load.done >= done + REQUESTS for load, done in zip(bob, before)))
        finally:
            self.end(ann + bob)

        for load in ann:
            self.assertIsInstance(load.error, RiakError)
            self.assertRegex(
                load.error.value, r"^Permission denied: User 'ann' does not have 'riak_kv\.(get|put)' on default/b$"
            )
            self.assertLess(load.last_success - revoked, REVOKED_SECONDS, "the revoke took long")
        self.assertEqual([load.error for load in bob], [None] * 3)
