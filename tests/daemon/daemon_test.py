#!/usr/bin/env python3
"""The daemon as a service: sockets, signals, limits, logs. daemon_test.py BINARY MODEL [unittest arguments]"""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from daemon import PATIENCE, Answer, Daemon, receive_all, receive_until, request_bytes, wait_for

ENDLESS = ("-np", "1", "--context-shift", "--metrics")
SHORT = {"prompt": [1, 2, 3], "n_predict": 4, "ignore_eos": True}


def refuses_connections(daemon):
    try:
        daemon.connect().close()
    except ConnectionError:
        return True
    return False


class NotifySocket:
    """What a service manager listens on."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(PATIENCE)

    def wait_for(self, text):
        seen = []
        while not seen or text not in seen[-1]:
            seen.append(self.socket.recv(4096).decode())
        return seen


class ServiceManager(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.notify = NotifySocket(scratch.name)
        self.addCleanup(self.notify.socket.close)
        self.environment = {"NOTIFY_SOCKET": self.notify.path}

    def test_hears_of_progress_readiness_and_the_stop(self):
        with Daemon(environment=self.environment) as daemon:
            messages = self.notify.wait_for("READY=1")
            self.assertTrue(any(m.startswith("STATUS=loading the model: ") for m in messages), messages)
            daemon.signal(signal.SIGTERM)
            self.notify.wait_for("STOPPING=1")
            self.assertEqual(daemon.wait_for_end(), 0)

    def test_that_does_not_read_holds_nothing_up(self):
        with Daemon(environment={**self.environment, "WATCHDOG_USEC": "40000"}) as daemon:
            self.notify.wait_for("READY=1")
            waiting = int(pathlib.Path("/proc/sys/net/unix/max_dgram_qlen").read_text())  # as many as may wait to be read
            for _ in range(waiting + 10):
                time.sleep(0.01)  # the share of the time after which the engine reports again
                self.assertEqual(daemon.ask("POST", "/completion", {"prompt": "a", "n_predict": 1}).status, 200)

    def test_is_told_by_the_engine_that_it_lives_idle_or_busy(self):
        with Daemon(*ENDLESS, environment={**self.environment, "WATCHDOG_USEC": "200000"}) as daemon:
            self.notify.wait_for("READY=1")
            self.notify.wait_for("WATCHDOG=1")
            self.notify.wait_for("WATCHDOG=1")
            with daemon.start_endless():
                self.notify.wait_for("WATCHDOG=1")
                self.notify.wait_for("WATCHDOG=1")

    def test_hears_nothing_of_life_where_no_watchdog_is_on(self):
        with Daemon(environment={**self.environment, "WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"}) as daemon:
            self.notify.wait_for("READY=1")
            daemon.signal(signal.SIGTERM)
            self.assertFalse([m for m in self.notify.wait_for("STOPPING=1") if "WATCHDOG" in m])

    def test_passes_sockets_that_outlive_a_restart(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket() as tcp, \
                socket.socket(socket.AF_UNIX) as unix, socket.socket(socket.AF_UNIX) as client:
            tcp.bind(("127.0.0.1", 0))
            unix.bind(os.path.join(folder, "socket"))
            for listening in (tcp, unix):
                listening.listen()
            with Daemon(sockets=(tcp, unix)) as first:
                self.assertEqual(first.ask("GET", "/health").status, 200)
                first.signal(signal.SIGTERM)
                self.assertEqual(first.wait_for_end(), 0)
            self.assertTrue(os.path.exists(unix.getsockname()))
            client.settimeout(PATIENCE)
            client.connect(unix.getsockname())
            client.sendall(request_bytes("POST", "/completion", SHORT, {"Connection": "close"}))
            with Daemon(sockets=(tcp, unix)):
                answer = Answer(receive_all(client))
                self.assertIn(answer.status, (200, 503))  # 503 while the model is loading, but no refusal

    def test_reload_is_announced(self):
        with Daemon(environment=self.environment) as daemon:
            self.notify.wait_for("READY=1")
            daemon.signal(signal.SIGHUP)
            self.notify.wait_for("RELOADING=1")
            self.notify.wait_for("READY=1")


class Reload(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.keys = os.path.join(scratch.name, "keys")
        self.settings = os.path.join(scratch.name, "settings")

    def write(self, path, text):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def reload(self, daemon, expected="reloaded"):
        before = daemon.log().count(expected)
        daemon.signal(signal.SIGHUP)
        wait_for("the reload", lambda: daemon.log().count(expected) > before)

    def status(self, daemon, key):
        return daemon.ask("GET", "/props", headers={"Authorization": f"Bearer {key}"}).status

    def test_takes_new_keys_limits_and_log_level(self):
        self.write(self.keys, "old\n")
        self.write(self.settings, f"# comment\nLLAMA_ARG_API_KEY_FILE={self.keys}\n")
        with Daemon("--env-file", self.settings) as daemon:
            self.assertEqual(self.status(daemon, "old"), 200)
            self.write(self.keys, "new\n")
            self.write(self.settings, f"LLAMA_ARG_API_KEY_FILE={self.keys}\nBANKML_MAX_BODY=1\n"
                                      "LLAMA_ARG_LOG_VERBOSITY=4\n")
            self.reload(daemon)
            self.assertEqual(self.status(daemon, "old"), 401)
            self.assertEqual(self.status(daemon, "new"), 200)
            body = b" " * ((1 << 20) + 1)
            self.assertEqual(daemon.ask("POST", "/tokenize", body, {"X-Api-Key": "new"}).status, 413)
            self.assertIn("trace request", daemon.log())

    def test_can_be_tried_before(self):
        """What `systemctl reload` asks first."""
        for text, status, said in (("LLAMA_API_KEY=key\n", 0, "can be used"), ("BANKML_MAX_QUEUE=many\n", 1, "BANKML_MAX_QUEUE"),
                                   (f"LLAMA_ARG_API_KEY_FILE={self.keys}\n", 1, self.keys)):
            self.write(self.settings, text)
            run = subprocess.run([Daemon.binary, "--check", "--env-file", self.settings], capture_output=True,
                                 timeout=PATIENCE, check=False)
            self.assertEqual(run.returncode, status, run)
            self.assertIn(said, (run.stdout + run.stderr).decode())

    def test_keeps_everything_if_the_file_is_unusable(self):
        self.write(self.settings, "LLAMA_API_KEY=key\n")
        with Daemon("--env-file", self.settings) as daemon:
            self.write(self.settings, "LLAMA_API_KEY=other\nBANKML_MAX_QUEUE=many\n")
            self.reload(daemon, "everything stays as it was")
            self.assertIn("BANKML_MAX_QUEUE", daemon.log())
            self.assertEqual(self.status(daemon, "key"), 200)
            self.assertEqual(self.status(daemon, "other"), 401)


class Stop(unittest.TestCase):
    def test_lets_a_running_answer_end(self):
        with Daemon(*ENDLESS, "--drain-timeout", "60") as daemon, daemon.connect() as client:
            body = {**SHORT, "n_predict": 2000, "stream": True}
            client.sendall(request_bytes("POST", "/completion", body))
            receive_until(client, b'"stop":false')
            daemon.signal(signal.SIGTERM)
            data = receive_all(client)
            self.assertIn(b'"tokens_predicted":2000', data)
            self.assertTrue(data.endswith(b"0\r\n\r\n"))
            self.assertEqual(daemon.wait_for_end(), 0)

    def test_ends_others_after_the_deadline_with_a_last_event(self):
        with Daemon(*ENDLESS, "--drain-timeout", "1") as daemon, daemon.start_endless() as stream, \
                daemon.connect() as queued:
            queued.sendall(request_bytes("POST", "/completion", SHORT))
            wait_for("the queue", lambda: daemon.deferred() == 1)
            start = time.monotonic()
            daemon.signal(signal.SIGTERM)
            data = receive_all(stream)
            last = data.rsplit(b"data: ", 1)[1]
            self.assertTrue(last.endswith(b"\n\n\r\n0\r\n\r\n"), last)
            self.assertEqual(json.loads(last.split(b"\n")[0])["error"]["type"], "unavailable_error")
            self.assertEqual(Answer(receive_all(queued)).status, 503)
            self.assertEqual(daemon.wait_for_end(), 0)
            self.assertLess(time.monotonic() - start, 1 + 5)

    def test_closes_idle_connections_and_takes_no_new_ones(self):
        with Daemon(*ENDLESS, "--drain-timeout", "60") as daemon, daemon.start_endless(), daemon.connect() as idle:
            idle.sendall(request_bytes("GET", "/health"))
            receive_until(idle, b"}")  # the daemon has taken the connection
            daemon.signal(signal.SIGTERM)
            self.assertEqual(receive_all(idle), b"")
            wait_for("connections to be refused", lambda: refuses_connections(daemon))
            daemon.signal(signal.SIGTERM)
            self.assertEqual(daemon.wait_for_end(), 1)  # at once: the second signal


class Clients(unittest.TestCase):
    def test_that_send_no_more_get_their_answer(self):
        with Daemon(*ENDLESS) as daemon:
            for stream in (False, True):
                with daemon.connect() as client:
                    client.sendall(request_bytes("POST", "/completion", {**SHORT, "n_predict": 3000, "stream": stream}))
                    client.shutdown(socket.SHUT_WR)
                    data = receive_all(client)
                    self.assertEqual(Answer(data).status, 200)
                    self.assertIn(b'"tokens_predicted":3000', data)

    def test_that_leave_free_their_place(self):
        with Daemon(*ENDLESS) as daemon:
            for stream in (True, False):
                client = daemon.start_endless(stream=stream)
                wait_for("the slot", lambda: not daemon.is_idle())
                client.close()
                wait_for("the slot to be free", daemon.is_idle)

    def test_that_leave_the_queue_are_forgotten(self):
        with Daemon(*ENDLESS) as daemon, daemon.start_endless():
            queued = daemon.connect()
            queued.sendall(request_bytes("POST", "/completion", SHORT))
            wait_for("the queue", lambda: daemon.deferred() == 1)
            queued.close()
            wait_for("the queue to be empty", lambda: daemon.deferred() == 0)

    def test_that_leave_right_after_their_answer_are_forgotten(self):
        with Daemon(*ENDLESS, "--idle-timeout", "600") as daemon:
            for _ in range(200):
                with daemon.connect() as client:
                    client.sendall(request_bytes("POST", "/completion", {**SHORT, "stream": True}))
                    receive_until(client, b'"stop":true')
            wait_for("their connections to be closed", lambda: daemon.connections() == 1)

    def test_1000_idle_ones_take_less_than_50_mib(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        with Daemon("--metrics", "--idle-timeout", "600") as daemon:
            daemon.ask("GET", "/health")
            before = daemon.resident_bytes()
            clients = [daemon.connect() for _ in range(1000)]
            for client in clients:
                client.sendall(request_bytes("GET", "/props"))
                receive_until(client, b"is_sleeping")
            grown = daemon.resident_bytes() - before
            wait_for("the connections to be counted", lambda: daemon.connections() == 1000 + 1)
            for client in clients:
                client.close()
            self.assertLess(grown, 50 << 20)
            print(f"1000 idle connections: {grown / 2**20:.1f} MiB", file=sys.stderr)

    def test_that_wait_do_not_keep_their_bodies(self):
        count = 8
        large = {**SHORT, "ignored": "x" * (20 << 20)}
        one_arena = {"MALLOC_ARENA_MAX": "1"}  # or each thread keeps some for its next request
        with Daemon(*ENDLESS, environment=one_arena) as daemon, daemon.start_endless():
            before = daemon.resident_bytes()
            clients = []
            for i in range(count):
                clients.append(daemon.connect())
                clients[-1].sendall(request_bytes("POST", "/completion", large))
                wait_for(f"request {i} in the queue", lambda: daemon.deferred() == i + 1)
            grown = daemon.resident_bytes() - before
            for client in clients:
                client.close()
            self.assertLess(grown, (20 << 20) * count / 2)

    def test_200_queued_ones_are_answered_in_order(self):
        with Daemon(*ENDLESS) as daemon:
            first = daemon.start_endless()
            clients = []
            for i in range(200):
                client = daemon.connect()
                client.sendall(request_bytes("POST", "/completion", SHORT, {"X-Request-Id": f"queued-{i:03}"}))
                clients.append(client)
                wait_for(f"request {i} in the queue", lambda: daemon.deferred() == i + 1)
            first.close()
            seen = []
            for client in clients:
                receive_until(client, b'"tokens_predicted":4')
                client.close()
                seen.append(daemon.slots()[0]["id_task"])
            # The engine numbers requests as they come, and the slot works on one after the other.
            numbers = dict(re.findall(r"request queued-(\d+), task (\d+):", daemon.log()))
            tasks = [int(numbers[f"{i:03}"]) for i in range(200)]
            self.assertEqual(tasks, sorted(tasks))
            # Whoever has an answer finds the slot at his task or at a later one, which has a larger number.
            self.assertEqual(seen, sorted(seen))
            self.assertEqual([i for i in range(200) if seen[i] < tasks[i]], [])


class Files(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = os.path.join(scratch.name, "slots")
        os.mkdir(self.folder)

    def act(self, daemon, action):
        return daemon.ask("POST", f"/slots/0?action={action}", {"filename": "file"})

    def assert_slot_goes_on(self, daemon):
        """The slot still has the prompt's three tokens and three of the four of the answer."""
        self.assertEqual(daemon.slots()[0]["n_prompt_tokens"], 6)
        self.assertEqual(daemon.ask("POST", "/completion", SHORT).json()["timings"]["cache_n"], 2)

    def test_of_slots_that_may_not_grow_leave_the_old_one(self):
        with Daemon("-np", "1", "--slot-save-path", self.folder) as daemon:
            daemon.ask("POST", "/completion", SHORT)
            self.assertEqual(self.act(daemon, "save").status, 200)
            with open(os.path.join(self.folder, "file"), "rb") as file:
                saved = file.read()
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (len(saved) // 2, resource.RLIM_INFINITY))
            refused = self.act(daemon, "save")
            self.assertEqual(refused.status, 500)
            self.assertIn("File too large", refused.json()["error"]["message"])
            self.assertEqual(os.listdir(self.folder), ["file"])
            with open(os.path.join(self.folder, "file"), "rb") as file:
                self.assertEqual(file.read(), saved)
            self.assert_slot_goes_on(daemon)
            self.assertEqual(self.act(daemon, "restore").status, 200)

    def test_of_slots_without_their_folder_are_an_error_of_the_request(self):
        with Daemon("-np", "1", "--slot-save-path", self.folder) as daemon:
            daemon.ask("POST", "/completion", SHORT)
            os.rmdir(self.folder)
            refused = self.act(daemon, "save")
            self.assertEqual(refused.status, 500)
            self.assertIn("No such file or directory", refused.json()["error"]["message"])
            self.assertEqual(self.act(daemon, "restore").status, 400)
            self.assert_slot_goes_on(daemon)

    def test_of_slots_in_a_folder_that_is_not_ours_are_an_error_of_the_request(self):
        folder = "/sys/kernel" if os.geteuid() == 0 else self.folder  # root may write nearly everywhere
        os.chmod(self.folder, 0o500)
        with Daemon("-np", "1", "--slot-save-path", folder) as daemon:
            daemon.ask("POST", "/completion", SHORT)
            refused = self.act(daemon, "save")
            self.assertEqual(refused.status, 500)
            self.assertIn("Permission denied", refused.json()["error"]["message"])
            self.assert_slot_goes_on(daemon)

    def test_of_slots_that_are_torn_or_damaged_leave_the_slot_alone(self):
        with Daemon("-np", "1", "--slot-save-path", self.folder) as daemon:
            daemon.ask("POST", "/completion", SHORT)
            self.act(daemon, "save")
            path = os.path.join(self.folder, "file")
            with open(path, "rb") as file:
                whole = file.read()
            step = len(whole) // 30
            damaged = [whole[:length] for length in range(0, len(whole), step)]
            damaged += [whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1:] for at in range(64, len(whole), step)]
            for content in damaged:
                with open(path, "wb") as file:
                    file.write(content)
                refused = self.act(daemon, "restore")
                self.assertEqual(refused.status, 400)
                self.assertIn("slot file file: ", refused.json()["error"]["message"])
            self.assert_slot_goes_on(daemon)

    def test_of_logs_on_a_full_disk_are_done_without(self):
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            with Daemon("--log-file", "/dev/full", sockets=(listening,), wait=False) as daemon:
                wait_for("the daemon to be ready", lambda: daemon.ask("GET", "/health").status == 200)
                self.assertEqual(daemon.ask("POST", "/completion", SHORT).status, 200)
                self.assertIsNone(daemon.process.poll())


