"""curl as a client: bytes and headers as they come."""

import json
import subprocess


def curl(url: str, *arguments: str):
    """Status, header lines in lower case, and body."""
    command = ["curl", "--silent", "--show-error", "--max-time", "60", "--include", *arguments, url]
    text = subprocess.run(command, check=True, capture_output=True).stdout.decode()
    head, body = text.split("\r\n\r\n", 1)
    lines = head.lower().split("\r\n")
    return int(lines[0].split()[1]), lines[1:], body


def post(url: str, body, *arguments: str):
    return curl(url, "--data-binary", body if isinstance(body, str) else json.dumps(body), *arguments)


def test_health(server):
    status, headers, body = curl(server.url + "/health")
    assert (status, body) == (200, '{"status":"ok"}')
    assert "content-type: application/json; charset=utf-8" in headers


def test_native_completion(server):
    status, _, body = post(server.url + "/completion", {"prompt": "Once", "n_predict": 3, "temperature": 0})
    answer = json.loads(body)
    assert status == 200
    assert answer["tokens_predicted"] == 3
    assert answer["stop_type"] == "limit"
    assert answer["generation_settings"]["n_predict"] == 3


def test_native_stream_ends_without_done(server):
    status, headers, body = post(server.url + "/completion", {"prompt": "Once", "n_predict": 3, "stream": True})
    assert status == 200
    assert "content-type: text/event-stream" in headers
    assert "x-accel-buffering: no" in headers
    events = [json.loads(event[len("data: ") :]) for event in body.split("\n\n") if event]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]


def test_openai_stream_ends_with_done(server):
    _, _, body = post(server.url + "/v1/completions", {"prompt": "Once", "max_tokens": 2, "stream": True})
    assert body.endswith("data: [DONE]\n\n")


def test_body_that_is_not_json(server):
    for path in ("/completion", "/v1/chat/completions", "/v1/messages", "/v1/responses", "/tokenize", "/apply-template"):
        for text in ("{", "", '{"a":1e999}'):
            status, _, body = post(server.url + path, text)
            assert (status, json.loads(body)["error"]["type"]) == (500, "server_error"), (path, text)


def test_unknown_path_and_wrong_method(server):
    for arguments in (["/nothing"], ["/completion"], ["/health", "--request", "DELETE"]):
        status, _, body = curl(server.url + arguments[0], *arguments[1:])
        assert (status, json.loads(body)["error"]["code"]) == (404, 404)


def test_page_is_cached_by_its_tag(server):
    status, headers, body = curl(server.url + "/")
    assert status == 200 and body.startswith("<!doctype html>")
    tag = next(line.split(": ", 1)[1] for line in headers if line.startswith("etag: "))
    status, _, body = curl(server.url + "/", "--header", "If-None-Match: " + tag)
    assert (status, body) == (304, "")


def test_describes_itself(server):
    _, _, body = curl(server.url + "/openapi.json")
    assert json.loads(body)["openapi"] == "3.1.0"


def test_tokens_there_and_back(server):
    _, _, body = post(server.url + "/tokenize", {"content": "héllo 😀"})
    _, _, body = post(server.url + "/detokenize", body)
    assert json.loads(body) == {"content": "héllo 😀"}


def test_progress_events_cover_the_prompt(server):
    request = {"prompt": "word " * 40, "n_predict": 1, "stream": True, "return_progress": True, "cache_prompt": False}
    _, _, body = post(server.url + "/completion", request)
    events = [json.loads(event[len("data: ") :]) for event in body.split("\n\n") if event]
    progress = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    assert progress[0]["processed"] == progress[0]["cache"]
    assert progress[-1]["processed"] == progress[-1]["total"]


def test_slot_actions(server):
    post(server.url + "/completion", {"prompt": "Once upon", "n_predict": 2, "id_slot": 1})
    status, _, body = post(server.url + "/slots/1?action=save", {"filename": "state"})
    saved = json.loads(body)
    assert status == 200 and saved["n_saved"] > 0
    _, _, body = post(server.url + "/slots/0?action=restore", {"filename": "state"})
    assert json.loads(body)["n_restored"] == saved["n_saved"]
    _, _, body = curl(server.url + "/slots/0?action=erase", "--request", "POST")
    assert json.loads(body)["n_erased"] == saved["n_saved"]
