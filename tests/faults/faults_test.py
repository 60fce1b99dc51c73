#!/usr/bin/env python3
"""A small session again and again, each time with another call of the daemon failing: at most one request fails, and not the daemon.

    faults_test.py LIBRARY BINARY MODEL [--samples 60] [--every] [--repetitions 0] [--seed 1] [unittest arguments]

LIBRARY is the one of failing_calls.cpp. --samples is the number of calls tried of each kind, spread over the session; --every
tries them all, --only N one. --repetitions lets so many calls after the first fail, too: then more than one request may.
--trace prints the stack of each failing call.
"""
import argparse
import http.client
import json
import mmap
import os
import random
import socket
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "daemon"))
from daemon import PATIENCE, Daemon, wait_for  # noqa: E402

FAILED = "failed"
MEMORY, FILE, SOCKET = 1, 2, 3
GROWTH_MIB = 16  # of resident memory over a whole test: less than one KV block a failure would come to
GREEDY = {"temperature": 0, "n_predict": 4, "ignore_eos": True, "return_tokens": True}
FIRST = {**GREEDY, "prompt": "The river runs past the old stone mill, and "}
SECOND = {**GREEDY, "prompt": "In winter the garden sleeps under snow. ", "stream": True}
NAME = "kept"
SEVERAL = 3
MANY_CONNECTIONS = 200

options = None


class Faults:
    """The memory that the library shares with us (Control in failing_calls.cpp)."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "control")
        with open(self.path, "wb") as file:
            file.write(bytes(32))
        with open(self.path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 32)

    def arm(self, kind, n, shorten=False, repetitions=0):
        """The n-th call from now on fails."""
        self.memory[4:32] = struct.pack("<IqQII", shorten, n, 0, 0, repetitions)
        self.memory[0:4] = struct.pack("<I", kind)

    def disarm(self):
        """The number of calls since, and whether one has failed."""
        self.memory[0:4] = bytes(4)
        _, _, counted, failed, _ = struct.unpack("<IqQII", self.memory[4:32])
        return counted, bool(failed)


def essence(path, body):
    """What an answer has whatever the cache held; FAILED for a stream that ended with an error."""
    events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")] or [json.loads(body)]
    if any("error" in event for event in events):
        return FAILED
    if path.startswith("/slots/"):
        return "done"
    chosen = [event["choices"][0] if "choices" in event else
              [event.get(key) for key in ("content", "tokens", "tokens_predicted", "completion_probabilities")] for event in events]
    return json.dumps(chosen)


class Session:
    """What the requests of a session come to."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.outcomes = []

    def ask(self, method, path, body=None, connection=None):
        own = connection or http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=PATIENCE)
        try:
            own.request(method, path, None if body is None else json.dumps(body).encode())
            response = own.getresponse()
            text = response.read().decode()
            # That a slot file can't be read is 400, as with llama-server.
            if response.status >= 500 or (response.status == 400 and "restore" in path):
                outcome = FAILED
            elif response.status != 200:
                outcome = f"{path}: {response.status} {text}"
            else:
                outcome = essence(path, text) if method == "POST" else "200"
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            own.close()
            outcome = FAILED
        if connection is None:
            own.close()
        self.outcomes.append(outcome)
        return outcome

    def run(self):
        chat = {"messages": [{"role": "user", "content": "Name a colour."}], **GREEDY}
        self.ask("POST", "/v1/chat/completions", chat)
        kept_open = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=PATIENCE)
        self.ask("POST", "/completion", FIRST, kept_open)
        self.ask("POST", "/completion", SECOND, kept_open)
        kept_open.close()
        self.ask("POST", "/slots/0?action=save", {"filename": NAME})
        self.ask("POST", "/completion", {**FIRST, "prompt": FIRST["prompt"] + "then ", "n_probs": 2})
        self.ask("POST", "/slots/0?action=restore", {"filename": NAME})
        self.ask("POST", "/completion", {**SECOND, "prompt": SECOND["prompt"] + "When "})
        self.ask("GET", "/metrics")
        return self.outcomes


