"""The `openai` package as a client."""

import openai
import pytest

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def test_lists_the_model(client):
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_completes_a_chat(client):
    answer = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=4, temperature=0)
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage.completion_tokens == 4
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 4


def test_streams_the_same_chat(client):
    whole = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=6, temperature=0)
    chunks = list(
        client.chat.completions.create(
            model="tiny", messages=HELLO, max_tokens=6, temperature=0, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 6


def test_gives_two_choices(client):
    answer = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=2, n=2, seed=1)
    assert [choice.index for choice in answer.choices] == [0, 1]


def test_gives_logprobs(client):
    answer = client.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=1, temperature=0, logprobs=True, top_logprobs=3
    )
    entries = answer.choices[0].logprobs.content
    assert all(len(entry.top_logprobs) == 3 for entry in entries)
    assert all(entry.logprob == entry.top_logprobs[0].logprob for entry in entries)


def test_completes_several_texts(client):
    answer = client.completions.create(model="tiny", prompt=["a", "b"], max_tokens=2, temperature=0)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.object == "text_completion"


def test_streams_a_text(client):
    whole = client.completions.create(model="tiny", prompt="a", max_tokens=4, temperature=0)
    chunks = list(client.completions.create(model="tiny", prompt="a", max_tokens=4, temperature=0, stream=True))
    streamed = "".join(chunk.choices[0].text for chunk in chunks)
    assert whole.choices[0].text.startswith(streamed)  # an unfinished character at the end is not streamed
    assert chunks[-1].choices[0].finish_reason == "length"


def test_answers_a_response(client):
    response = client.responses.create(model="tiny", input="Hello", max_output_tokens=6, temperature=0)
    assert response.status == "completed"
    assert response.usage.output_tokens == 6
    chat = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=6, temperature=0)
    assert response.output_text == chat.choices[0].message.content


def test_streams_a_response(client):
    events = list(
        client.responses.create(model="tiny", input=HELLO, max_output_tokens=6, temperature=0, stream=True)
    )
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text


def test_raises_for_a_bad_field(client):
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=-5)
    assert "max_tokens" in str(error.value)


def test_raises_for_a_prompt_that_is_too_long(client):
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model="tiny", prompt="x " * 1000)
    assert error.value.body["type"] == "exceed_context_size_error"


def test_raises_for_what_is_not_built(client):
    with pytest.raises(openai.InternalServerError) as error:
        client.embeddings.create(model="tiny", input="x")
    assert error.value.status_code == 501
