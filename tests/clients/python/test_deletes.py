"""Deletes and the tombstones they leave."""

from case import Case, unread


class Deletes(Case):
    def test_a_deleted_object_is_gone(self):
        bucket = self.bucket()
        self.store(bucket, "k", b"v").delete()
        got = bucket.get("k")
        self.assertFalse(got.exists)
        self.assertEqual(got.siblings, [])

    def test_a_delete_needs_no_clock(self):
        bucket = self.bucket()
        self.store(bucket, "k", b"v")
        unread(bucket, "k").delete()
        self.assertFalse(bucket.get("k").exists)

    def test_what_is_not_there_can_be_deleted(self):
        bucket = self.bucket()
        unread(bucket, "nothing").delete()
        self.store(bucket, "k", b"v").delete()
        unread(bucket, "k").delete()
        self.assertFalse(bucket.get("k").exists)

    def test_every_quorum_is_met_by_one_node(self):
        bucket = self.bucket()
        for quorum in ("default", "one", "quorum", "all", 1, 2, 3):
            for name in ("rw", "r", "w", "dw", "pr", "pw"):
                with self.subTest(quorum=quorum, name=name):
                    stored = self.store(bucket, "k", b"v")
                    self.client.delete(stored, **{name: quorum})
                    self.assertFalse(bucket.get("k").exists)

    def test_a_tombstone_s_clock_is_told_to_who_asks(self):
        bucket = self.bucket()
        stored = self.store(bucket, "k", b"v")
        before = stored.vclock.encode("binary")
        stored.delete()
        name = bucket.name.encode()
        answer = self.wire().get(name, b"k", deletedvclock=True)
        self.assertEqual(len(answer.content), 0)
        self.assertTrue(answer.vclock)
        self.assertNotEqual(answer.vclock, before)
        silent = self.wire().get(name, b"k")
        self.assertEqual((len(silent.content), silent.HasField("vclock")), (0, False))
        never = self.wire().get(name, b"never", deletedvclock=True)
        self.assertFalse(never.HasField("vclock"))

    def test_a_key_can_be_written_again(self):
        for allow_mult in (False, True):
            with self.subTest(allow_mult=allow_mult):
                bucket = self.bucket(allow_mult=allow_mult)
                self.store(bucket, "k", b"old").delete()
                # A read of a tombstone gives its clock; a write with it covers the tombstone.
                again = bucket.get("k")
                self.assertFalse(again.exists)
                self.assertIsNotNone(again.vclock)
                again.encoded_data = b"new"
                again.content_type = "application/octet-stream"
                again.store()
                self.assertEqual([sibling.exists for sibling in again.siblings], [True])
                self.assertEqual(self.values(bucket, "k"), [b"new"])

    def test_a_blind_write_over_a_tombstone_is_read(self):
        bucket = self.bucket()
        self.store(bucket, "k", b"old").delete()
        self.store(bucket, "k", b"new")
        self.assertEqual(self.values(bucket, "k"), [b"new"])

    def test_blind_writes_over_a_tombstone_are_all_kept(self):
        bucket = self.bucket(allow_mult=True)
        self.store(bucket, "k", b"old").delete()
        for value in (b"a", b"b", b"c"):
            self.store(bucket, "k", value)
        # The first replaces the tombstone, the others are its siblings.
        self.assertEqual(self.values(bucket, "k"), [b"a", b"b", b"c"])
        self.assertTrue(all(sibling.exists for sibling in bucket.get("k").siblings))

    def test_a_blind_write_replaces_tombstones_alone(self):
        bucket = self.bucket(allow_mult=True)
        stale = self.store(bucket, "k", b"old")
        self.store(bucket, "k", b"other")
        bucket.get("k").delete()
        # A delete with a clock from before: two tombstones beside each other.
        stale.delete()
        self.assertFalse(bucket.get("k").exists)
        self.store(bucket, "k", b"new")
        self.assertEqual([sibling.exists for sibling in bucket.get("k").siblings], [True])
        self.assertEqual(self.values(bucket, "k"), [b"new"])

    def test_a_delete_covers_only_what_its_clock_has_seen(self):
        bucket = self.bucket(allow_mult=True)
        seen = self.store(bucket, "k", b"seen")
        self.store(bucket, "k", b"unseen")
        seen.delete()
        got = bucket.get("k")
        self.assertTrue(got.exists)
        self.assertEqual(sorted((s.exists, s.encoded_data) for s in got.siblings), [(False, b""), (True, b"unseen")])
        # The clock of all siblings covers the tombstone, too.
        got.delete()
        self.assertFalse(bucket.get("k").exists)

    def test_a_delete_with_the_clock_of_all_siblings_removes_them(self):
        bucket = self.bucket(allow_mult=True)
        for value in (b"a", b"b", b"c"):
            self.store(bucket, "k", value)
        bucket.get("k").delete()
        got = bucket.get("k")
        self.assertEqual((got.exists, got.siblings), (False, []))

    def test_a_delete_without_a_clock_removes_all_siblings(self):
        bucket = self.bucket(allow_mult=True)
        for value in (b"a", b"b"):
            self.store(bucket, "k", value)
        unread(bucket, "k").delete()
        self.assertFalse(bucket.get("k").exists)
