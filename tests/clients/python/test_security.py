"""Users, grants and TLS: a secured node, as the official client sees it."""

import subprocess

from riak import RiakClient, RiakError
from riak.security import SecurityCreds

from case import start_server
from secured import PASSWORD, Secured
from server import HOST, free_port


class Security(Secured):
    def setUp(self):
        self.https = f"{HOST}:{free_port()}"
        self.server = start_server(self, *self.make_certificates(), "--https-listen", self.https)
        self.make_users(self.security)

    def logged_in(self, *arguments, user="root", node=None):
        """The output of a command of a user."""
        login = {"ANNULET_CA": self.file("ca.pem"), "ANNULET_USER": user}
        login.update(ANNULET_PASSWORD_FILE=self.file("password"), ANNULET_NODE=node or self.https)
        return self.annulet(*arguments, **login)

    def security(self, *words):
        self.annulet("admin", "security", *words, ANNULET_NODE=f"{self.server.host}:{self.server.http_port}")

    def as_user(self, name=None, **credentials):
        """A client that logs in, or without a name one that does not."""
        creds = SecurityCreds(username=name, cacert_file=self.file("ca.pem"), **credentials) if name else None
        client = RiakClient(protocol="pbc", host=self.server.host, pb_port=self.server.pb_port, credentials=creds)
        self.addCleanup(client.close)
        return client

    def test_users_log_in_with_a_password_or_a_certificate_and_have_their_grants(self):
        self.security("enable")
        ann = self.as_user("ann", password=PASSWORD).bucket("b")
        ann.new("k", encoded_data=b"v", content_type="text/plain").store()
        bob = self.as_user("bob", cert_file=self.file("bob.pem"), pkey_file=self.file("bob.key")).bucket("b")
        self.assertEqual(bob.get("k").encoded_data, b"v")
        denied = "Permission denied: User 'ann' does not have 'riak_kv.delete' on default/b"
        self.assert_refused(denied, ann.get("k").delete)

        with self.assertRaises(RiakError):
            self.as_user("ann", password="another").ping()
        with self.assertRaises(RiakError):
            self.as_user("bob", password=PASSWORD).ping()
        self.assert_refused("Security is enabled, please STARTTLS first", self.as_user().bucket("b").get, "k")

    def test_a_client_from_before_goes_by_the_policy(self):
        before = self.as_user().bucket("b")
        before.new("k", encoded_data=b"v", content_type="text/plain").store()
        self.security("permissive")
        self.assertEqual(before.get("k").encoded_data, b"v")
        self.security("enable")
        self.assert_refused("Security is enabled, please STARTTLS first", before.get, "k")

    def test_a_revoke_holds_for_an_open_connection(self):
        self.security("enable")
        bucket = self.as_user("ann", password=PASSWORD).bucket("b")
        bucket.new("k", encoded_data=b"v", content_type="text/plain").store()
        self.logged_in("admin", "security", "revoke", "riak_kv.put", "on", "default", "from", "ann")
        denied = "Permission denied: User 'ann' does not have 'riak_kv.put' on default/b"
        self.assert_refused(denied, bucket.new("k", encoded_data=b"w", content_type="text/plain").store)
        self.assertEqual(bucket.get("k").encoded_data, b"v")

    def test_operators_log_in_by_https_and_objects_are_read_by_the_command_line(self):
        self.security("enable")
        with self.assertRaises(subprocess.CalledProcessError):
            self.security("status")
        self.assertEqual(self.logged_in("admin", "security", "status"), b"Enabled\n")
        with self.assertRaises(subprocess.CalledProcessError):
            self.logged_in("admin", "security", "disable", user="ann")
        bucket = self.as_user("ann", password=PASSWORD).bucket("b")
        bucket.new("k", encoded_data=b"v", content_type="text/plain").store()
        by_pb = f"{HOST}:{self.server.pb_port}"
        self.assertEqual(self.logged_in("kv", "get", "b", "k", user="ann", node=by_pb), b"v")
