"""Concurrent writes: what makes siblings, what resolves them, and what must not make any."""

from riak import ConflictError, RiakError
from riak.resolver import last_written_resolver

from case import Case, new, unread

SIBLINGS_MAX = 100


class Siblings(Case):
    def setUp(self):
        super().setUp()
        self.multi = self.bucket(allow_mult=True)

    def at(self, value, read):
        """Writes `value` with what `read` has seen, as a client that keeps nothing else would."""
        put = new(self.multi, read.key, value)
        put.vclock = read.vclock
        return put.store()

    def test_blind_writes_are_siblings(self):
        for count in range(1, 6):
            self.store(self.multi, "k", f"v{count}".encode())
            self.assertEqual(self.values(self.multi, "k"), [f"v{i}".encode() for i in range(1, count + 1)])

    def test_equal_values_are_siblings_too(self):
        self.store(self.multi, "k", b"same")
        self.store(self.multi, "k", b"same")
        self.assertEqual(self.values(self.multi, "k"), [b"same", b"same"])

    def test_siblings_are_returned_by_the_write_that_makes_them(self):
        self.store(self.multi, "k", b"a")
        returned = self.store(self.multi, "k", b"b")
        self.assertEqual(sorted(s.encoded_data for s in returned.siblings), [b"a", b"b"])
        got = self.multi.get("k")
        self.assertEqual(returned.vclock.encode("binary"), got.vclock.encode("binary"))

    def test_each_sibling_has_its_own_metadata(self):
        for i in range(3):
            one = new(self.multi, "k", str(i).encode(), content_type=f"text/x-{i}")
            one.usermeta = {"i": str(i)}
            one.add_index("i_int", i)
            one.add_link(("b", str(i), "t"))
            one.store()
        got = self.multi.get("k")
        for sibling in got.siblings:
            i = sibling.encoded_data.decode()
            self.assertEqual(sibling.content_type, f"text/x-{i}")
            self.assertEqual((sibling.usermeta, sibling.indexes), ({"i": i}, {("i_int", int(i))}))
            self.assertEqual(sibling.links, [("b", i, "t")])
        self.assertEqual(len({sibling.etag for sibling in got.siblings}), 3)

    def test_a_head_shows_all_siblings_without_values(self):
        for i in range(3):
            new(self.multi, "k", b"v" * 1000, content_type=f"text/x-{i}").store()
        got = self.multi.get("k", head_only=True)
        self.assertEqual([sibling.encoded_data for sibling in got.siblings], [b""] * 3)
        self.assertEqual(sorted(s.content_type for s in got.siblings), [f"text/x-{i}" for i in range(3)])

    def test_an_object_in_conflict_cannot_be_used_before_it_is_resolved(self):
        for value in (b"a", b"b"):
            self.store(self.multi, "k", value)
        got = self.multi.get("k")
        with self.assertRaises(ConflictError):
            got.encoded_data
        with self.assertRaises(ConflictError):
            got.store()

    def test_writes_from_the_same_read_are_siblings(self):
        read = self.store(self.multi, "k", b"base")
        self.at(b"left", read)
        self.at(b"right", read)
        self.assertEqual(self.values(self.multi, "k"), [b"left", b"right"])

    def test_a_stale_write_drops_only_what_it_has_seen(self):
        base = self.store(self.multi, "k", b"base")
        left = self.at(b"left 1", base)
        self.at(b"right", base)
        # `left` was read before `right` was written: it covers itself, and nothing of the other.
        self.at(b"left 2", left)
        self.assertEqual(self.values(self.multi, "k"), [b"left 2", b"right"])

    def test_the_merged_clock_resolves(self):
        for value in (b"a", b"b", b"c"):
            self.store(self.multi, "k", value)
        got = self.multi.get("k")
        got.siblings = [sibling for sibling in got.siblings if sibling.encoded_data == b"b"]
        got.encoded_data = b"b and more"
        got.store()
        self.assertEqual([sibling.encoded_data for sibling in got.siblings], [b"b and more"])
        self.assertEqual(self.values(self.multi, "k"), [b"b and more"])

    def test_a_resolver_resolves_on_read_and_its_result_can_be_stored(self):
        def union(conflict):
            merged = sorted({item for sibling in conflict.siblings for item in sibling.data})
            conflict.siblings = [conflict.siblings[0]]
            conflict.data = merged

        for item in ("a", "b", "c"):
            self.multi.new("k", data=[item]).store()
        self.multi.resolver = union
        got = self.multi.get("k")
        self.assertEqual(got.data, ["a", "b", "c"])
        got.store()
        self.multi.resolver = None
        self.assertEqual([sibling.data for sibling in self.multi.get("k").siblings], [["a", "b", "c"]])

    def test_the_client_s_own_resolver_finds_the_last_written(self):
        for value in (b"a", b"b", b"c"):
            self.store(self.multi, "k", value)
        read = unread(self.multi, "k")
        read.resolver = last_written_resolver
        self.assertEqual(read.reload().encoded_data, b"c")

    def test_a_resolution_from_a_stale_read_leaves_what_came_since(self):
        for value in (b"a", b"b"):
            self.store(self.multi, "k", value)
        stale = self.multi.get("k")
        self.store(self.multi, "k", b"later")
        self.at(b"resolved", stale)
        self.assertEqual(self.values(self.multi, "k"), [b"later", b"resolved"])


