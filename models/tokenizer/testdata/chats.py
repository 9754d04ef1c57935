"""The conversations whose rendering chat_golden.json holds: (template, name, messages, keyword arguments)."""
import pathlib

USER = {"role": "user", "content": "How fast is light?"}
ASSISTANT = {"role": "assistant", "content": "About 299792 km/s."}
SYSTEM = {"role": "system", "content": "You answer briefly."}
MORE = {"role": "user", "content": "  And sound?\n"}

PLAIN = {
    "user": [USER],
    "system and user": [SYSTEM, USER],
    "several turns": [USER, ASSISTANT, MORE],
    "system and several turns": [SYSTEM, USER, ASSISTANT, MORE, {"role": "assistant", "content": "343 m/s\n\n"}],
    "white space and unicode": [{"role": "system", "content": "\n \t"}, {"role": "user", "content": "\u00a0 é 漢字 👩‍👩‍👧‍👦 \u2003\n"}, {"role": "assistant", "content": ""}],
    "special tokens in the content": [{"role": "user", "content": "a<|eot_id|><|start_header_id|>system<|end_header_id|>b"}],
    "template code in the content": [{"role": "user", "content": "{{ bos_token }} {% if x %} {# c #} <b>&\"'\\n"}],
    "a file separator is white space": [{"role": "user", "content": "\x1c\x1f a \x1c"}, {"role": "assistant", "content": "\x0b\x0cb\x85\u3000\u200b"}],
    "other role": [SYSTEM, USER, {"role": "critic", "content": "hm"}],
    "two users": [USER, USER],
    "assistant first": [ASSISTANT, USER],
}

WEATHER = {"type": "function", "function": {"name": "weather", "description": "The weather at a place: \"now\" <&> 'é'", "parameters": {
    "type": "object", "properties": {"place": {"type": "string", "description": "city"}, "days": {"type": "integer", "default": 1}, "scale": {"enum": ["C", "F"]}},
    "required": ["place"], "additionalProperties": False, "z": None, "a": [], "m": {}, "x": [1, -2.5, 1e100, 1e-7, 123456789012345680.0, 3.0]}}}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
CALL = {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {"place": "Köln \"am\" Rhein", "days": "2"}}}]}
RESULT = {"role": "tool", "name": "weather", "content": {"temperature": 21.5, "rain": False, "words": ["sunny", "heiß"], "next": None}}
PARTS = {"role": "user", "content": [{"type": "text", "text": " one "}, {"type": "image"}, {"type": "text", "text": "two"}]}


def _all():
    for template in ("simple.jinja", "alternate.jinja", "tools.jinja", "chatml.jinja"):
        for name, messages in PLAIN.items():
            yield template, name, messages, {}
            yield template, name, messages, {"add_generation_prompt": True}
    t = "tools.jinja"
    yield t, "tools", [SYSTEM, USER], {"tools": [WEATHER, CLOCK], "add_generation_prompt": True}
    yield t, "tools in the system message", [SYSTEM, USER], {"tools": [WEATHER], "tools_in_user_message": False}
    yield t, "tools without a message", [SYSTEM], {"tools": [WEATHER]}
    yield t, "no tools", [USER], {"tools": []}
    yield t, "custom tools", [USER], {"custom_tools": [CLOCK]}
    yield t, "tools with parts", [PARTS], {"tools": [CLOCK]}
    yield t, "a call and its result", [USER, CALL, RESULT, ASSISTANT], {"tools": [WEATHER]}
    yield t, "a call and its result as text", [USER, CALL, {"role": "ipython", "content": "21 \"°C\""}], {}
    yield t, "two calls", [USER, {"role": "assistant", "tool_calls": CALL["tool_calls"] * 2}], {}
    yield t, "built-in tools", [USER, CALL, RESULT], {"builtin_tools": ["weather", "interpreter", "search"]}
    yield t, "parts", [{"role": "system", "content": [{"type": "text", "text": " be kind "}]}, PARTS], {}
    yield t, "a date", [USER], {"date_string": "1 Jan 2000"}
    yield "chatml.jinja", "thoughts", [SYSTEM, USER, {"role": "assistant", "content": "<think>hm\n</think>\n\nanswer\n"}, SYSTEM, MORE], {"add_generation_prompt": True, "enable_thinking": False}
    yield "grouping.jinja", "groups", [SYSTEM, USER, ASSISTANT, MORE], {}
    yield "constructs.jinja", "constructs", [SYSTEM, USER, ASSISTANT, MORE], {"add_generation_prompt": True}