class Models(unittest.TestCase):
    def test_that_cannot_be_served_are_named_before_their_weights_are_loaded(self):
        whole = pathlib.Path(Daemon.model).read_bytes()
        for key in ("general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.pre"):
            with self.subTest(key), tempfile.NamedTemporaryFile(suffix=".gguf") as other:
                at = whole.index(key.encode()) + len(key) + 4  # behind the type
                length = int.from_bytes(whole[at:at + 8], "little")
                unknown = b"x" * length
                other.write(whole[:at + 8] + unknown + whole[at + 8 + length:])
                other.flush()
                run = subprocess.run([Daemon.binary, "-m", other.name, "--port", "0", "-lv", "4"], capture_output=True,
                                     timeout=PATIENCE, check=False)
                self.assertEqual(run.returncode, 1)
                last = run.stderr.decode().splitlines()[-1]
                self.assertTrue(last.startswith(f"bankmld: {other.name}: "), last)
                self.assertIn(f"'{unknown.decode()}'", last)
                self.assertNotIn(b"model loaded", run.stdout + run.stderr)


class Limits(unittest.TestCase):
    def test_of_connections_answer_503(self):
        with Daemon("--max-connections-per-address", "3") as daemon:
            held = [daemon.connect() for _ in range(3)]
            for client in held:
                self.addCleanup(client.close)
                client.sendall(request_bytes("GET", "/health"))
                receive_until(client, b'"ok"')
            refused = daemon.ask("GET", "/health")
            self.assertEqual(refused.status, 503)
            self.assertIn("retry-after", refused.headers)
            held.pop().close()
            wait_for("a place", lambda: daemon.ask("GET", "/health").status == 200)

    def test_of_the_queue_answer_503(self):
        with Daemon(*ENDLESS, "--max-queue", "1") as daemon, daemon.start_endless(), daemon.connect() as queued:
            queued.sendall(request_bytes("POST", "/completion", SHORT))
            wait_for("the queue", lambda: daemon.deferred() == 1)
            refused = daemon.ask("POST", "/completion", {**SHORT, "stream": True})
            self.assertEqual(refused.status, 503)
            self.assertIn("retry-after", refused.headers)
            self.assertEqual(refused.json()["error"]["type"], "unavailable_error")

    def test_of_time_close_silent_connections(self):
        with Daemon("--idle-timeout", "1", "--header-timeout", "1") as daemon:
            for begun in (b"", b"GET /health HTTP/1.1\r\nHost:"):
                with daemon.connect() as client:
                    client.sendall(begun)
                    self.assertEqual(receive_all(client), b"")


