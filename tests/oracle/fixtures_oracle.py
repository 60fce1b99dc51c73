#!/usr/bin/env python3
"""Compares a server with fixtures recorded from llama-server b11192.

    fixtures_oracle.py FIXTURES.json... --server 'build/bankmld' [--model-dir DIR] [--tiny-dir DIR] [--only llama] [--quiet]

A fixture file of a real model holds tokenize, detokenize, apply_template and first_token (the twenty likeliest first tokens
with their log-probabilities); tiny-models.json holds greedy continuations of the tiny models, compared also where
llama-server disagrees with itself under one thread or without flash attention (`robust` is false there); `spread` is how
far its own log-probabilities move between those runs. Equal means: the same tokens; log-probabilities within
max(0.02, 1.5 x spread). Only the standard library is used.
"""
import argparse, json, os, sys
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from session_oracle import Server

TOLERANCE = 0.02


class Tally:
    def __init__(self, quiet):
        self.passed = self.failed = 0
        self.quiet = quiet

    def add(self, label, good, detail=""):
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print(f"DIFFERS {label}: {detail}"[:400])


def closeness(expected, got):
    """Largest difference of log-probability over the expected tokens; infinite if one is missing."""
    have = dict(map(tuple, got))
    return max((abs(have[token] - value) if token in have else float("inf") for token, value in expected), default=0.0)


def first_top(server, prompt, count):
    _, reply = server.post("/completion", {"prompt": prompt, "n_predict": 1, "n_probs": count, "temperature": 0, "cache_prompt": False})
    probabilities = reply.get("completion_probabilities")
    return [[c["id"], c["logprob"]] for c in probabilities[0]["top_logprobs"]] if probabilities else []


def check_real(server, data, tally):
    for case in data["tokenize"]:
        _, reply = server.post("/tokenize", {k: case[k] for k in ("content", "add_special", "parse_special")})
        tally.add("tokenize", reply.get("tokens") == case["tokens"], f"{case['content']!r} special={case['add_special']} parse={case['parse_special']}: "
                  f"expected {case['tokens']}, got {reply.get('tokens')}")
    for case in data["detokenize"]:
        _, reply = server.post("/detokenize", {"tokens": case["tokens"]})
        tally.add("detokenize", reply.get("content") == case["content"], f"expected {case['content']!r}, got {reply.get('content')!r}")
    for case in data["apply_template"]:
        status, reply = server.post("/apply-template", {"messages": case["messages"]})
        expected = case["answer"].get("prompt")
        good = reply.get("prompt") == expected if expected is not None else status == case["answer"].get("status")
        tally.add("apply_template", good, f"{case['messages']}: expected {case['answer']}, got {reply}")
    worst = 0.0
    for case in data["first_token"]:
        got = first_top(server, case["prompt"], 40)
        distance = closeness(case["top"][:10], got)
        worst = max(worst, distance)
        tally.add("first_token", distance < TOLERANCE, f"{case['prompt']!r}: log-probabilities off by {distance:.4f}")
    print(f"first_token: largest difference of log-probability {worst:.5f}")


def check_tiny(args, data, tally):
    for name, cases in data.items():
        if args.only and args.only not in name:
            continue
        server = Server(args.server, os.path.join(args.tiny_dir, name), ["-np", "1", "-c", "512"])
        worst = 0.0
        try:
            for case in cases:
                _, reply = server.post("/completion", {"prompt": case["prompt"], "n_predict": 12, "temperature": 0, "return_tokens": True, "cache_prompt": False})
                tally.add(f"{name} ({len(case['prompt'])} prompt tokens{'' if case['robust'] else ', not robust'})",
                          reply.get("tokens") == case["tokens"], f"expected {case['tokens']}, got {reply.get('tokens')}")
                if case["top"]:
                    distance = closeness(case["top"], first_top(server, case["prompt"], 40))
                    worst = max(worst, distance)
                    tally.add(f"{name} top", distance < max(TOLERANCE, 1.5 * case["spread"]), f"off by {distance:.4f}, spread {case['spread']}")
        finally:
            server.stop()
        if not args.quiet:
            print(f"{name}: largest difference of log-probability {worst:.5f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fixtures", nargs="+")
    parser.add_argument("--server", required=True)
    parser.add_argument("--model-dir", default=os.environ.get("BANKML_MODELS", "models"))
    parser.add_argument("--tiny-dir", default=os.path.join(HERE, "..", "data", "tiny"))
    parser.add_argument("--only", help="tiny models whose name contains this")
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args()
    tally = Tally(args.quiet)
    for path in args.fixtures:
        with open(path) as file:
            data = json.load(file)
        if "model" not in data:
            check_tiny(args, data, tally)
            continue
        server = Server(args.server, os.path.join(args.model_dir, data["model"]), ["-np", "1", "-c", "2048"])
        try:
            check_real(server, data, tally)
        finally:
            server.stop()
    print(f"{tally.passed} passed, {tally.failed} failed")
    sys.exit(1 if tally.failed else 0)


if __name__ == "__main__":
    main()
