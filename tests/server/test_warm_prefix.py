"""--warm-prefix: prompts that are in the cache before the server is ready, and files that can't be used."""
import json
import subprocess
import tempfile
import unittest

from serving import TUTTI, serving
from test_cache import SYSTEM, cached, chat, key

MESSAGES = [SYSTEM, {"role": "user", "content": "Count to 9."}]


def written(text):
    file = tempfile.NamedTemporaryFile("w", suffix=".jsonl")
    file.write(text)
    file.flush()
    return file


class WarmPrefix(unittest.TestCase):
    def test_the_first_request_finds_its_prefix(self):
        with serving() as server:
            cold = chat(server, MESSAGES)
        self.assertEqual(cached(cold), 0)
        lines = [{"messages": [SYSTEM, {"role": "user", "content": "Hello"}], "temperature": 1}, {"prompt": ["One two three.", "Four five."]}]
        with written("\n\n".join(json.dumps(line) for line in lines) + "\n") as file, serving("--warm-prefix", file.name) as server:
            self.assertIn("warm prefixes: 2 prompts", server.log_text())
            warm = chat(server, MESSAGES)
            self.assertEqual(key(warm), key(cold))
            self.assertGreater(cached(warm), 600)  # the system message

    def test_what_cannot_be_used_is_said_by_its_line(self):
        good = json.dumps({"prompt": "One."})
        for bad, why in (("{", "not valid JSON"), ("[1]", "not a JSON object"), ('{"messages": []}', "messages"), ('{"prompt": ""}', "prompt"),
                         ('{"prompt": "a", "temperature": 9}', "temperature"), ('{"prompt": "a", "model": "other"}', "other")):
            with self.subTest(bad), written(good + "\n" + bad) as file:
                self.check(file.name, "line 2", why)
        self.check("/nonexistent/prompts", "can't read", "/nonexistent/prompts")

    def check(self, path, *said):
        run = subprocess.run([TUTTI, "serve", "--port", "0", "--warm-prefix", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                             check=False)
        self.assertEqual(run.returncode, 2, run.stdout)
        for words in ("--warm-prefix: ",) + said:
            self.assertIn(words.encode(), run.stdout)


if __name__ == "__main__":
    unittest.main()
