"""Starts the daemon and talks to it over raw sockets, for the tests beside this file."""
import json
import os
import signal
import socket
import subprocess
import tempfile
import time

PATIENCE = 60  # seconds until a test gives up waiting; nothing is measured by it


def wait_for(what, condition):
    """The first true value of condition()."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {PATIENCE} s for {what}")


def receive_all(sock):
    data = b""
    while part := sock.recv(1 << 16):
        data += part
    return data


def receive_until(sock, text):
    data = b""
    while text not in data:
        part = sock.recv(1 << 16)
        if not part:
            raise AssertionError(f"the connection ended before {text!r}; it gave {data!r}")
        data += part
    return data


def request_bytes(method, path, body=None, headers=None):
    payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: test"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body is not None:
        lines.append(f"Content-Length: {len(payload)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + payload


class Answer:
    def __init__(self, data):
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}

    def json(self):
        return json.loads(self.body)


class Daemon:
    """A running daemon; use it in a `with`. `sockets`: listening sockets that it inherits."""

    binary = model = None

    def __init__(self, *flags, environment=None, sockets=(), port=0, wait=True):
        self.scratch = tempfile.TemporaryDirectory()
        self.log_path = os.path.join(self.scratch.name, "log")
        arguments = [self.binary, "-m", self.model, "-c", "256", "-t", "1", "--log-file", self.log_path]
        if not sockets:
            arguments += ["--port", str(port)]
        arguments += flags
        variables = {"PATH": os.environ["PATH"], **(environment or {})}

        def inherit():
            copies = [os.dup(s.fileno()) for s in sockets]
            for i, copy in enumerate(copies):
                os.dup2(copy, 3 + i)
                os.set_inheritable(3 + i, True)

        if sockets:
            variables["LISTEN_FDS"] = str(len(sockets))
            arguments = ["/bin/sh", "-c", 'export LISTEN_PID=$$; exec "$@"', "sh", *arguments]
        self.output = tempfile.TemporaryFile()  # a pipe would be full at some time
        self.process = subprocess.Popen(arguments, env=variables, stdout=self.output, stderr=subprocess.STDOUT,
                                        preexec_fn=inherit, close_fds=not sockets)
        self.port = sockets[0].getsockname()[1] if sockets else port
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self):
        wait_for("the daemon to be ready", lambda: " ready\n" in self.log() or self.process.poll() is not None)
        if self.process.poll() is not None:
            raise AssertionError(f"the daemon has ended: {self.printed()}")
        if not self.port:
            self.port = int(self.log().split("listening on http://", 1)[1].split("\n")[0].rsplit(":", 1)[1])

    def log(self):
        if not os.path.exists(self.log_path):
            return ""
        with open(self.log_path, encoding="utf-8") as file:
            return file.read()

    def printed(self):
        """What it has written to stdout and stderr."""
        return os.pread(self.output.fileno(), os.fstat(self.output.fileno()).st_size, 0).decode(errors="replace")

    def connect(self):
        sock = socket.create_connection(("127.0.0.1", self.port))
        sock.settimeout(PATIENCE)
        return sock

    def ask(self, method, path, body=None, headers=None):
        with self.connect() as sock:
            sock.sendall(request_bytes(method, path, body, {"Connection": "close", **(headers or {})}))
            return Answer(receive_all(sock))

    def slots(self):
        return self.ask("GET", "/slots").json()

    def is_idle(self):
        return not any(slot["is_processing"] for slot in self.slots())

    def metric(self, name):
        text = self.ask("GET", "/metrics").body.decode()
        return int(float(text.split(f"\n{name} ", 1)[1].split("\n")[0]))

    def deferred(self):
        return self.metric("llamacpp:requests_deferred")

    def connections(self):
        """Those that are open, that of this question among them."""
        return self.metric("bankmld_connections")

    def start_endless(self, stream=True, **fields):
        """A connection on which an answer without end has begun; needs --context-shift."""
        sock = self.connect()
        body = {"prompt": [1, 2, 3], "ignore_eos": True, "stream": stream, **fields}
        sock.sendall(request_bytes("POST", "/completion", body))
        if stream:
            receive_until(sock, b'"stop":false')
        return sock

    def signal(self, number):
        self.process.send_signal(number)

    def wait_for_end(self):
        return self.process.wait(PATIENCE)

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.output.close()
        self.scratch.cleanup()
