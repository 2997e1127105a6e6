"""The disk tier of the prefix cache as users meet it: restarts, kills, two servers on one folder, damaged files, folders that can't be."""
import os
import random
import subprocess
import tempfile
import threading
import unittest

from serving import TUTTI, serving
from test_cache import NEAR, SYSTEM, cached, chat, key

KILLS = int(os.environ.get("TUTTI_KILLS", "12"))


def messages(i):
    return [SYSTEM, {"role": "user", "content": "Count to %d." % (5 + i)}]


def metric(server, name):
    for line in server.get("/metrics")[1].split("\n"):
        if line.startswith("tutti:prefix_cache_disk_%s{" % name):
            return int(line.split()[-1])
    raise KeyError(name)


class DiskCache(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with serving("--no-enable-prefix-caching") as server:
            cls.expected = [key(chat(server, messages(i))) for i in range(8)]

    def setUp(self):
        parent = tempfile.TemporaryDirectory()
        self.addCleanup(parent.cleanup)
        self.folder = os.path.join(parent.name, "kv")

    def serving(self, *flags):
        return serving("--prefix-cache-dir", self.folder, *flags)

    def check(self, server, i):
        answer = chat(server, messages(i))
        self.assertEqual(key(answer), self.expected[i])
        return cached(answer), answer["usage"]["prompt_tokens"]

    def files(self):
        return [os.path.join(self.folder, name) for name in sorted(os.listdir(self.folder))]

    def test_a_restart_goes_on_from_what_was_kept(self):
        with self.serving() as server:
            self.assertEqual(self.check(server, 0)[0], 0)
        self.assertEqual(os.stat(self.folder).st_mode & 0o777, 0o700)
        self.assertEqual({os.stat(file).st_mode & 0o777 for file in self.files()}, {0o600})
        for flags in ((), ("--num-speculative-tokens", "3"), ("--threads", "1")):
            with self.serving(*flags) as server:
                hit, prompt = self.check(server, 0)
                self.assertGreaterEqual(hit, prompt - NEAR)
                self.assertGreater(metric(server, "read_total"), 0)
                # Another conversation goes on from what it shares with the first: the end of its system message.
                self.assertGreater(self.check(server, 1)[0], 500)

    def test_other_numbers_are_another_cache(self):
        with self.serving() as server:
            self.check(server, 0)
        with self.serving("--kv-cache-dtype", "float32") as server:
            self.assertEqual(cached(chat(server, messages(0))), 0)
        with self.serving() as server:
            hit, prompt = self.check(server, 0)
            self.assertGreaterEqual(hit, prompt - NEAR)
            self.assertEqual(metric(server, "bad_total"), 0)

    def test_what_the_memory_gives_up_comes_back(self):
        with self.serving("--kv-cache-memory-bytes", str(8 << 20), "--max-model-len", "1000", "--max-num-seqs", "2") as server:
            for round in range(2):
                for i in range(8):
                    hit, prompt = self.check(server, i)
                    if round == 1:
                        self.assertGreater(hit, 500)

    def test_two_servers_on_one_folder(self):
        with self.serving() as a, self.serving() as b:
            for server in (a, b, a, b):
                for i in range(4):
                    self.check(server, i)
        with self.serving() as server:
            hit, prompt = self.check(server, 3)
            self.assertGreaterEqual(hit, prompt - NEAR)
            self.assertEqual(metric(server, "bad_total"), 0)

    def test_damaged_files_are_computed_again(self):
        chance = random.Random(5)
        with self.serving() as server:
            self.check(server, 0)
        for file in self.files():
            with open(file, "r+b") as f:
                f.seek(chance.randrange(100) if chance.random() < 0.3 else chance.randrange(512, os.path.getsize(file)))
                byte = f.read(1)
                f.seek(-1, 1)
                f.write(bytes([byte[0] ^ 1 << chance.randrange(8)]))
        with self.serving() as server:
            self.assertEqual(self.check(server, 0)[0], 0)
            self.assertGreater(metric(server, "bad_total"), 2)
            self.assertIn("removed", server.log_text())
        # Those behind a damaged one are only found out when it is whole again: restarts mend all.
        for _ in range(8):
            with self.serving() as server:
                hit, prompt = self.check(server, 0)
        self.assertGreaterEqual(hit, prompt - NEAR)

    def test_a_folder_that_vanishes_is_no_trouble(self):
        with self.serving() as server:
            self.check(server, 0)
            for file in self.files():
                os.unlink(file)
            os.rmdir(self.folder)
            self.check(server, 1)
        self.assertFalse(os.path.exists(self.folder))

    def test_a_full_disk_is_no_trouble(self):
        with self.serving("--prefix-cache-disk-bytes", str(1 << 20)) as server:  # less than one conversation
            for i in range(8):
                self.check(server, i)
        self.assertLessEqual(sum(os.path.getsize(file) for file in self.files()), 1 << 20)

    def test_a_folder_that_cannot_be_is_said_at_start(self):
        with open(self.folder, "w") as file:
            file.write("x")
        for folder in (self.folder, os.path.join(self.folder, "kv")):
            run = subprocess.run([TUTTI, "serve", "--port", "0", "--prefix-cache-dir", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 timeout=60, check=False)
            self.assertEqual(run.returncode, 2, run.stdout)
            self.assertIn(b"--prefix-cache-dir: ", run.stdout)
            self.assertIn(folder.encode(), run.stdout)

    def test_killed_while_it_writes(self):
        """Whatever moment the process dies at: the next one serves, and gives back nothing wrong."""
        chance = random.Random(11)
        hits = 0
        flags = ("--kv-cache-memory-bytes", str(8 << 20), "--max-model-len", "1000", "--max-num-seqs", "2")
        for _ in range(KILLS):
            with self.serving(*flags) as server:
                i = chance.randrange(8)
                hits += self.check(server, i)[0]
                end = threading.Timer(chance.random() * 0.3, server.process.kill)
                end.start()
                try:
                    while server.process.poll() is None:
                        chat(server, messages(chance.randrange(8)))
                except (AssertionError, OSError, ValueError):
                    pass  # killed
                end.join()
                server.process.wait()
                self.assertEqual(server.process.returncode, -9)
        with self.serving(*flags) as server:
            for i in range(8):
                hits += self.check(server, i)[0]
            self.assertEqual(metric(server, "bad_total"), 0)
        self.assertGreater(hits, 0)
        self.assertEqual([file for file in self.files() if "tutti-tmp" in file], [])


if __name__ == "__main__":
    unittest.main()
