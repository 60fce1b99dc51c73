"""The `anthropic` package as a client."""

import anthropic
import pytest

HELLO = [{"role": "user", "content": "Hello"}]
GREEDY = {"temperature": 0}


@pytest.fixture(scope="module")
def client(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


def test_answers_a_message(client):
    message = client.messages.create(model="tiny", messages=HELLO, max_tokens=6, extra_body=GREEDY)
    assert message.role == "assistant"
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 6
    assert [block.type for block in message.content] == ["text"]


def test_streams_the_same_message(client):
    whole = client.messages.create(model="tiny", messages=HELLO, max_tokens=6, extra_body=GREEDY)
    with client.messages.stream(model="tiny", messages=HELLO, max_tokens=6, extra_body=GREEDY) as stream:
        assert "".join(stream.text_stream) == whole.content[0].text
        final = stream.get_final_message()
    assert final.usage.output_tokens == 6
    assert final.stop_reason == "max_tokens"


def test_stops_at_a_sequence(client):
    request = {"model": "tiny", "messages": HELLO, "max_tokens": 24, "extra_body": GREEDY}
    text = client.messages.create(**request).content[0].text
    word = next(letter for letter in text if letter.isascii() and letter.isprintable())
    message = client.messages.create(**request, stop_sequences=[word])
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", word)
    assert "".join(block.text for block in message.content) == text[: text.index(word)]


def test_continues_the_assistants_text(client):
    messages = [*HELLO, {"role": "assistant", "content": "Well, "}]
    message = client.messages.create(model="tiny", messages=messages, max_tokens=4, extra_body=GREEDY)
    assert message.content[0].text.startswith("Well, ")


def test_counts_tokens(client):
    count = client.messages.count_tokens(model="tiny", messages=HELLO).input_tokens
    usage = client.messages.create(model="tiny", messages=HELLO, max_tokens=1).usage
    assert count == usage.input_tokens + usage.cache_read_input_tokens
    longer = client.messages.count_tokens(model="tiny", messages=HELLO, system="You are a parrot.").input_tokens
    assert longer > count


def test_raises_for_a_bad_field(client):
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(model="tiny", messages=HELLO, max_tokens=-2)
