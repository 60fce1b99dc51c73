"""A bankmld with a tiny model for each module of tests. BANKMLD names the program."""

import os
import pathlib
import re
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = os.environ.get("BANKMLD", str(ROOT / "build-test" / "bankmld"))
MODEL = ROOT / "tests" / "data" / "tiny" / "tiny-llama-2-Q8_0.gguf"
START_SECONDS = 60


class Server:
    """A running daemon; `url` is where it listens."""

    def __init__(self, directory: pathlib.Path, *flags: str):
        self.log_path = directory / "log"
        command = [PROGRAM, "-m", str(MODEL), "--alias", "tiny", "-c", "1024", "-np", "2", "-n", "8", "--port", "0"]
        command += ["--metrics", "--slot-save-path", str(directory), *flags]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self.url = self._wait_until_ready()

    def _wait_until_ready(self) -> str:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            text = self.log_path.read_text(errors="replace")
            url = re.search(r"listening on (http://\S+)", text)
            if url and re.search(r"\bready\b", text):
                return url.group(1)
            time.sleep(0.05)
        raise RuntimeError("bankmld did not start:\n" + self.log_path.read_text(errors="replace"))

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=30)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Server(tmp_path_factory.mktemp("server"))
    yield running
    assert running.stop() == 0
