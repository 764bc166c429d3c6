"""A real Prometheus over the nodes of a test, with the project's rules on a faster clock."""

import json
import os
import re
import subprocess
import time
import urllib.parse
import urllib.request

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
RULES = os.path.join(REPOSITORY, "deploy", "prometheus", "rules.yml")
DASHBOARD = os.path.join(REPOSITORY, "deploy", "grafana", "annulet.json")

# The clock of the test: scrapes every half second, and ranges and waits that fit.
SCRAPE = "500ms"
RANGE = "15s"
WAIT = "2s"

# A bound on waiting, far beyond what is usual: it only ends what would hang.
PATIENCE_SECONDS = 60
POLL_SECONDS = 0.2


def faster(rules):
    """The rules with short ranges and waits; the expressions are the same otherwise."""
    rules = re.sub(r"\[\d+[smh]\]", f"[{RANGE}]", rules)
    rules = re.sub(r"for: \d+[smh]", f"for: {WAIT}", rules)
    return re.sub(r"interval: 15s", f"interval: {SCRAPE}", rules)


class Scraper:
    """The process. `jobs` are scraped beside the targets, and alerts go to `receiver`."""

    def __init__(self, folder, port, targets, jobs, receiver):
        self.url = f"http://127.0.0.1:{port}"
        config = {
            "global": {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": SCRAPE},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "annulet", "static_configs": [{"targets": targets}]}, *jobs],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [receiver]}]}]},
        }
        with open(RULES, encoding="utf-8") as rules, open(os.path.join(folder, "rules.yml"), "w") as out:
            out.write(faster(rules.read()))
        # JSON is YAML.
        path = os.path.join(folder, "prometheus.yml")
        with open(path, "w") as out:
            json.dump(config, out)
        log = open(os.path.join(folder, "prometheus.log"), "wb")
        command = ["prometheus", f"--config.file={path}", f"--web.listen-address=127.0.0.1:{port}"]
        command.append(f"--storage.tsdb.path={os.path.join(folder, 'tsdb')}")
        self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def ask(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        """The series that an expression gives."""
        return self.ask("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))["result"]

    def firing(self):
        """Pairs of an alert and its instance that fire; the instance is empty where the alert is of all nodes."""
        alerts = self.ask("/api/v1/alerts")["alerts"]
        fire = (it["labels"] for it in alerts if it["state"] == "firing")
        return {(labels["alertname"], labels.get("instance", "")) for labels in fire}

    def until(self, what, is_so):
        began = time.monotonic()
        while True:
            try:
                if is_so():
                    return time.monotonic() - began
            except OSError:
                pass
            if time.monotonic() - began > PATIENCE_SECONDS:
                raise AssertionError(f"{what}: not within {PATIENCE_SECONDS} s; firing: {sorted(self.firing())}")
            time.sleep(POLL_SECONDS)

    def stop(self):
        self.process.kill()
        self.process.wait()


def dashboard_expressions():
    """The expressions of the dashboard, for the job of this test."""
    with open(DASHBOARD, encoding="utf-8") as file:
        dashboard = json.load(file)
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"].replace("$job", "annulet").replace("[2m]", f"[{RANGE}]")
