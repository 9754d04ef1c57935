"""Asks a running mkgen serve through the openai client: check.py URL KEY."""

import concurrent.futures
import sys
import typing

import openai

url, key = sys.argv[1:]
client = openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=60)


def refused(kind, **request):
    """Returns the error of a completion that must be refused with an exception of this kind."""
    try:
        client.completions.create(**{"model": "tiny", "prompt": "a"} | request)
    except kind as error:
        return error
    raise AssertionError(f"{request} was not refused")


def models():
    assert [m.id for m in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"


def completions():
    request = dict(model="tiny", prompt="Once upon a time", max_tokens=12, temperature=0)
    whole = client.completions.create(**request)
    assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 12
    events = list(client.completions.create(**request, stream=True, stream_options={"include_usage": True}))
    assert events[-1].choices == [] and events[-1].usage.total_tokens == whole.usage.total_tokens
    assert len(events) == 13, "one event a token, one with the usage"
    assert "".join(e.choices[0].text for e in events[:-1]) == whole.choices[0].text
    many = client.completions.create(model="tiny", prompt=["Once", "The dog"], n=2, max_tokens=3, seed=1, echo=True)
    assert [c.index for c in many.choices] == [0, 1, 2, 3]
    assert many.choices[3].text.startswith("The dog")
    ids = client.completions.create(model="tiny", prompt=[[1, 2, 3], [4, 5]], max_tokens=2, extra_body={"ignore_eos": True, "min_tokens": 2, "top_k": 5})
    assert ids.usage.prompt_tokens == 5 and ids.usage.completion_tokens == 4


def chats():
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    request = dict(model="tiny", messages=messages, max_completion_tokens=8, seed=7, temperature=0.7, top_p=0.9)
    whole = client.chat.completions.create(**request)
    assert whole.choices[0].message.role == "assistant"
    text, roles, last = "", [], None
    for event in client.chat.completions.create(**request, stream=True):
        delta = event.choices[0].delta
        text, last = text + (delta.content or ""), event.choices[0].finish_reason
        roles.append(delta.role)
    assert text == whole.choices[0].message.content, (text, whole)
    assert roles[0] == "assistant" and set(roles[1:]) <= {None} and last == whole.choices[0].finish_reason
    with client.chat.completions.stream(model="tiny", messages=messages, max_completion_tokens=4, seed=7) as stream:
        deltas = [event for event in stream if event.type == "content.delta"]
        assert deltas and stream.current_completion_snapshot.choices[0].finish_reason == "length"


def logprobs():
    request = dict(model="tiny", max_tokens=5, temperature=0)
    whole = client.completions.create(**request, prompt="The dog", logprobs=5, echo=True).choices[0]
    seen = whole.logprobs
    assert seen.token_logprobs[0] is None and len(seen.tokens) == len(seen.token_logprobs) == len(seen.text_offset)
    assert all(top[token] == logprob for token, logprob, top in zip(seen.tokens[1:], seen.token_logprobs[1:], seen.top_logprobs[1:]))
    chat = client.chat.completions.create(**request, messages=[{"role": "user", "content": "hi"}], logprobs=True, top_logprobs=3).choices[0]
    assert len(chat.logprobs.content) == 5 and all(len(one.top_logprobs) == 3 for one in chat.logprobs.content)
    assert all(one.token == one.top_logprobs[0].token for one in chat.logprobs.content)
    biased = client.completions.create(**request, prompt="The", logit_bias={"65": 100}, logprobs=0).choices[0]
    assert len(set(biased.logprobs.tokens)) == 1
    penalised = client.completions.create(model="tiny", prompt="The", max_tokens=30, temperature=0, frequency_penalty=2, presence_penalty=2)
    assert penalised.usage.completion_tokens == 30


def formats():
    import pydantic

    class Pet(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=8)
        age: int = pydantic.Field(ge=0, le=30)
        friend: typing.Optional[typing.Literal["dog", "cat"]]

    ask = dict(model="tiny", messages=[{"role": "user", "content": "A pet?"}], max_tokens=200, temperature=0.8)
    whole = [client.chat.completions.parse(**ask, response_format=Pet, seed=seed).choices[0] for seed in range(2)]
    assert all(isinstance(one.message.parsed, Pet) for one in whole), whole

    class Own(pydantic.BaseModel):
        pet: Pet

    tool = openai.pydantic_function_tool(Own, name="keep")  # its schema has a reference to Pet
    called = client.chat.completions.create(**ask, tools=[tool], tool_choice="required", seed=5).choices[0]
    assert called.finish_reason == "tool_calls", called
    assert all(call.function.name == "keep" and Own.model_validate_json(call.function.arguments) for call in called.message.tool_calls)
    with client.chat.completions.stream(**ask, tools=[tool], tool_choice="required", seed=5) as stream:
        ends = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        streamed = stream.get_final_completion().choices[0]
    assert streamed.finish_reason == "tool_calls" and len(ends) == len(streamed.message.tool_calls), (ends, streamed)
    assert [one.function.arguments for one in streamed.message.tool_calls] == [one.function.arguments for one in called.message.tool_calls]


def stops():
    plain = client.completions.create(model="tiny", prompt="Once upon a time", max_tokens=12, temperature=0).choices[0].text
    got = client.completions.create(model="tiny", prompt="Once upon a time", max_tokens=12, temperature=0, stop=plain[6:8]).choices[0]
    assert got.finish_reason == "stop" and got.text == plain[: plain.index(plain[6:8])]


def errors():
    assert refused(openai.BadRequestError, temperature=3).param == "temperature"
    assert refused(openai.NotFoundError, model="other").code == "model_not_found"
    assert refused(openai.BadRequestError, prompt="a " * 2000).code == "context_length_exceeded"
    assert refused(openai.BadRequestError, logprobs=21).param == "logprobs"
    assert refused(openai.BadRequestError, suffix="x").code == "unsupported_parameter"
    stranger = openai.OpenAI(base_url=url, api_key="another", max_retries=0)
    try:
        stranger.models.list()
    except openai.AuthenticationError as error:
        assert error.code == "invalid_api_key"
    else:
        raise AssertionError("a wrong key was let in")


def together():
    """Twelve requests at once, on four rows: each gets what it gets alone."""
    def ask(i):
        return client.completions.create(model="tiny", prompt=f"The {i}", max_tokens=6, seed=i, temperature=1).choices[0].text
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, range(12))) == [ask(i) for i in range(12)]


def leaving():
    """A client that leaves in the middle: the server answers the next one."""
    with client.completions.create(model="tiny", prompt="Once", max_tokens=300, stream=True, extra_body={"ignore_eos": True}) as stream:
        next(iter(stream))
    completions()


for check in (models, completions, chats, logprobs, formats, stops, errors, together, leaving):
    check()
    print("ok", check.__name__, flush=True)
