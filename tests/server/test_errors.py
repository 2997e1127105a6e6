#!/usr/bin/env python3
"""Bad requests get the status, code and param of the contract, and the server goes on."""
import unittest

from serving import ServedTest, serving, user

MESSAGES = [{"role": "user", "content": "Hi"}]


def body(**more):
    return {"model": "canary", "messages": MESSAGES, "max_tokens": 8, **more}


def deep(levels):
    return b'{"a":' * levels + b"1" + b"}" * levels


# name: (body, status, code, param)
CHAT = {
    "no JSON": (b"{", 400, "invalid_json", None),
    "empty body": (b"", 400, "invalid_json", None),
    "not an object": (b"[]", 400, "invalid_type", ""),
    "too deep": (deep(500), 400, "invalid_json", None),
    "much too deep": (b"[" * 1000000, 400, "invalid_json", None),
    "bad UTF-8": (b'{"messages":[{"role":"user","content":"\xff"}]}', 400, "invalid_json", None),
    "lone surrogate": (b'{"messages":[{"role":"user","content":"\\ud800"}]}', 400, "invalid_json", None),
    "NaN": (b'{"messages":[{"role":"user","content":"x"}],"temperature":NaN}', 400, "invalid_json", None),
    "beyond double": (b'{"messages":[{"role":"user","content":"x"}],"temperature":1e999}', 400, "invalid_json", None),
    "duplicate key": (b'{"n":1,"n":1,"messages":[{"role":"user","content":"x"}]}', 400, "invalid_json", None),
    "no messages": ({"model": "canary"}, 400, "missing_required_parameter", "messages"),
    "empty messages": (body(messages=[]), 400, "missing_required_parameter", "messages"),
    "unknown role": (body(messages=[{"role": "cat", "content": "x"}]), 400, "invalid_value", "messages[0].role"),
    "only an assistant": (body(messages=[{"role": "assistant", "content": "x"}]), 400, "template_error", "messages"),
    "content is a number": (body(messages=[{"role": "user", "content": 5}]), 400, "invalid_type", "messages[0].content"),
    "picture": (body(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]), 400,
                "unsupported_media", "messages[0].content[0]"),
    "temperature as text": (body(temperature="hot"), 400, "invalid_type", "temperature"),
    "temperature below 0": (body(temperature=-1), 400, "invalid_value", "temperature"),
    "max_tokens 0": (body(max_tokens=0), 400, "invalid_value", "max_tokens"),
    "max_tokens below 0": (body(max_tokens=-4), 400, "invalid_value", "max_tokens"),
    "max_tokens true": (body(max_tokens=True), 400, "invalid_type", "max_tokens"),
    "max_tokens 5.5": (body(max_tokens=5.5), 400, "invalid_type", "max_tokens"),
    "n 0": (body(n=0), 400, "invalid_value", "n"),
    "n huge": (body(n=100000), 400, "invalid_value", "n"),
    "unknown field": (body(foo=1), 400, "unknown_parameter", "foo"),
    "misspelt field": (body(max_token=5), 400, "unknown_parameter", "max_token"),
    "misspelt template variable": (body(chat_template_kwargs={"enable_thinkin": True}), 400, "unknown_parameter",
                                   "chat_template_kwargs.enable_thinkin"),
    "top_logprobs 99": (body(logprobs=True, top_logprobs=99), 400, "invalid_value", "top_logprobs"),
    "bias of no token": (body(logit_bias={"99999999": 5}), 400, "invalid_value", "logit_bias.99999999"),
    "stop empty": (body(stop=""), 400, "invalid_value", "stop"),
    "tools": (body(tools=[{"type": "function", "function": {"name": "f"}}]), 400, "unsupported_parameter", "tools"),
    "schema": (body(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}), 400, "unsupported_value", "response_format"),
    "another model": (body(model="nope"), 404, "model_not_found", "model"),
    "too long": (body(messages=[{"role": "user", "content": "word " * 200000}]), 400, "context_length_exceeded", "messages"),
}


class Errors(ServedTest):
    def test_chat(self):
        for name, (request, status, code, param) in CHAT.items():
            for stream in (False, True):
                if stream and isinstance(request, bytes):
                    continue
                got, answer = self.server.post("/v1/chat/completions", {**request, "stream": True} if stream else request)
                self.assertEqual(got, status, "%s: %s" % (name, answer))
                self.assertEqual(answer["error"]["code"], code, name)
                self.assertEqual(answer["error"]["param"], param, name)
                self.assertTrue(answer["error"]["message"], name)
        self.assertEqual(self.server.chat(user("What is the capital of Norway?", max_tokens=100))[2], "stop")

    def test_completions(self):
        for request, code, param in [({}, "missing_required_parameter", "prompt"), ({"prompt": ""}, "invalid_value", "prompt"),
                                     ({"prompt": []}, "invalid_value", "prompt"), ({"prompt": [999999]}, "invalid_value", "prompt[0]"),
                                     ({"prompt": "x", "max_tokens": 0}, "invalid_value", "max_tokens"),
                                     ({"prompt": "x", "logprobs": 99}, "invalid_value", "logprobs"),
                                     ({"prompt": "x", "suffix": "y"}, "unsupported_parameter", "suffix")]:
            status, answer = self.server.post("/v1/completions", request)
            self.assertEqual((status, answer["error"]["code"], answer["error"]["param"]), (400, code, param), request)

    def test_paths_and_methods(self):
        for method, path, status in [("GET", "/nope", 404), ("GET", "/v1/chat/completions", 405), ("DELETE", "/v1/models", 405),
                                     ("POST", "/v1/embeddings", 501), ("GET", "/v1/models/nope", 404), ("GET", "/v1/models/canary", 200),
                                     ("GET", "/version", 200), ("GET", "/metrics", 200), ("HEAD", "/health", 200)]:
            got, answer, headers = self.server.request(method, path, b"{}" if method == "POST" else None)
            self.assertEqual(got, status, "%s %s: %s" % (method, path, answer))
            self.assertTrue(headers["X-Request-Id"], path)
        self.assertEqual(self.server.request("GET", "/v1/completions")[2]["Allow"], "POST, OPTIONS")

    def test_content_type(self):
        self.assertEqual(self.server.post("/v1/chat/completions", body(), {"Content-Type": "text/plain"})[0], 415)


class Keys(unittest.TestCase):
    def test_keys(self):
        with serving("--api-key", "secret") as server:
            self.assertEqual(server.post("/v1/chat/completions", body())[0], 401)
            self.assertEqual(server.post("/v1/chat/completions", body(), {"Authorization": "Bearer wrong"})[0], 401)
            self.assertEqual(server.post("/v1/chat/completions", body(), {"Authorization": "Bearer secret"})[0], 200)
            self.assertEqual(server.post("/v1/chat/completions", body(), {"x-api-key": "secret"})[0], 200)
            self.assertEqual(server.get("/v1/models")[0], 401)
            self.assertEqual(server.get("/health")[0], 200)


if __name__ == "__main__":
    unittest.main()
