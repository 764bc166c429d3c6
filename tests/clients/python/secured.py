"""The base of tests of secured nodes: certificates for clients, users with grants, commands of an operator."""

import os
import subprocess
import tempfile

from case import Case, binary
from server import HOST

PASSWORD = "a:secret of ann"


class Secured(Case):
    own_nodes = True

    def make_certificates(self):
        """Makes certificates and a password; the options of a node with them."""
        folder = tempfile.TemporaryDirectory(prefix="annulet-tls-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.annulet("admin", "cert", "--dir", self.folder, "--host", HOST, "--user", "bob")
        with open(self.file("password"), "w", encoding="utf-8") as file:
            file.write(PASSWORD)
        options = ["--tls-cert", self.file(f"{HOST}.pem"), "--tls-key", self.file(f"{HOST}.key")]
        return [*options, "--tls-client-ca", self.file("ca.pem")]

    def make_users(self, security):
        """Makes an administrator, ann with a password and bob with a certificate, by `security` and its words."""
        for words in [
            ["add-user", "root", "--new-password-file", self.file("password")],
            ["add-source", "root", "127.0.0.1/32", "password"],
            ["grant", "annulet.admin", "on", "any", "to", "root"],
            ["add-user", "ann", "--new-password-file", self.file("password")],
            ["add-user", "bob"],
            ["add-source", "ann", "127.0.0.1/32", "password"],
            ["add-source", "bob", "127.0.0.1/32", "certificate"],
            ["grant", "riak_kv.get,riak_kv.put", "on", "default", "to", "ann,bob"],
        ]:
            security(*words)

    def file(self, name):
        return os.path.join(self.folder, name)

    def annulet(self, *arguments, **variables):
        """The output of a command."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ANNULET_")}
        command = [binary(), *arguments]
        return subprocess.run(command, check=True, env={**environment, **variables}, capture_output=True).stdout
