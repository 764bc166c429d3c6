"""A real Alertmanager with the project's configuration, and a receiver of its notifications."""

import http.server
import json
import os
import re
import subprocess
import threading

from nodes import free_ports
from scraper import REPOSITORY

CONFIG = os.path.join(REPOSITORY, "deploy", "alertmanager", "alertmanager.yml")


def faster(config, receiver):
    """The configuration with short waits and the address of another receiver; the same otherwise."""
    config = re.sub(r"group_wait: \d+[smh]", "group_wait: 1s", config)
    config = re.sub(r"group_interval: \d+[smh]", "group_interval: 2s", config)
    return config.replace("localhost:9099", receiver)


class Notifier:
    """The process, and the notifications of the receiver, each with its path."""

    def __init__(self, folder):
        self.notifications = []
        self.receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self.receiver.serve_forever, daemon=True).start()
        path = os.path.join(folder, "alertmanager.yml")
        with open(CONFIG, encoding="utf-8") as config, open(path, "w", encoding="utf-8") as out:
            out.write(faster(config.read(), "127.0.0.1:%d" % self.receiver.server_port))
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        command = ["prometheus-alertmanager", f"--config.file={path}", f"--web.listen-address={self.address}"]
        command += ["--cluster.listen-address=", f"--storage.path={os.path.join(folder, 'alertmanager')}"]
        log = open(os.path.join(folder, "alertmanager.log"), "wb")
        self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def _handler(self):
        notifications = self.notifications

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                notifications.append((self.path, json.loads(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        return Handler

    def of(self, alert, status):
        """The notifications of an alert that fires or is resolved."""
        is_it = lambda it: it["groupLabels"].get("alertname") == alert and it["status"] == status
        return [(path, it) for path, it in list(self.notifications) if is_it(it)]

    def forget(self):
        """Forgets the notifications so far."""
        self.notifications.clear()

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.receiver.shutdown()
        self.receiver.server_close()
