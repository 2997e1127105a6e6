#!/usr/bin/env python3
"""What the prefix cache costs requests that find nothing in it: waves of them with and without it, in turn, on one server.

    bench/server/misses.py --url http://127.0.0.1:8000 --clients 8 --waves 10

Every prompt is new. Prints tokens per second of each wave and the ratio of the medians. Let it run into a server whose cache memory is
small (--kv-cache-memory-bytes, --prefix-cache-snapshot-bytes) to see the steady state: memory that is touched for the first time costs
once. Needs Python's standard library only.
"""
import argparse
import asyncio
import random
import statistics
import time
import urllib.parse

from load import machine, stream_once


async def wave(args, use_prefix_cache, seed):
    url = urllib.parse.urlsplit(args.url)
    gaps = []

    async def client(index):
        words = random.Random(seed * 1000 + index)
        tokens = 0
        for _ in range(args.requests):
            text = " ".join("word%d" % words.randrange(10000) for _ in range(args.prompt_words))
            body = {"messages": [{"role": "user", "content": text}], "max_tokens": args.tokens, "temperature": 0, "stream": True,
                    "stream_options": {"include_usage": True}, "ignore_eos": True, "use_prefix_cache": use_prefix_cache}
            tokens += (await stream_once(url.hostname, url.port, body, gaps))[1]
        return tokens

    started = time.perf_counter()
    totals = await asyncio.gather(*(client(i) for i in range(args.clients)))
    return sum(totals) / (time.perf_counter() - started)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--url", default="http://127.0.0.1:8000")
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--requests", type=int, default=2)
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--prompt-words", type=int, default=60)
    p.add_argument("--waves", type=int, default=10)
    p.add_argument("--warm", type=int, default=4, help="waves before those that count")
    args = p.parse_args()
    print(machine())
    for i in range(args.warm):
        asyncio.run(wave(args, True, 100000 + i))
    with_cache, without = [], []
    for i in range(args.waves):
        order = (True, False) if i % 2 == 0 else (False, True)  # neither is always first
        for use in order:
            speed = asyncio.run(wave(args, use, 2 * i + use))
            (with_cache if use else without).append(speed)
    for name, speeds in (("with", with_cache), ("without", without)):
        print("%-8s median %.1f tok/s (%.1f-%.1f)" % (name, statistics.median(speeds), min(speeds), max(speeds)))
    pairs = [a / b for a, b in zip(with_cache, without)]
    print("with / without: medians %.3f, median of the pairs %.3f" % (statistics.median(with_cache) / statistics.median(without), statistics.median(pairs)))


if __name__ == "__main__":
    main()
