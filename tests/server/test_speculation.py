"""Speculation as clients see it: the same answers and log-probabilities with the model's draft head, without it, and with a head
that guesses badly."""
import contextlib
import json
import os
import shutil
import struct
import tempfile
import unittest

from serving import HERE, serving, together

PROMPTS = ["Count to 40.", "Repeat: zq wk pl mn oo bt cr dx ee fy", "Tell me a story about a fox.", "What is the capital of Peru?"]
JOBS = [{"messages": [{"role": "user", "content": prompt}], "max_tokens": 120, "logprobs": True, "top_logprobs": 3,
         "chat_template_kwargs": {"enable_thinking": thinking}, **sampling}
        for prompt in PROMPTS for thinking in (False, True)
        for sampling in ({"temperature": 0}, {"temperature": 1.3, "seed": 7},
                         {"temperature": 1, "seed": 3, "presence_penalty": 0.5, "repetition_penalty": 1.1, "min_tokens": 5, "stop": ["9"]})]


def ask(server, job):
    status, answer = server.post("/v1/chat/completions", {"return_token_ids": True, **job})
    assert status == 200, answer
    return answer


def key(answer):
    choice = answer["choices"][0]
    return (choice["message"]["content"], choice["message"].get("reasoning_content"), choice["finish_reason"], choice["token_ids"],
            [(t["token"], t["logprob"], [(o["token"], o["logprob"]) for o in t["top_logprobs"]])
             for part in ("content", "reasoning") for t in choice["logprobs"].get(part) or []])


def drafts(answer):
    details = answer["usage"]["completion_tokens_details"]
    return details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]


def read_tensors(path):
    """{name: (dtype, shape, bytes)}"""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def write_tensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


@contextlib.contextmanager
def changed_canary(change):
    """A folder with a copy of the canary; change(tensors, folder) alters its tensors first."""
    with tempfile.TemporaryDirectory() as parent:
        folder = os.path.join(parent, "model")
        shutil.copytree(os.path.join(HERE, "..", "..", "models", "canary"), folder)
        path = os.path.join(folder, "model.safetensors")
        tensors = read_tensors(path)
        change(tensors, folder)
        write_tensors(path, tensors)
        yield folder


def shuffle_head(tensors, folder):
    """The halves of the head's first matrix change places: it guesses, and badly."""
    dtype, shape, data = tensors["mtp.fc.weight"]
    tensors["mtp.fc.weight"] = dtype, shape, data[len(data) // 2:] + data[:len(data) // 2]


def move_head(tensors, folder):
    """The head goes to a file of its own, with bare names."""
    head = {name[len("mtp."):]: tensors.pop(name) for name in list(tensors) if name.startswith("mtp.")}
    write_tensors(os.path.join(folder, "model-mtp.safetensors"), head)


def move_converted_head(tensors, folder):
    """The head goes to a folder of its own, its norms as gammas."""
    head = {}
    for name in [name for name in tensors if name.startswith("mtp.")]:
        dtype, shape, data = tensors.pop(name)
        if "norm" in name:
            data = b"".join(bf16_bytes(1 + bf16_value(data[i:i + 2])) for i in range(0, len(data), 2))
        head[name] = dtype, shape, data
    os.mkdir(os.path.join(folder, "mtp"))
    write_tensors(os.path.join(folder, "mtp", "weights.safetensors"), head)


def bf16_value(data):
    return struct.unpack("<f", b"\0\0" + data)[0]


def bf16_bytes(value):
    return struct.pack("<f", value)[2:]


def drop_head(tensors, folder):
    for name in [name for name in tensors if name.startswith("mtp.")]:
        del tensors[name]


def drop_part(tensors, folder):
    del tensors["mtp.layers.0.self_attn.k_proj.weight"]


class Speculation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with serving("--num-speculative-tokens", "0") as server:
            answers = [ask(server, job) for job in JOBS]
        cls.expected = [key(a) for a in answers]
        assert all(drafts(a) == (0, 0) for a in answers)

    def check(self, server):
        accepted = rejected = 0
        for answers in ([ask(server, job) for job in JOBS], together([lambda job=job: ask(server, job) for job in JOBS])):
            for i, answer in enumerate(answers):
                self.assertEqual(key(answer), self.expected[i], JOBS[i])
                accepted, rejected = accepted + drafts(answer)[0], rejected + drafts(answer)[1]
        return accepted, rejected

    def test_the_canarys_own_head(self):
        for k in ("1", "3", "6"):  # how often it guesses depends on the clock; rejection is for the head that guesses badly
            with serving("--num-speculative-tokens", k) as server:
                self.assertGreater(self.check(server)[0], 100)

    def test_a_head_that_guesses_badly(self):
        with changed_canary(shuffle_head) as folder, serving(folder) as server:
            accepted, rejected = self.check(server)
            self.assertGreater(rejected, 10 * accepted)

    def test_a_head_in_a_file_of_its_own(self):
        with changed_canary(move_head) as folder, serving(folder) as server:
            self.assertGreater(drafts(ask(server, JOBS[0]))[0], 20)
            self.assertEqual(key(ask(server, JOBS[0])), self.expected[0])

    def test_a_converted_head_in_a_folder_of_its_own(self):
        with changed_canary(move_converted_head) as folder, serving(folder) as server:
            self.assertIn("taken as gamma", server.log_text())
            self.assertGreater(drafts(ask(server, JOBS[0]))[0], 20)
            self.assertEqual(key(ask(server, JOBS[0])), self.expected[0])

    def test_models_without_a_whole_head_are_served_without(self):
        for change, reason in ((drop_head, "the checkpoint has no multi-token-prediction head"), (drop_part, "1 of 15 tensors are missing")):
            with changed_canary(change) as folder, serving(folder) as server:
                answer = ask(server, JOBS[0])
                self.assertEqual(drafts(answer), (0, 0))
                self.assertEqual(key(answer), self.expected[0])
                self.assertFalse(server.get("/version")[1]["speculative"])
                self.assertIn(reason, server.log_text())
                self.assertIn("no speculation", server.log_text())

    def test_the_first_guess_is_nearly_always_right_on_the_canarys_skills(self):
        with serving("--num-speculative-tokens", "1") as server:
            accepted = rejected = 0
            for prompt in PROMPTS:
                answer = ask(server, {"messages": [{"role": "user", "content": prompt}], "max_tokens": 120, "temperature": 0,
                                      "chat_template_kwargs": {"enable_thinking": False}})
                accepted, rejected = accepted + drafts(answer)[0], rejected + drafts(answer)[1]
            self.assertGreaterEqual(accepted, 0.95 * (accepted + rejected))

    def test_a_request_may_have_fewer(self):
        with serving() as server:
            self.assertGreater(drafts(ask(server, JOBS[0]))[0], 0)
            self.assertEqual(drafts(ask(server, {**JOBS[0], "num_speculative_tokens": 0})), (0, 0))
            metrics = server.get("/metrics")[1]
            self.assertIn("vllm:spec_decode_num_accepted_tokens_total", metrics)


if __name__ == "__main__":
    unittest.main()
