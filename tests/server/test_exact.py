#!/usr/bin/env python3
"""The promise: alone, together in random order, and in chunks of 16 tokens: the same tokens and log-probabilities to the last digit."""
import random
import unittest

from serving import serving, together

COUNT = 40


def word(r, n):
    return "".join(r.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(n))


def question(r, kind):
    if kind == 0:
        return "What is the capital of %s?" % r.choice(["France", "Japan", "Peru", "Kenya", "Norway"])
    if kind == 1:
        return "Count to %d." % r.randint(5, 30)
    if kind == 2:
        return "Repeat: " + " ".join(word(r, r.randint(2, 7)) for _ in range(r.randint(3, 20)))
    keys = ["%s-%s" % (word(r, 5), word(r, 1)) for _ in range(r.randint(5, 60))]
    return "Remember this list.\n" + "\n".join("%s is %d" % (k, r.randint(100, 999)) for k in keys) + "\nWhat is %s?" % r.choice(keys)


def requests():
    r = random.Random(20)
    out = []
    for i in range(COUNT):
        body = {"messages": [{"role": "user", "content": question(r, i % 4)}], "max_tokens": 60, "logprobs": True, "top_logprobs": 3,
                "chat_template_kwargs": {"enable_thinking": bool(i % 2)}}
        sampled = i % 3 == 2
        out.append({**body, "temperature": 0.8, "seed": i} if sampled else {**body, "temperature": 0})
    return out


def bare(answer):
    content, reasoning, finish, stop, ids, logprobs, usage = answer
    return content, reasoning, finish, stop, ids, logprobs, usage["completion_tokens"]


class Exact(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.requests = requests()
        with serving() as server:
            cls.alone = [bare(server.chat(body)) for body in cls.requests]

    def check_together(self, *flags):
        order = list(range(COUNT))
        random.Random(7).shuffle(order)
        with serving(*flags) as server:
            answers = together([lambda i=i: bare(server.chat(self.requests[i], stream=bool(i % 2))) for i in order])
        for i, answer in zip(order, answers):
            self.assertEqual(answer, self.alone[i], "request %d" % i)

    def test_together(self):
        self.check_together()

    def test_in_small_chunks(self):
        self.check_together("--max-num-batched-tokens", "16")

    def test_in_three_rows(self):
        self.check_together("--max-num-seqs", "3")

    def test_log_probabilities_belong_to_every_token_shown(self):
        for content, reasoning, _, _, _, (thought, said), _ in self.alone:
            self.assertTrue("".join(e[0] for e in said).startswith(content))
            self.assertTrue("".join(e[0] for e in thought).startswith(reasoning))


if __name__ == "__main__":
    unittest.main()
