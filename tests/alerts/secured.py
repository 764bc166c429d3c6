"""A node alone with TLS, users and a revocation list: it is scraped by HTTPS, and its scraper logs in."""

import base64
import contextlib
import http.client
import json
import os
import ssl
import subprocess

from nodes import Node, free_ports, until

HOST = "127.0.0.1"
PASSWORD = "a secret of all users"

# The user that scrapes, and the one with a limit.
SCRAPER = "scraper"
LIMITED = "batch"

# Of an authority that makes a list without a record of its certificates.
AUTHORITY = """
[ca]
default_ca = own
[own]
database = {folder}/index
default_md = sha256
crl_extensions = list
[list]
authorityKeyIdentifier = keyid
"""


class Secured(Node):
    """The node. `make_files` comes before its first start."""

    def __init__(self, binary, folder, number):
        self.clients = os.path.join(folder, "clients")
        self.guesses = 0
        pb, http, https = free_ports(3)
        options = ["--https-listen", f"{HOST}:{https}", "--tls-cert", self.file(f"{HOST}.pem")]
        options += ["--tls-key", self.file(f"{HOST}.key"), "--tls-client-ca", self.file("ca.pem")]
        super().__init__(binary, folder, number, (pb, http), [*options, "--tls-client-crl", self.file("ca.crl")])
        self.instance = f"{HOST}:{https}"
        self.make_files()

    def file(self, name):
        return os.path.join(self.clients, name)

    def make_files(self):
        """Makes certificates, a password, and a list that is new for a month."""
        self.annulet("cert", "--dir", self.clients, "--host", HOST)
        for name, text in (("password", PASSWORD), ("index", ""), ("authority", AUTHORITY.format(folder=self.clients))):
            with open(self.file(name), "w", encoding="utf-8") as file:
                file.write(text)
        self.make_list("-crldays", "30")

    def make_list(self, *validity):
        """Has the authority make a list of revoked certificates: none is."""
        command = ["openssl", "ca", "-gencrl", "-config", self.file("authority"), "-cert", self.file("ca.pem")]
        command += ["-keyfile", self.file("ca.key"), "-out", self.file("ca.crl"), *validity]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)

    def annulet(self, *words):
        """A command of the operator."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("ANNULET_")}
        subprocess.run([self.binary, "admin", *words], check=True, env=own, stdout=subprocess.DEVNULL)

    def secure(self):
        """Makes the users, and turns security on, through the local socket."""
        for words in (
            *(("add-user", user, "--new-password-file", self.file("password")) for user in (SCRAPER, LIMITED)),
            ("add-source", "all", f"{HOST}/32", "password"),
            ("grant", "annulet.stats,annulet.admin", "on", "any", "to", SCRAPER),
            ("grant", "riak_kv.get", "on", "any", "to", LIMITED),
            ("enable",),
        ):
            self.security(*words)

    def security(self, *words):
        self.annulet("--data", self.data, "security", *words)

    def read(self):
        """The status of a read of the limited user; 0 if there is none."""
        return self.read_as(LIMITED, PASSWORD, HOST)

    def guess(self):
        """A read by a user that nobody has, each from another address."""
        self.guesses += 1
        high, low = divmod(self.guesses, 250)
        return self.read_as(f"user{self.guesses}", "a wrong password", f"127.1.{high % 250}.{low + 1}")

    def read_as(self, user, password, address):
        """The status of a read by a user from an address; 0 if there is none."""
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        trust = ssl.create_default_context(cafile=self.file("ca.pem"))
        host, port = self.instance.split(":")
        connection = http.client.HTTPSConnection(
            host, int(port), timeout=20, source_address=(address, 0), context=trust
        )
        try:
            connection.request("GET", "/buckets/b/keys/k", headers={"Authorization": f"Basic {login}"})
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def scrape_config(self):
        """The job of Prometheus, without a target yet."""
        self.set_targets([])
        return {
            "job_name": "secured",
            "scheme": "https",
            "basic_auth": {"username": SCRAPER, "password_file": self.file("password")},
            "tls_config": {"ca_file": self.file("ca.pem")},
            "file_sd_configs": [{"files": [self.file("targets.json")], "refresh_interval": "1s"}],
            "relabel_configs": [{"target_label": "job", "replacement": "annulet"}],
        }

    def set_targets(self, targets):
        with open(self.file("targets.json"), "w", encoding="utf-8") as file:
            json.dump([{"targets": targets}], file)

    @contextlib.contextmanager
    def scraped(self, scraper):
        """The node runs and is scraped meanwhile."""
        self.start()
        until("the secured node is ready", self.is_ready)
        self.secure()
        self.set_targets([self.instance])
        up = f'up{{instance="{self.instance}"}}'
        scraper.until("the secured node is scraped", lambda: scraper.query(f"{up} == 1"))
        try:
            yield
        finally:
            # In this order, or it counts as a node that is down.
            self.set_targets([])
            scraper.until("the secured node is scraped no more", lambda: not scraper.query(up))
            self.kill()
            self.lose_data()