class Sweep(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.faults = Faults(scratch.name)
        self.slots = os.path.join(scratch.name, "slots")
        os.mkdir(self.slots)
        self.daemon = None
        self.addCleanup(lambda: self.daemon and self.daemon.__exit__())
        self.start()

    def start(self):
        environment = {"LD_PRELOAD": options.preload, "BANKML_FAULTS": self.faults.path}
        if options.trace:
            environment["BANKML_FAULTS_TRACE"] = "1"
        # Attention over q8_0 cells gives the same bits wherever prefill starts: the answers don't depend on the cache.
        self.daemon = Daemon("-np", "1", "--metrics", "--slot-save-path", self.slots, "-ctk", "q8_0", "-ctv", "q8_0",
                             "--idle-timeout", "600", environment=environment)
        self.expected = Session(self.daemon).run()
        self.assertNotIn(FAILED, self.expected)
        self.assertEqual(Session(self.daemon).run(), self.expected)
        self.descriptors = self.open_descriptors()

    def open_descriptors(self):
        """What they are."""
        folder = f"/proc/{self.daemon.process.pid}/fd"
        found = []
        for name in os.listdir(folder):
            try:
                found.append(os.readlink(os.path.join(folder, name)))
            except OSError:  # closed in between
                pass
        return found

    def complaint(self, tolerated):
        """What is wrong with a session in which a call fails; nothing if all is as it should be."""
        outcomes = Session(self.daemon).run()
        counted, failed = self.faults.disarm()
        if self.daemon.process.poll() is not None:
            end = self.daemon.printed()[-300:]
            return counted, f"the daemon ended with status {self.daemon.process.returncode}: {end}"
        wrong = [f"expected {e}, got {o}" for e, o in zip(self.expected, outcomes) if o not in (e, FAILED)]
        if wrong:
            return counted, "; ".join(wrong)
        if outcomes.count(FAILED) > tolerated:
            return counted, f"{outcomes.count(FAILED)} requests failed: {[o == FAILED for o in outcomes]}"
        if not failed and options.every:
            return counted, None
        again = Session(self.daemon).run()
        if again != self.expected:
            return counted, f"afterwards, without a failure: {[o == e for e, o in zip(self.expected, again)]}"
        if os.listdir(self.slots) != [NAME]:
            return counted, f"files are left: {os.listdir(self.slots)}"
        try:
            wait_for("the slot", self.daemon.is_idle)
            wait_for("the descriptors", lambda: len(self.open_descriptors()) <= len(self.descriptors))
        except AssertionError as error:
            return counted, f"{error}: {self.descriptors} were open, {self.open_descriptors()} are"
        return counted, None

    def sweep(self, kind, shorten=False, tolerated=1, repetitions=0):
        repetitions = repetitions or options.repetitions
        self.faults.arm(kind, 1 << 40, shorten)
        Session(self.daemon).run()
        total, _ = self.faults.disarm()
        self.assertGreater(total, 0)
        calls = range(1, total + 1) if options.only is None else [options.only]
        if not options.every and len(calls) > options.samples:
            calls = sorted(random.Random(options.seed).sample(calls, options.samples))
        before = self.daemon.resident_bytes()
        complaints, tried = [], 0
        for n in calls:
            self.faults.arm(kind, n, shorten, repetitions)
            _, complaint = self.complaint(tolerated + repetitions)
            tried += 1
            if complaint:
                complaints.append(f"call {n}: {complaint}")
                print(complaints[-1], file=sys.stderr)
                if options.trace:
                    print(self.daemon.printed()[-8000:], file=sys.stderr)
                self.daemon.__exit__()
                for name in os.listdir(self.slots):
                    os.remove(os.path.join(self.slots, name))
                self.start()
                before = self.daemon.resident_bytes()
        grown = (self.daemon.resident_bytes() - before) / 2**20
        print(f"{self.id().rsplit('.', 1)[1]}: {tried} of {total} calls, {len(complaints)} wrong, memory {grown:+.1f} MiB", file=sys.stderr)
        self.assertEqual(complaints, [])
        self.assertLess(grown, GROWTH_MIB)

    def test_an_allocation_that_fails_costs_one_request(self):
        self.sweep(MEMORY)

    def test_several_allocations_in_a_row_that_fail_do_not_end_the_daemon(self):
        self.sweep(MEMORY, repetitions=SEVERAL)

    def test_no_memory_at_all_for_a_while_does_not_end_the_daemon(self):
        """What is asked then may fail; half-sent requests use up the reserve, and are no worse off afterwards than others."""
        self.faults.arm(MEMORY, 1, repetitions=(1 << 32) - 1)
        half_sent = []
        for _ in range(MANY_CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", self.daemon.port), timeout=PATIENCE)
            self.addCleanup(connection.close)
            connection.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
            half_sent.append(connection)
        for _ in range(5):
            Session(self.daemon).run()
        self.faults.disarm()
        self.assertIsNone(self.daemon.process.poll(), self.daemon.printed()[-300:])
        for connection in half_sent:
            connection.close()
        wait_for("the slot", self.daemon.is_idle)
        self.assertEqual(Session(self.daemon).run(), self.expected)

    def test_a_file_operation_that_fails_costs_one_request(self):
        self.sweep(FILE)

    def test_a_socket_operation_that_fails_costs_one_request(self):
        self.sweep(SOCKET)

    def test_short_writes_to_files_cost_none(self):
        self.sweep(FILE, shorten=True, tolerated=0)

    def test_short_writes_to_sockets_cost_none(self):
        self.sweep(SOCKET, shorten=True, tolerated=0)


def main():
    global options
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preload", type=os.path.abspath)
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--only", type=int)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--repetitions", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options, rest = parser.parse_known_args()
    Daemon.binary, Daemon.model = options.binary, options.model
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
