"""The prefix cache as clients see it: what is counted as cached, and that answers are those of a server without it."""
import threading
import unittest

from serving import serving

SYSTEM = {"role": "system", "content": "Notes.\n" + "\n".join("key-%d is %d" % (i, 7919 * i % 9973) for i in range(60))}

NEAR = 12  # a cached position may lie so many tokens before the farthest that could be


def key(answer):
    """Text and log-probabilities to the last digit."""
    choice = answer["choices"][0]
    return choice["message"]["content"], choice["message"].get("reasoning_content"), [t["logprob"] for t in choice["logprobs"]["content"]]


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def chat(server, messages, thinking=False, **fields):
    status, answer = server.post("/v1/chat/completions", {
        "messages": messages, "max_tokens": 60, "temperature": 0, "logprobs": True, "return_token_ids": True,
        "chat_template_kwargs": {"enable_thinking": thinking}, **fields})
    assert status == 200, answer
    return answer


def common(a, b):
    """Tokens that both lists begin with."""
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def turns(thinking):
    """Five turns of one conversation, answered by a server that caches nothing: (messages, answer) each."""
    with serving("--no-enable-prefix-caching") as server:
        messages, all_turns = [SYSTEM], []
        for i in range(5):
            messages = messages + [{"role": "user", "content": "Count to %d." % (5 + i)}]
            answer = chat(server, messages, thinking)
            assert cached(answer) == 0
            all_turns.append((messages, answer))
            messages = messages + [{"role": "assistant", "content": answer["choices"][0]["message"]["content"] or ""}]
        return all_turns


class Cache(unittest.TestCase):
    def test_conversations_that_grow(self):
        for thinking in (False, True):
            expected = turns(thinking)
            with serving() as server:
                computed = new = 0
                seen = []  # ids of earlier prompts and answers
                for i, (messages, answer) in enumerate(expected):
                    got = chat(server, messages, thinking)
                    self.assertEqual(key(got), key(answer), "turn %d" % i)
                    prompt, reply = got["prompt_token_ids"], got["choices"][0]["token_ids"]
                    if i:
                        shared = max(common(prompt, ids) for ids in seen)
                        self.assertGreaterEqual(cached(got), shared - NEAR, "turn %d" % i)
                        computed += len(prompt) - cached(got) + len(reply)
                        new += len(prompt) - shared + len(reply)
                    seen.append(prompt + reply)
                self.assertLessEqual(computed, 1.15 * new)

    def test_repetitions_salts_and_refusals(self):
        messages = [SYSTEM, {"role": "user", "content": "Count to 7."}]
        with serving() as server:
            first = chat(server, messages)
            self.assertEqual(cached(first), 0)
            again = chat(server, messages)
            self.assertGreaterEqual(cached(again), again["usage"]["prompt_tokens"] - NEAR)
            self.assertEqual(key(again), key(first))
            self.assertEqual(cached(chat(server, messages, use_prefix_cache=False)), 0)
            self.assertEqual(cached(chat(server, messages, cache_salt="a")), 0)
            self.assertGreater(cached(chat(server, messages, cache_salt="a")), 0)
            self.assertEqual(cached(chat(server, messages, cache_salt="b")), 0)
            metrics = server.get("/metrics")[1]
            hits = [line for line in metrics.splitlines() if line.startswith("vllm:prefix_cache_hits_total{")]
            self.assertEqual(float(hits[0].split()[-1]), 2 * cached(again))

    def test_the_same_prompt_many_times_at_once(self):
        messages = [SYSTEM, {"role": "user", "content": "Count to 9."}]
        with serving() as server:
            reference = chat(server, messages, use_prefix_cache=False)
            answers = [None] * 8

            def ask(i):
                answers[i] = chat(server, messages)

            threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for answer in answers:
                self.assertEqual(key(answer), key(reference))
            # One of them computed it.
            self.assertEqual(sum(cached(a) > 0 for a in answers), 7)

    def test_choices_share_their_prompt(self):
        messages = [SYSTEM, {"role": "user", "content": "Count to 9."}]
        with serving() as server:
            answer = chat(server, messages, n=4)
            texts = {c["message"]["content"] for c in answer["choices"]}
            self.assertEqual(len(texts), 1)
            hits = [line for line in server.get("/metrics")[1].splitlines() if line.startswith("vllm:prefix_cache_hits_total{")]
            self.assertGreaterEqual(float(hits[0].split()[-1]), 3 * (answer["usage"]["prompt_tokens"] - NEAR))

    def test_little_memory(self):
        messages = [SYSTEM, {"role": "user", "content": "Count to 9."}]
        with serving("--prefix-cache-snapshot-bytes", "0") as server:
            first, second = chat(server, messages), chat(server, messages)
            self.assertEqual(cached(second), 0)
            self.assertEqual(key(first), key(second))


if __name__ == "__main__":
    unittest.main()
