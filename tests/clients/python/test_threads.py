"""Several threads of one client at once."""

from concurrent.futures import ThreadPoolExecutor

from case import REPLICAS, Case, new

THREADS = 8


class Threads(Case):
    def in_threads(self, function):
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(function, range(THREADS)))

    def test_each_thread_reads_what_it_wrote(self):
        bucket = self.bucket()

        def work(thread):
            for i in range(60):
                key, value = f"{thread}-{i}", f"value {thread} {i}".encode()
                stored = self.store(bucket, key, value, return_body=False, w=REPLICAS)
                self.assertEqual(self.values(bucket, key), [value])
                if i % 3 == 0:
                    stored.delete(w=REPLICAS)
                    self.assertFalse(bucket.get(key).exists)

        self.in_threads(work)
        self.assertEqual(len(bucket.get_keys()), THREADS * 40)

    def test_no_blind_write_of_one_key_is_lost(self):
        bucket = self.bucket(allow_mult=True)
        self.in_threads(lambda thread: [self.store(bucket, "k", b"%d %d" % (thread, i)) for i in range(10)])
        self.assertEqual(self.values(bucket, "k"), sorted(b"%d %d" % (t, i) for t in range(THREADS) for i in range(10)))

    def test_no_element_of_a_contended_set_is_lost(self):
        bucket = self.bucket(allow_mult=True)

        def union(conflict):
            merged = sorted({item for sibling in conflict.siblings for item in sibling.data})
            conflict.siblings = [conflict.siblings[0]]
            conflict.data = merged

        bucket.resolver = union
        bucket.new("set", data=[]).store()

        def add(thread):
            for i in range(15):
                read = bucket.get("set")
                read.data = sorted(set(read.data) | {f"{thread}-{i}"})
                read.store(return_body=False)

        self.in_threads(add)
        final = bucket.get("set")
        self.assertEqual(final.data, sorted(f"{t}-{i}" for t in range(THREADS) for i in range(15)))
        final.store()
        self.assertEqual(len(self.other_client().bucket(bucket.name).get("set").siblings), 1)

    def test_only_one_of_many_creates(self):
        bucket = self.bucket()
        for round in range(10):

            def create(thread):
                try:
                    new(bucket, f"k{round}", b"%d" % thread).store(if_none_match=True, return_body=False)
                    return thread
                except Exception as error:
                    self.assertEqual(error.args[0], "match_found")
                    return None

            winners = [thread for thread in self.in_threads(create) if thread is not None]
            self.assertEqual(len(winners), 1)
            self.assertEqual(self.values(bucket, f"k{round}"), [b"%d" % winners[0]])