class Addresses(unittest.TestCase):
    def test_ipv6_and_unix_sockets(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bankmld.sock")
            with Daemon("--host", f"::1,{path}") as daemon:
                for family, address in ((socket.AF_INET6, ("::1", daemon.port)), (socket.AF_UNIX, path)):
                    with socket.socket(family) as client:
                        client.settimeout(PATIENCE)
                        client.connect(address)
                        client.sendall(request_bytes("GET", "/health", headers={"Connection": "close"}))
                        self.assertEqual(Answer(receive_all(client)).status, 200)
            # A path that is left behind by a killed daemon is used again.
            with Daemon("--host", f"127.0.0.1,{path}"):
                pass


class Logs(unittest.TestCase):
    def test_name_requests_and_never_keys(self):
        with Daemon("-v", "--api-key", "secret-user", "--admin-key", "secret-admin", "--slot-save-path", "/tmp") as daemon:
            key = {"Authorization": "Bearer secret-user"}
            named = daemon.ask("POST", "/completion", SHORT, {**key, "X-Request-Id": "my-id.7"})
            self.assertEqual(named.headers["x-request-id"], "my-id.7")
            self.assertEqual(daemon.ask("POST", "/slots/0?action=erase", b"", key).status, 403)
            self.assertEqual(daemon.ask("POST", "/slots/0?action=erase", b"", {"X-Api-Key": "secret-admin"}).status, 200)
            self.assertEqual(daemon.ask("GET", "/slots", headers={"X-Api-Key": "secret-wrong"}).status, 401)
            bad = daemon.ask("POST", "/completion", b"{", {**key, "X-Request-Id": "two words"})
            self.assertNotEqual(bad.headers["x-request-id"], "two words")
            self.assertIn("request my-id.7", daemon.log())
            self.assertIn(f"request {bad.headers['x-request-id']}", daemon.log())
            self.assertNotIn("secret-", daemon.log())

    def test_as_json_are_one_object_a_line(self):
        with Daemon("--log-format", "json", wait=False) as daemon:
            wait_for("the daemon to be ready", lambda: '"ready"' in daemon.log())
            daemon.signal(signal.SIGTERM)
            daemon.wait_for_end()
            for line in daemon.printed().splitlines():
                self.assertIn("message", json.loads(line))

    def test_to_a_path_that_is_none_are_an_error_at_the_start(self):
        run = subprocess.run([Daemon.binary, "-m", Daemon.model, "--log-file", "/nowhere/log"], capture_output=True,
                             timeout=PATIENCE, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn(b"/nowhere", run.stderr)


class Metrics(unittest.TestCase):
    def test_are_what_prometheus_reads(self):
        if not shutil.which("promtool"):
            self.skipTest("no promtool (Debian package prometheus)")
        with Daemon("--metrics") as daemon:
            daemon.ask("POST", "/completion", SHORT)
            page = daemon.ask("GET", "/metrics").body
            check = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
            complaints = [line for line in (check.stdout + check.stderr).decode().splitlines() if line]
            # The names that llama-server has are not to be changed.
            self.assertEqual([line for line in complaints if not line.startswith("llamacpp:")], [])
            self.assertIn(b"bankmld_time_to_first_token_seconds_count 1", page)
            self.assertIn(b'bankmld_requests_total{outcome="done"} 1', page)

    def test_are_all_that_the_dashboard_asks_for(self):
        dashboard = pathlib.Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"
        json.loads(dashboard.read_text())
        asked = set(re.findall(r"(?:bankmld_|llamacpp:)[a-z_]+", dashboard.read_text()))
        with Daemon("--metrics") as daemon:
            page = daemon.ask("GET", "/metrics").body.decode()
        given = set(re.findall(r"^((?:bankmld_|llamacpp:)[a-z_]+)", page, re.MULTILINE))
        self.assertGreater(len(asked), 10)
        self.assertEqual(asked - given, set())


if __name__ == "__main__":
    Daemon.binary, Daemon.model = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
