"""Faults under consistent groups: each makes its alerts fire and clear."""

import os
import threading
import time

from bench import asking
from disk_faults import flip
from nodes import MIB, until
from scraper import RANGE

# Groups have leaders.
LED = 'sum(annulet_consistent_groups{state="led"}) > 0'

# The room on a disk that replaces another: less than the values of the groups.
REPLACED = 40 * MIB

# Length of a pause: a death is noticed in 1.5 s, and elections follow by rank.
PAUSE_SECONDS = 5

# More than a promise lasts, and less than a death takes to be noticed.
LATE_SECONDS = 1.1

# A third of the keys has its leader at the first node, and a read of them takes a second there.
READERS_PER_KEY = 3


def consistent_reads(node):
    """Reads of a consistent type, which is made if it is missing."""
    props = b'{"props":{"consistent":true,"n_val":3}}'
    node.ask("PUT", "/admin/bucket-types/accounts", props)
    is_active = (200, 204, 409)
    until("the type is active", lambda: node.ask("POST", "/admin/bucket-types/accounts/activate")[0] in is_active)
    return [lambda key=key: node.ask("GET", f"/types/accounts/buckets/b/keys/{key}") for key in range(40)]


def no_majority(bench):
    """Two of three nodes die; requests on a consistent type wait for a leader."""
    one, two, three = bench.nodes
    with asking(*consistent_reads(one)):
        bench.scraper.until("groups have leaders", lambda: bench.scraper.query(LED))
        two.kill()
        three.kill()
        bench.fires("AnnuletNoMajority", one)
        bench.fires("AnnuletNotReady", one)
        bench.fires("AnnuletGroupsWithoutLeader", one)
        bench.fires("AnnuletSlow")
        two.start()
        three.start()
        bench.clears("AnnuletNoMajority", "AnnuletNotReady", "AnnuletGroupsWithoutLeader", "AnnuletSlow")


def elections(bench):
    """Nodes are paused in turn, so groups change their leaders."""
    with asking(*consistent_reads(bench.nodes[0])):
        # The first leaders of new groups are no changes.
        bench.scraper.until("groups have leaders", lambda: bench.scraper.query(LED))
        elected = f"sum(increase(annulet_consistent_elections_total[{RANGE}])) > 0"
        bench.scraper.until("no more elections", lambda: not bench.scraper.query(elected))
        bench.clears("AnnuletManyElections")
        over = threading.Event()

        def pause_in_turn():
            while not over.is_set():
                for node in bench.nodes:
                    node.pause()
                    time.sleep(PAUSE_SECONDS)
                    node.resume()
                    time.sleep(2)

        thread = threading.Thread(target=pause_in_turn)
        thread.start()
        try:
            bench.fires("AnnuletManyElections")
        finally:
            over.set()
            thread.join()
    bench.clears("AnnuletManyElections")


def slow_link(bench):
    """Messages of the others come late at the first node: promises to it end before they arrive."""
    one = bench.nodes[0]
    by_lease = f'annulet_consistent_lease_reads_total{{instance="{one.instance}"}} > 0'
    with asking(*consistent_reads(one) * READERS_PER_KEY):
        bench.scraper.until("the node reads by leases", lambda: bench.scraper.query(by_lease))
        bench.slow_link.delay = LATE_SECONDS
        try:
            bench.fires("AnnuletLeasesDoNotHold", one)
        finally:
            bench.slow_link.delay = 0.0
        bench.clears("AnnuletLeasesDoNotHold")


def damaged_group(bench):
    """A byte of an entry flips at one voter, and another voter is away: no leader brings the entry back."""
    one, two, three = bench.nodes
    reads = consistent_reads(one)
    for read in reads:
        read()
    for key in range(40):
        until("a write is taken", lambda key=key: write(one, f"k{key}", b"entry-" * 100) == 204)
    for node in bench.nodes:
        node.kill()
    assert flip(one.data, b"entry-"), "an entry is on the disk"
    one.start()
    two.start()
    bench.fires("AnnuletGroupsDamaged", one)
    three.start()
    bench.clears("AnnuletGroupsDamaged")


def blocked_refill(bench):
    """A disk is replaced by one with too little room: catch-ups do not end."""
    one, _, three = bench.nodes
    consistent_reads(one)
    for key in range(40):
        until("a write is taken", lambda key=key: write(one, f"large{key}", os.urandom(MIB)) == 204)
    three.stop()
    three.lose_data()
    with three.full_disk(free=REPLACED):
        three.start()
        bench.fires("AnnuletGroupsNotRefilled", three)
    bench.clears("AnnuletGroupsNotRefilled")


def write(node, key, value):
    return node.ask("PUT", f"/types/accounts/buckets/b/keys/{key}", value, "text/plain")[0]
