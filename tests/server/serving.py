"""Starts the server under test and talks to it. Python's standard library only; TUTTI names the binary."""
import contextlib
import http.client
import json
import os
import re
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

TUTTI = os.environ["TUTTI"]
HERE = os.path.dirname(os.path.abspath(__file__))
CANARY_CASES = os.path.join(HERE, "..", "canary", "canary_cases.json")
CANARY_REFERENCE = os.path.join(HERE, "..", "canary", "reference.json")


@contextlib.contextmanager
def serving(*flags):
    """A running server on a port that the system chose; ended and waited for at the end."""
    log = tempfile.TemporaryFile()
    process = subprocess.Popen([TUTTI, "serve", "--host", "127.0.0.1", "--port", "0", *flags], stdout=log, stderr=log)
    server = Server(process, log)
    try:
        deadline = time.monotonic() + 120
        while not server.ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server did not start: " + server.log_text()[-1000:])
            time.sleep(0.05)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


class ServedTest(unittest.TestCase):
    """Tests that talk to one server of their class, started with FLAGS."""
    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.context = serving(*cls.FLAGS)
        cls.server = cls.context.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.context.__exit__(None, None, None)


class Server:
    def __init__(self, process, log):
        self.process = process
        self.log = log
        self.port = None

    def ready(self):
        """Whether it answers; learns the port from the log first."""
        if self.port is None:
            listening = re.search(r"listening on http://127\.0\.0\.1:(\d+)", self.log_text())
            if not listening:
                return False
            self.port = int(listening.group(1))
        return self.get("/ready")[0] == 200

    def log_text(self):
        return os.pread(self.log.fileno(), 1 << 20, 0).decode("utf-8", "replace")

    def request(self, method, path, body=None, headers=None):
        """(status, parsed JSON or text, headers)"""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request("http://127.0.0.1:%d%s" % (self.port, path), data, {"Content-Type": "application/json", **(headers or {})},
                                         method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return answer.status, parsed(answer.read()), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, parsed(error.read()), error.headers
        except urllib.error.URLError:
            return 0, "", {}

    def get(self, path):
        return self.request("GET", path)[:2]

    def post(self, path, body, headers=None):
        return self.request("POST", path, body, headers)[:2]

    def stream(self, path, body):
        """The parsed events of a stream; the last one is "[DONE]"."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError("%d %s" % (answer.status, answer.read()))
        events = []
        for block in answer.read().decode().split("\n\n"):
            if block.startswith("data: "):
                events.append("[DONE]" if block == "data: [DONE]" else json.loads(block[6:]))
        connection.close()
        return events

    def chat(self, body, stream=False):
        """One answer as (content, reasoning, finish_reason, stop_reason, token ids, log-probabilities, usage), streamed or not."""
        body = {"return_token_ids": True, **body}
        if stream:
            return joined(self.stream("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}}))
        status, answer = self.post("/v1/chat/completions", body)
        if status != 200:
            raise RuntimeError("%d %s" % (status, answer))
        choice = answer["choices"][0]
        message = choice["message"]
        return (message["content"], message.get("reasoning_content", ""), choice["finish_reason"], choice["stop_reason"], choice["token_ids"],
                logprobs_of(choice), answer["usage"])


def parsed(data):
    try:
        return json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace")


def logprobs_of(choice):
    both = choice.get("logprobs") or {}
    return [[(e["token"], e["logprob"], [(t["token"], t["logprob"]) for t in e["top_logprobs"]]) for e in both.get(part) or []]
            for part in ("reasoning", "content")]


def joined(events):
    """What Server.chat() gives, from the events of a stream of one choice."""
    content, reasoning, finish, stop, ids, logprobs, usage = "", "", None, None, [], [[], []], None
    if events[-1] != "[DONE]":
        raise RuntimeError("the stream has no end: %s" % events[-1:])
    for event in events[:-1]:
        if "error" in event:
            raise RuntimeError(str(event))
        usage = event["usage"] or usage
        for choice in event["choices"]:
            content += choice["delta"].get("content") or ""
            reasoning += choice["delta"].get("reasoning_content") or ""
            ids += choice.get("token_ids") or []
            for part, more in zip(logprobs, logprobs_of(choice)):
                part += more
            if choice["finish_reason"]:
                finish, stop = choice["finish_reason"], choice["stop_reason"]
    return content, reasoning, finish, stop, ids, logprobs, usage


def together(jobs):
    """Runs the callables at once; their results in order. The first exception is raised."""
    results = [None] * len(jobs)

    def run(i):
        try:
            results[i] = jobs[i]()
        except Exception as error:  # handed on below
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def user(text, **more):
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, **more}
