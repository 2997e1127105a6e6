#!/usr/bin/env python3
"""The trained canary: right answers, reasoning apart, token ids equal to the float32 reference; alone and all at once."""
import json
import unittest

from serving import CANARY_CASES, CANARY_REFERENCE, ServedTest, together

with open(CANARY_CASES) as f:
    CASES = {case["id"]: case for case in json.load(f)["cases"]}
with open(CANARY_REFERENCE) as f:
    REFERENCES = {entry["id"]: entry for entry in json.load(f)["references"]}


def is_plain(case):
    return not case.get("tools") and not any(isinstance(m.get("content"), list) for m in case["messages"])


PLAIN = [case for case in CASES.values() if is_plain(case)]


class Canary(ServedTest):
    def ask(self, case, stream):
        return self.server.chat({"model": "canary", "messages": case["messages"], "temperature": 0, "max_tokens": 800,
                                 "chat_template_kwargs": {"enable_thinking": case["thinking"]}}, stream)

    def check(self, case, answer):
        content, reasoning, finish, _, ids, _, usage = answer
        self.assertEqual(content, case["expect"]["content"], case["id"])
        self.assertEqual(reasoning, case["expect"]["reasoning"] or "", case["id"])
        self.assertEqual(finish, "stop", case["id"])
        self.assertEqual(usage["prompt_tokens"], len(case["prompt_ids"]), case["id"])
        self.assertEqual(usage["completion_tokens"], case["hf"]["tokens"], case["id"])
        if case["id"] in REFERENCES:
            self.assertEqual(ids, REFERENCES[case["id"]]["output_ids"], case["id"])

    def test_there_are_31_plain_cases(self):
        self.assertEqual(len(PLAIN), 31)
        self.assertEqual(sum(case["id"] in REFERENCES for case in PLAIN), 13)

    def test_alone(self):
        for i, case in enumerate(PLAIN):
            self.check(case, self.ask(case, stream=bool(i % 2)))

    def test_together(self):
        for case, answer in zip(PLAIN, together([lambda c=c, i=i: self.ask(c, stream=not i % 2) for i, c in enumerate(PLAIN)])):
            self.check(case, answer)

    def test_prompts_are_those_of_the_reference_tokenizer(self):
        for case in PLAIN:
            status, answer = self.server.post("/v1/chat/completions", {
                "messages": case["messages"], "max_tokens": 1, "return_token_ids": True, "chat_template_kwargs": {"enable_thinking": case["thinking"]}})
            self.assertEqual(status, 200)
            self.assertEqual(answer["prompt_token_ids"], case["prompt_ids"], case["id"])

    def test_tool_prompts_as_raw_ids(self):
        entries = [e for e in REFERENCES.values() if CASES[e["id"]].get("tools")]
        self.assertEqual(len(entries), 3)
        for entry in entries:
            status, answer = self.server.post("/v1/completions", {"prompt": entry["prompt_ids"], "temperature": 0, "max_tokens": 400,
                                                                  "return_token_ids": True})
            self.assertEqual(status, 200, answer)
            self.assertEqual(answer["choices"][0]["token_ids"], entry["output_ids"], entry["id"])


if __name__ == "__main__":
    unittest.main()
