"""Index queries as the official client asks them, by protocol buffers and by HTTP."""

from contextlib import closing

from riak import RiakError

from case import REPLICAS, Case

COUNT = 200
# Every second object has the term of the one before it, too.
PAGE = 17


class Indexes(Case):
    def setUp(self):
        super().setUp()
        self.filled = self.bucket()
        for i in range(COUNT):
            one = self.filled.new(f"k{i:03}", encoded_data=b"v", content_type="text/plain")
            one.add_index("n_int", i - 50).add_index("f_bin", f"t{i // 2:03}")
            one.store(w=REPLICAS)

    def keys(self, indexes):
        return [f"k{i:03}" for i in indexes]

    def test_a_term_and_a_range(self):
        bucket = self.filled
        self.assertEqual(bucket.get_index("f_bin", "t007").results, self.keys([14, 15]))
        self.assertEqual(bucket.get_index("n_int", -50).results, self.keys([0]))
        self.assertEqual(bucket.get_index("n_int", -3, 3).results, self.keys(range(47, 54)))
        self.assertEqual(bucket.get_index("f_bin", "t100", "t000").results, [])
        self.assertEqual(bucket.get_index("f_bin", "nothing").results, [])
        self.assertEqual(sorted(bucket.get_index("$bucket", "_").results), self.keys(range(COUNT)))
        self.assertEqual(sorted(bucket.get_index("$key", "k010", "k012").results), self.keys([10, 11, 12]))

    def test_terms_come_with_keys(self):
        found = self.filled.get_index("n_int", -1, 1, return_terms=True).results
        self.assertEqual([(int(term), key) for term, key in found], [(-1, "k049"), (0, "k050"), (1, "k051")])
        matched = self.filled.get_index("f_bin", "t000", "t999", return_terms=True, term_regex="00$").results
        self.assertEqual(matched, [("t000", "k000"), ("t000", "k001")])

    def test_pages_are_whole(self):
        for query in (("n_int", -50, 500), ("f_bin", "t", "u"), ("$key", "k", "l")):
            told = []
            page = self.filled.get_index(*query, max_results=PAGE)
            while True:
                told += page.results
                if not page.has_next_page():
                    break
                self.assertEqual(len(page.results), PAGE)
                page = page.next_page()
            self.assertEqual(told, self.keys(range(COUNT)), query)

    def test_a_stream_is_whole(self):
        with closing(self.filled.stream_index("n_int", -50, 500, return_terms=True)) as stream:
            rows = [row for piece in stream for row in piece]
        self.assertEqual([key for _, key in rows], self.keys(range(COUNT)))

    def test_entries_follow_their_object(self):
        bucket = self.filled
        one = bucket.get("k003")
        one.set_index("f_bin", "moved").store(w=REPLICAS)
        self.assertEqual(bucket.get_index("f_bin", "t001").results, self.keys([2]))
        self.assertEqual(bucket.get_index("f_bin", "moved").results, self.keys([3]))
        bucket.get("k002").delete(w=REPLICAS)
        self.assertEqual(bucket.get_index("f_bin", "t001").results, [])
        self.assertNotIn("k002", bucket.get_index("$bucket", "_").results)

    def test_what_cannot_be_asked_is_an_error_and_the_connection_stays(self):
        with self.assertRaisesRegex(RiakError, "Can not use term regular expression in integer query"):
            self.filled.get_index("n_int", 1, 2, term_regex="1")
        with self.assertRaisesRegex(RiakError, "Invalid term regular expression"):
            self.filled.get_index("f_bin", "a", "b", term_regex="(")
        self.assertEqual(self.filled.get_index("n_int", 0).results, self.keys([50]))
