"""Faults of disks: each makes its alerts fire and clear."""

import os

from nodes import until


def full_disk(bench):
    """The disk fills up, by a file of another program."""
    one = bench.nodes[0]
    with one.full_disk():
        bench.fires("AnnuletDiskFillsUp", one)
        bench.fires("AnnuletStoreRefusesWrites", one)
    bench.clears("AnnuletDiskFillsUp", "AnnuletStoreRefusesWrites")


def refused_hints(bench):
    """A node with a full disk comes back: it takes none of the writes that others keep for it."""
    one, _, three = bench.nodes
    three.kill()
    until("the death is noticed", lambda: one.stats()["cluster_members_reached"] == 2)
    for key in range(20):
        assert one.ask("PUT", f"/buckets/hinted/keys/{key}", b"value", "text/plain")[0] == 204
    with three.full_disk():
        three.start()
        bench.fires("AnnuletHintsStuck")
    bench.clears("AnnuletHintsStuck")


def flipped_byte(bench):
    """A byte of a stored value flips. Other replicas heal it, unless there are none."""
    one = bench.nodes[0]
    for bucket, n_val in (("single", 1), ("triple", 3)):
        props = b'{"props":{"n_val":%d}}' % n_val
        assert one.ask("PUT", f"/buckets/{bucket}/props", props)[0] == 204
        for key in range(30):
            value = f"{bucket}-{key:04}-".encode() * 100
            one.ask("PUT", f"/buckets/{bucket}/keys/{key}", value, "text/plain")
    # The scrub leaves out the segment that is written, and those whose records are not all in tables: a start begins
    # another one, and a stop moves all records into tables.
    for _ in range(2):
        one.stop()
        one.start()
        bench.is_whole()
        one.ask("PUT", "/buckets/triple/keys/last", b"last", "text/plain")
    assert flip(one.data, b"triple-"), "a value of the bucket is on the disk"
    bench.fires("AnnuletDamage", one)
    flip(one.data, b"single-")
    bench.fires("AnnuletNotHealed", one)
    for bucket in ("single", "triple"):
        for key in range(30):
            one.ask("PUT", f"/buckets/{bucket}/keys/{key}", b"new", "text/plain")
    until("the damage is compacted", lambda: one.ask("POST", "/admin/compact", b"{}")[0] // 100 == 2)
    bench.clears("AnnuletDamage", "AnnuletNotHealed")


def failed_write(bench):
    """A write of a disk fails: hints for a node that is away are lost, and hash trees wait."""
    one, _, three = bench.nodes
    three.pause()
    for key in range(20):
        assert one.ask("PUT", f"/buckets/lost/keys/{key}", b"value", "text/plain")[0] == 204
    one.fail_writes()
    bench.fires("AnnuletHintsLost", one)
    # Trees are made of records that are on the disk, and the last ones never come there.
    answer = one.ask("POST", "/admin/aae/rebuild", b"{}")
    assert answer[0] == 202, answer
    bench.fires("AnnuletAntiEntropyLags", one)
    three.resume()
    one.kill()
    one.start()
    bench.clears("AnnuletHintsLost", "AnnuletAntiEntropyLags")


def flip(folder, text):
    """Flips a byte of the first file with this text."""
    for place, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(place, name)
            if not os.path.isfile(path):
                continue
            with open(path, "rb") as file:
                at = file.read().find(text)
            if at >= 0:
                with open(path, "r+b") as file:
                    file.seek(at + 2)
                    file.write(b"\xff")
                return True
    return False
