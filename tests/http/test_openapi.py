"""Requests made from docs/openapi.json by schemathesis: every answer has a status, a type and a shape that it describes."""

import pathlib
import subprocess
import sys

# Other names of routes that are tested under their first one.
ALIASES = ["/completions", "/chat/completions", "/chat/completions/input_tokens", "/responses", "/responses/input_tokens"]
ALIASES += ["/models", "/v1/health"]
ROOT = pathlib.Path(__file__).parents[2]
SCHEMATHESIS = pathlib.Path(sys.executable).with_name("schemathesis")


def run_schemathesis(server, *flags: str):
    command = [str(SCHEMATHESIS), "run", str(ROOT / "docs" / "openapi.json"), "--url", server.url, "--no-color"]
    command += ["--generation-deterministic", "--no-shrink", "--continue-on-failure"]
    command += ["--suppress-health-check", "all", *flags]
    for path in ALIASES:
        command += ["--exclude-path", path]
    run = subprocess.run(command, capture_output=True, text=True, cwd=server.log_path.parent)
    assert run.returncode == 0, run.stdout + run.stderr
    assert server.process.poll() is None


def test_answers_are_as_described(server):
    checks = "status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance"
    run_schemathesis(server, "--checks", checks, "--phases", "examples,coverage", "--max-examples", "10")


# Infill needs tokens that the tiny model lacks, and properties are not to be changed: 501.
def test_requests_as_described_do_not_fail(server):
    flags = ["--mode", "positive", "--checks", "not_a_server_error", "--phases", "fuzzing", "--max-examples", "5"]
    run_schemathesis(server, *flags, "--exclude-path", "/infill", "--exclude-path", "/props")
