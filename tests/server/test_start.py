#!/usr/bin/env python3
"""Starting and stopping: what can't be used ends with one clear line and exit code 2, before weights are read; SIGTERM drains."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest
import urllib.request

from serving import TUTTI, serving

ROOT = pathlib.Path(__file__).resolve().parents[2]
CANARY = ROOT / "models" / "canary"
GOLDEN = ROOT / "tests" / "golden"


def run(*arguments, env=None, timeout=60):
    """(exit code, stderr) of a start that is expected to fail."""
    done = subprocess.run([TUTTI, *arguments], capture_output=True, text=True, timeout=timeout, env={**os.environ, **(env or {})})
    return done.returncode, done.stderr


class Refused(unittest.TestCase):
    def refused(self, *arguments, says, env=None):
        code, err = run(*arguments, env=env)
        self.assertEqual(code, 2, err)
        for text in says if isinstance(says, (list, tuple)) else [says]:
            self.assertIn(text, err)

    def folder(self, source=CANARY):
        path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) if hasattr(self, "enterContext") else pathlib.Path(tempfile.mkdtemp())
        if not hasattr(self, "enterContext"):
            self.addCleanup(shutil.rmtree, path, True)
        copy = path / "model"
        shutil.copytree(source, copy)
        return copy

    def test_flags(self):
        self.refused("serve", "--no-such-flag", says="--no-such-flag")
        self.refused("serve", "--port", "99999", says="--port")
        self.refused("serve", "--max-num-seqs", "0", says="--max-num-seqs")
        self.refused("serve", "/nonexistent/model", "--port", "0", says="/nonexistent/model")

    def test_busy_port(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.refused("serve", "--port", str(taken.getsockname()[1]), says=str(taken.getsockname()[1]))

    def test_environment(self):
        self.refused("serve", "--port", "0", env={"TUTTI_ISA": "sse9"}, says="sse9")
        self.refused("serve", "--port", "0", env={"TUTTI_ISA": "neon" if os.uname().machine == "x86_64" else "avx2"}, says="TUTTI_ISA")
        self.refused("serve", "--port", "0", env={"TUTTI_OPS": "gpu"}, says="gpu")

    def test_memory_that_holds_nothing(self):
        self.refused("serve", "--port", "0", "--kv-cache-memory-bytes", "1000", says="1000")

    def test_model_types_of_other_families(self):
        for model_type in ("qwen4_exp", "qwen3_next", "llama"):
            folder = self.folder()
            config = json.loads((folder / "config.json").read_text())
            config["model_type"] = model_type
            config["text_config"]["model_type"] = model_type
            (folder / "config.json").write_text(json.dumps(config))
            self.refused("serve", str(folder), "--port", "0", says=model_type)

    def test_formats_of_later_versions(self):
        folder = self.folder(GOLDEN / "quant" / "realdims-uneven")
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(CANARY / name, folder / name)
        code, err = run("serve", str(folder), "--port", "0")
        self.assertEqual(code, 2, err)

    def test_tokenizer_that_disagrees(self):
        folder = self.folder(GOLDEN / "dense")  # 512 rows; the canary's tokenizer has more ids
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(CANARY / name, folder / name)
        self.refused("serve", str(folder), "--port", "0", says=["tokenizer", "512"])

    def test_broken_files(self):
        def change(edit):
            folder = self.folder()
            edit(folder / "model.safetensors")
            self.refused("serve", str(folder), "--port", "0", says="model.safetensors")

        def truncate(path):
            os.truncate(path, 1_000_000)

        def lie(path):
            with open(path, "r+b") as f:
                f.write(struct.pack("<Q", 1 << 60))

        def garbage(path):
            with open(path, "r+b") as f:
                f.seek(8)
                f.write(b"[" * 5000)

        change(truncate)
        change(lie)
        change(garbage)
        change(lambda path: path.write_bytes(b""))

    def test_missing_tensors_are_all_named(self):
        folder = self.folder()
        data = (folder / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        dropped = [n for n in header if n.endswith(("layers.0.linear_attn.A_log", "layers.3.self_attn.q_norm.weight"))]
        self.assertEqual(len(dropped), 2)
        for name in dropped:
            header[name.replace("layers.", "layers.9")] = header.pop(name)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size:])
        self.refused("serve", str(folder), "--port", "0", says=["layers.0.linear_attn.A_log", "layers.3.self_attn.q_norm"])


class Stops(unittest.TestCase):
    def while_draining(self, server, path):
        """(status, "status" of the body), asked again until the server has noticed the signal."""
        for _ in range(100):
            status, body = server.get(path)
            if body["status"] == "draining":
                break
            time.sleep(0.01)
        return status, body["status"]

    def test_sigterm_drains_and_ends_with_0(self):
        with serving() as server:
            body = json.dumps({"messages": [{"role": "user", "content": "Count to 40."}], "max_tokens": 4000, "ignore_eos": True, "stream": True})
            request = urllib.request.Request("http://127.0.0.1:%d/v1/chat/completions" % server.port, body.encode(), {"Content-Type": "application/json"})
            answer = urllib.request.urlopen(request, timeout=60)
            answer.readline()
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(self.while_draining(server, "/ready"), (503, "draining"))
            self.assertEqual(self.while_draining(server, "/health"), (200, "draining"))
            text = answer.read().decode()
            self.assertTrue(text.rstrip().endswith("data: [DONE]"), text[-300:])
            self.assertEqual(server.process.wait(30), 0)
            self.assertIn("canary", server.log_text())

    def test_the_curl_line_of_the_banner_works_when_pasted(self):
        if shutil.which("curl") is None:
            return  # the line needs curl, and so does its test
        with serving() as server:
            for _ in range(100):  # it is printed right after the server is ready
                line = re.search(r"curl http.*?}'\n", server.log_text(), re.DOTALL)
                if line:
                    break
                time.sleep(0.01)
            command = line.group(0)
            answer = subprocess.run(["sh", "-c", command.replace("curl ", "curl -s ")], capture_output=True, text=True, timeout=60).stdout
            self.assertIn("Oslo", answer)
            server.process.terminate()
            self.assertEqual(server.process.wait(30), 0)


if __name__ == "__main__":
    unittest.main()
