#!/usr/bin/env python3
"""Closed-loop load on a running OpenAI-compatible server: tokens per second, time to first token, gaps between tokens.

    bench/server/load.py --url http://127.0.0.1:8000 --clients 1 8 32 --requests 4 --tokens 200

Each client sends one streaming request after another (--requests of them); tokens are counted by the server's own usage.
Every request asks for exactly --tokens tokens (ignore_eos). Needs Python's standard library only.
"""
import argparse
import asyncio
import json
import os
import statistics
import time
import urllib.parse

QUESTIONS = ["Count to 40.", "Tell me a story about a fox.", "What is the capital of Norway?", "Count from 95 to 130.",
             "What can you do?", "Tell me a story about an owl."]


async def stream_once(host, port, body, gaps):
    """(seconds to the first token, completion tokens) of one streaming request over a connection of its own."""
    started = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
    data = json.dumps(body).encode()
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
                 + str(len(data)).encode() + b"\r\nConnection: close\r\n\r\n" + data)
    first = last = None
    tokens = 0
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError("status " + status.decode(errors="replace").strip())
    while True:
        line = await reader.readline()
        if not line or line.startswith(b"data: [DONE]"):
            break
        if not line.startswith(b"data: "):
            continue
        now = time.perf_counter()
        if b'"usage":{' in line:
            tokens = json.loads(line[6:])["usage"]["completion_tokens"]
        elif b'"content":"' in line or b'"reasoning_content":"' in line or b'"reasoning":"' in line:
            if b'"role"' in line:
                continue
            if first is None:
                first = now - started
            else:
                gaps.append(now - last)
            last = now
    writer.close()
    return first, tokens


async def client(index, args, host, port, firsts, gaps):
    total = 0
    for n in range(args.requests):
        body = {"model": args.model, "messages": [{"role": "user", "content": QUESTIONS[(index + n) % len(QUESTIONS)]}],
                "max_tokens": args.tokens, "temperature": 0, "stream": True, "stream_options": {"include_usage": True},
                "ignore_eos": True}
        if args.prompt_words:
            body["messages"][0]["content"] += " " + " ".join("word%d" % ((args.seed * 101 + index * 31 + n * 7 + i) % 997) for i in range(args.prompt_words))
        first, tokens = await stream_once(host, port, body, gaps)
        firsts.append(first if first is not None else float("nan"))
        total += tokens
    return total


async def measure(args, clients):
    url = urllib.parse.urlsplit(args.url)
    firsts, gaps = [], []
    started = time.perf_counter()
    totals = await asyncio.gather(*(client(i, args, url.hostname, url.port, firsts, gaps) for i in range(clients)))
    seconds = time.perf_counter() - started
    gaps.sort()
    print("%4d clients: %8.1f tok/s   first token median %6.1f ms   gap median %6.2f ms, 99 %% %6.2f ms   (%d tokens, %.2f s)" % (
        clients, sum(totals) / seconds, 1e3 * statistics.median(firsts), 1e3 * (gaps[len(gaps) // 2] if gaps else 0),
        1e3 * (gaps[int(len(gaps) * 0.99)] if gaps else 0), sum(totals), seconds), flush=True)


def machine():
    with open("/proc/cpuinfo") as f:
        name = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), "unknown processor")
    return "%s, %d cores" % (name, len(os.sched_getaffinity(0)))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--url", default="http://127.0.0.1:8000")
    p.add_argument("--model", default="")
    p.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    p.add_argument("--requests", type=int, default=4)
    p.add_argument("--tokens", type=int, default=200)
    p.add_argument("--prompt-words", type=int, default=0)
    p.add_argument("--seed", type=int, default=0, help="another one gives other words: prompts that no cache has")
    args = p.parse_args()
    print(machine())
    for clients in args.clients:
        asyncio.run(measure(args, clients))


if __name__ == "__main__":
    main()