class NoFalseSiblings(Case):
    def test_clients_that_take_turns_make_none(self):
        bucket = self.bucket(allow_mult=True)
        clients = [self.other_client() for _ in range(4)]
        self.store(bucket, "k", b"")
        for i in range(60):
            theirs = clients[i % 4].bucket(bucket.name).get("k")
            self.assertEqual(len(theirs.siblings), 1)
            theirs.encoded_data += b"%d," % i
            theirs.store(return_body=False)
        self.assertEqual(self.values(bucket, "k"), [b"".join(b"%d," % i for i in range(60))])

    def test_a_writer_that_goes_on_from_its_own_write_makes_none(self):
        bucket = self.bucket(allow_mult=True)
        mine = self.store(bucket, "k", b"0")
        for i in range(1, 30):
            mine.encoded_data = str(i).encode()
            mine.store()
            self.assertEqual(len(mine.siblings), 1)

    def test_writers_who_see_only_their_answers_have_at_most_a_sibling_each(self):
        # With version vectors alone each write would add one: sibling explosion.
        bucket = self.bucket(allow_mult=True)
        base = self.store(bucket, "k", b"base")
        clocks = [base.vclock] * 3
        for i in range(30):
            writer = i % 3
            one = new(bucket, "k", f"{writer} {i}".encode())
            one.vclock = clocks[writer]
            one.store()
            clocks[writer] = one.vclock
            self.assertLessEqual(len(one.siblings), 3)

    def test_a_bucket_without_siblings_has_none(self):
        bucket = self.bucket()
        first = self.store(bucket, "k", b"1")
        stale = first.vclock
        self.store(bucket, "k", b"2")
        third = new(bucket, "k", b"3")
        third.vclock = stale
        self.assertEqual(len(third.store().siblings), 1)
        self.assertEqual(self.values(bucket, "k"), [b"3"])

    def test_last_write_wins_has_none(self):
        bucket = self.bucket(last_write_wins=True, allow_mult=True)
        for i in range(10):
            self.store(bucket, "k", str(i).encode())
            self.assertEqual(self.values(bucket, "k"), [str(i).encode()])


class Limits(Case):
    def test_siblings_are_bounded_and_the_way_out_is_open(self):
        bucket = self.bucket(allow_mult=True)
        for i in range(SIBLINGS_MAX):
            self.store(bucket, "k", b"%03d" % i, return_body=False)
        with self.assertRaisesRegex(RiakError, "101 siblings, 100 allowed"):
            self.store(bucket, "k", b"one more")
        got = bucket.get("k")
        self.assertEqual(sorted(s.encoded_data for s in got.siblings), [b"%03d" % i for i in range(SIBLINGS_MAX)])
        got.siblings = got.siblings[:1]
        got.encoded_data = b"resolved"
        got.store()
        self.assertEqual(self.values(bucket, "k"), [b"resolved"])