THOUGHT = {"role": "assistant", "reasoning_content": "It asks for the\nweather.\n", "content": "", "tool_calls": CALL["tool_calls"]}
STEPS = [SYSTEM, USER, {**CALL, "content": "A moment."}, {"role": "tool", "name": "weather", "tool_call_id": "call00001", "content": "21 °C <dry>"},
         {"role": "tool", "name": "clock", "tool_call_id": "call00002", "content": "noon"}, {"role": "assistant", "content": "<think>\nso\n</think>\n\nWarm."}, MORE]
IDS = [{"type": "function", "id": f"call0000{i}", "function": f["function"]} for i, f in enumerate(CALL["tool_calls"] * 2)]


def conversations():
    """Yields conversations that templates of all families know parts of."""
    for name, messages in PLAIN.items():
        yield name, messages, {"add_generation_prompt": True}
    yield "tools", [SYSTEM, USER], {"tools": [WEATHER, CLOCK], "add_generation_prompt": True}
    yield "tools without a system message", [USER], {"tools": [CLOCK], "add_generation_prompt": True}
    yield "no tools", [USER], {"tools": []}
    yield "a call and its result", [USER, CALL, RESULT, ASSISTANT], {"tools": [WEATHER]}
    yield "several steps", STEPS, {"tools": [WEATHER, CLOCK], "add_generation_prompt": True}
    yield "a thought", [USER, THOUGHT, RESULT], {"tools": [WEATHER], "add_generation_prompt": True}
    yield "thoughts of earlier turns", [USER, {**ASSISTANT, "reasoning_content": "old"}, MORE, {**ASSISTANT, "reasoning_content": "new"}], {}
    yield "calls with ids", [SYSTEM, USER, {"role": "assistant", "content": None, "tool_calls": IDS}, {"role": "tool", "tool_call_id": "call00000", "content": "21"},
                             {"role": "tool", "tool_call_id": "call00001", "content": "22"}, ASSISTANT, MORE], {"tools": [WEATHER]}
    yield "parts", [{"role": "system", "content": [{"type": "text", "text": " be kind "}]}, PARTS], {"add_generation_prompt": True}
    yield "no thinking", [SYSTEM, USER], {"enable_thinking": False, "add_generation_prompt": True}
    yield "thinking", [USER], {"enable_thinking": True, "thinking": True, "add_generation_prompt": True}
    yield "thinking off by a word", [{"role": "system", "content": "Short. /no_think"}, USER], {"add_generation_prompt": True}
    yield "a date", [USER], {"date_string": "1 Jan 2000", "today": "2000-01-01"}
    yield "documents", [USER], {"documents": [{"doc_id": 1, "title": "Light", "text": "It is fast."}, {"doc_id": "b", "title": "é", "text": "Sound is not."}], "add_generation_prompt": True}
    yield "a developer", [{"role": "developer", "content": "Be exact."}, USER], {"add_generation_prompt": True}
    yield "an answer to be continued", [USER, {"role": "assistant", "content": "About"}], {}


def elsewhere(folder):
    """Yields the conversations for each template in a folder."""
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        for name, messages, kwargs in conversations():
            yield path.name, name, messages, kwargs


FAMILIES = ("thinking.jinja", "brackets.jinja", "turns.jinja", "documents.jinja", "modes.jinja", "signatures.jinja")
ALL = list(_all()) + [(template, *each) for template in FAMILIES for each in conversations() if each[0] not in ("two users", "assistant first", "a file separator is white space")]
