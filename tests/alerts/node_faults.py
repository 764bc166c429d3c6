"""Faults of processes, machines, clients and certificates: each makes its alerts fire and clear."""

import os
import random

from bench import asking
from nodes import MIB, make_certificate, until
from scraper import REPOSITORY
from secured import LIMITED

# The library through which a program reads another clock.
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"

# Less than the parts of a node need together.
LITTLE_MEMORY = "64MiB"

# Threads that try passwords, some tens of them a second together.
GUESSERS = 8

# Lines of a log without a reader: more than a pipe and the queue hold.
LINES = 20_000


def old_certificate(bench):
    """A node has a certificate that ends within a week."""
    three = bench.nodes[2]
    for days in (7, 365):
        three.stop()
        for end in ("pem", "key"):
            os.remove(os.path.join(bench.folder, "certs", f"n3.{end}"))
        make_certificate(bench.binary, bench.folder, three.name, days)
        three.start()
        if days == 7:
            bench.fires("AnnuletCertificateEnds", three)
    bench.is_whole()
    bench.clears("AnnuletCertificateEnds")


def killed(bench):
    """A node dies, and requests that need it fail."""
    one, _, three = bench.nodes
    three.kill()
    with asking(lambda: one.ask("GET", "/buckets/b/keys/k?pr=3")):
        bench.fires("AnnuletNodeDown", three)
        bench.fires("AnnuletMemberNotReached", one)
        bench.fires("AnnuletErrors", one)
    three.start()
    bench.clears("AnnuletNodeDown", "AnnuletMemberNotReached", "AnnuletErrors")


def paused(bench):
    """A node is paused, as one whose machine swaps: folds wait for it, and more are refused."""
    one, two, _ = bench.nodes
    two.pause()

    def fold():
        one.ask("GET", "/objectstats/types/default/buckets/b")

    with asking(*[fold] * 30):
        bench.fires("AnnuletNodeDown", two)
        bench.fires("AnnuletOverload", one)
    two.resume()
    bench.clears("AnnuletNodeDown", "AnnuletOverload")


def stuck_log(bench):
    """The reader of a node's log takes nothing any more."""
    three = bench.nodes[2]
    three.stop()
    reader, writer = os.pipe()
    # Each unknown variable is a line of the log, and some 8,000 lines wait before one is dropped.
    three.start(stderr=writer, environment={f"ANNULET_NONE_{at}": "1" for at in range(LINES)})
    os.close(writer)
    bench.fires("AnnuletLogLinesDropped", three)
    three.kill()
    os.close(reader)
    three.start()
    bench.clears("AnnuletLogLinesDropped")


def clock_ahead(bench):
    """The clock of a node is an hour ahead."""
    one, _, three = bench.nodes
    three.stop()
    three.start(environment={"LD_PRELOAD": FAKETIME, "FAKETIME": "+1h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"})
    bench.is_whole()
    with asking(lambda: three.ask("PUT", "/buckets/ahead/keys/k", b"value", "text/plain")):
        bench.fires("AnnuletClockAhead", one)
    three.stop()
    three.start()
    bench.clears("AnnuletClockAhead")


def little_memory(bench):
    """A node may use less memory than it needs, and many clients are slow to send their values."""
    three = bench.nodes[2]
    three.stop()
    three.start(memory=LITTLE_MEMORY)
    bench.is_whole()
    put = lambda: three.ask("PUT", "/buckets/b/keys/k", bytes(MIB), "text/plain")
    with three.unfinished_requests(MIB), asking(put):
        bench.fires("AnnuletMemoryRefused", three)
    three.stop()
    three.start()
    bench.clears("AnnuletMemoryRefused")


def many_shards(bench):
    """A node has more shards than its memory is for, and clients fill the memtables of all of them."""
    three = bench.nodes[2]
    three.stop()
    three.lose_data()
    three.start(memory=LITTLE_MEMORY, shards=4)
    bench.is_whole()
    # The metadata of an object stays in memory until its memtable is full.
    metadata = {"X-Riak-Meta-Large": "m" * 30_000}

    def put():
        key = random.randrange(500)
        three.ask("PUT", f"/buckets/b/keys/{key}", b"value", "text/plain", headers=metadata)

    with asking(put, put):
        bench.fires("AnnuletMemoryPressure", three)
    three.stop()
    three.lose_data()
    three.start()
    bench.clears("AnnuletMemoryPressure")


def notified(bench):
    """A node dies, and the receivers of Alertmanager are told once, of the cause and not of its effects."""
    three, notifier = bench.nodes[2], bench.notifier
    notifier.forget()
    three.kill()
    bench.fires("AnnuletNodeDown", three)
    bench.fires("AnnuletMemberNotReached")
    until("a page has come", lambda: notifier.of("AnnuletNodeDown", "firing"))
    path, page = notifier.of("AnnuletNodeDown", "firing")[-1]
    assert (path, page["groupLabels"]) == ("/pages", {"alertname": "AnnuletNodeDown", "job": "annulet"}), page
    firing = [alert["labels"]["instance"] for alert in page["alerts"] if alert["status"] == "firing"]
    assert firing == [three.instance], page
    runbook, anchor = page["commonAnnotations"]["runbook"].split("#")
    with open(os.path.join(REPOSITORY, runbook), encoding="utf-8") as text:
        assert anchor in [line[3:].strip().lower() for line in text if line.startswith("## ")], anchor
    told = notifier.of("AnnuletMemberNotReached", "firing")
    assert not told, f"an alert that follows from a dead node is inhibited: {told}"
    three.start()
    bench.clears("AnnuletNodeDown", "AnnuletMemberNotReached")
    until("the end has come", lambda: notifier.of("AnnuletNodeDown", "resolved"))


def user_limit(bench):
    """A user goes beyond the limit of the user."""
    secured = bench.secured
    with secured.scraped(bench.scraper):
        secured.security("alter-user", LIMITED, "ops_per_s=1")
        until("reads are refused", lambda: secured.read() == 429)
        with asking(secured.read):
            bench.fires("AnnuletUserLimitReached", secured)
        bench.clears("AnnuletUserLimitReached")


def wrong_passwords(bench):
    """Many addresses try passwords, more than the node may hash."""
    with bench.secured.scraped(bench.scraper):
        with asking(*[bench.secured.guess] * GUESSERS):
            bench.fires("AnnuletLoginsPutOff", bench.secured)
        bench.clears("AnnuletLoginsPutOff")



def old_list(bench):
    """The authority of clients makes no new revocation list."""
    secured = bench.secured
    secured.make_list("-crl_lastupdate", "20260101000000Z", "-crl_nextupdate", "20260201000000Z")
    with secured.scraped(bench.scraper):
        bench.fires("AnnuletRevocationListOld", secured)
        secured.make_list("-crldays", "30")
        secured.security("reload")
        bench.clears("AnnuletRevocationListOld")
