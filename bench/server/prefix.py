#!/usr/bin/env python3
"""Time to the first token of a long prompt, not seen before and seen before with a little more at its end.

    bench/server/prefix.py --url http://127.0.0.1:8000 --tokens 20000 --new 50 --rounds 3

Prompts are token ids (POST /v1/completions); every round has a prompt of its own. Needs Python's standard library only.
"""
import argparse
import json
import random
import statistics
import time
import urllib.request


def first_token_s(url, prompt):
    """(seconds, cached tokens) of a request for one token."""
    body = json.dumps({"prompt": prompt, "max_tokens": 1, "temperature": 0}).encode()
    started = time.perf_counter()
    with urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"}), timeout=3600) as f:
        answer = json.load(f)
    return time.perf_counter() - started, answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--tokens", type=int, default=20000)
    parser.add_argument("--new", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vocab", type=int, default=2000, help="ids are drawn below this")
    args = parser.parse_args()
    ratios = []
    for r in range(args.rounds):
        ids = random.Random(r)
        prompt = [ids.randrange(args.vocab) for _ in range(args.tokens)]
        miss, none = first_token_s(args.url, prompt)
        hit, cached = first_token_s(args.url, prompt + [ids.randrange(args.vocab) for _ in range(args.new)])
        ratios.append(hit / miss)
        print("%d tokens: %.3f s (%d cached); with %d more: %.4f s (%d cached) = %.2f %%"
              % (args.tokens, miss, none, args.new, hit, cached, 100 * hit / miss), flush=True)
    print("median of %d: %.2f %%" % (args.rounds, 100 * statistics.median(ratios)))


if __name__ == "__main__":
    main()
