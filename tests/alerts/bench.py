"""The bench of the tests: nodes, Prometheus, Alertmanager, and the alerts that were seen to fire."""

import contextlib
import threading
import time

from nodes import found, free_ports, until
from notifier import Notifier
from scraper import Scraper
from secured import Secured


class Bench:
    """The nodes, the scraper, and the alerts that were seen to fire."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.nodes, self.slow_link = found(binary, folder)
        self.secured = Secured(binary, folder, len(self.nodes) + 1)
        self.notifier = Notifier(folder)
        targets, jobs = [node.instance for node in self.nodes], [self.secured.scrape_config()]
        self.scraper = Scraper(folder, free_ports(1)[0], targets, jobs, self.notifier.address)
        self.fired = set()
        self.scraper.until("Prometheus scrapes all", lambda: len(self.scraper.query("up == 1")) == len(self.nodes))

    def fires(self, alert, node=None):
        """Waits until an alert fires, at one node or any."""
        took = self.scraper.until(f"{alert} fires", lambda: self._fires(alert, node))
        self.fired.add(alert)
        print(f"  {alert} fires after {took:.1f} s", flush=True)

    def clears(self, *alerts):
        for alert in alerts:
            took = self.scraper.until(f"{alert} clears", lambda alert=alert: not self._fires(alert, None))
            print(f"  {alert} clears after {took:.1f} s", flush=True)

    def _fires(self, alert, node):
        instances = [instance for name, instance in self.scraper.firing() if name == alert]
        return bool(instances) if node is None else node.instance in instances

    def is_whole(self):
        until("all are ready", lambda: all(node.is_ready() for node in self.nodes))
        reached = "sum(annulet_cluster_members_reached) == 9"
        self.scraper.until("all reach all", lambda: self.scraper.query(reached))

    def stop(self):
        self.scraper.stop()
        self.notifier.stop()
        self.secured.kill()
        for node in self.nodes:
            with contextlib.suppress(ProcessLookupError):
                node.resume()
            node.kill()
        self.slow_link.stop()


@contextlib.contextmanager
def asking(*requests):
    """Makes requests, each in a thread of its own, over and over."""
    over = threading.Event()

    def ask(request):
        while not over.is_set():
            request()
            time.sleep(0.01)

    threads = [threading.Thread(target=ask, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
