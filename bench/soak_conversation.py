"""What the clients of bench/soak say, and what their answers have in common with a repetition."""
import json

TEMPLATE_TOKENS = 80  # what a chat template adds to a turn, at most
WORDS = ("river stone lamp winter garden copper sail bridge honey clock paper north velvet engine orchard salt mirror canyon "
         "thunder basket").split()


def essence(event):
    """What an answer must have in common with its repetition."""
    if "choices" in event:
        return [[choice.get("delta") or choice.get("message"), choice.get("finish_reason"), choice.get("logprobs")]
                for choice in event["choices"]]
    return [event.get(key) for key in ("content", "tokens", "stop", "stop_type", "stopping_word", "truncated", "tokens_predicted",
                                       "tokens_evaluated", "completion_probabilities")]


def stream_events(response):
    for line in response:
        if line.startswith(b"data: ") and line != b"data: [DONE]\n":
            yield json.loads(line[6:])


def first_log_probabilities(event):
    """Of the likeliest first tokens, by id; nothing if the event doesn't tell them.

    An event of a stream that comes late, since the text so far ended within a character, tells of its last token only.
    """
    if isinstance(event[0], list):  # a chat, whose events have no number: one that begins within a character may be late
        entries = (event[0][2] or {}).get("content") or []
        first = entries and entries[0]["bytes"] and entries[0]["bytes"][0] < 0x80
    else:
        tokens, entries = event[1], event[8] or []
        first = tokens and entries and tokens[0] == entries[0]["id"] and event[6] == len(tokens)
    return {p["id"]: p["logprob"] for p in entries[0]["top_logprobs"]} if first else {}


def distance(expected, got):
    """How far apart two answers begin: the largest difference of a log-probability of the first token, 0 if not both tell."""
    # A chat's stream begins with an event without text.
    pairs = [(first_log_probabilities(e), first_log_probabilities(g)) for e, g in list(zip(expected, got))[:2]]
    a, b = next((pair for pair in pairs if pair[0] and pair[1]), ({}, {}))
    common = a.keys() & b.keys()
    if len(common) * 2 < len(a):
        return float("inf")
    return max((abs(a[token] - b[token]) for token in common), default=0.0)


class Conversation:
    """Turns of a chat or of a growing text, with a marker that no other conversation has."""

    def __init__(self, rng):
        self.marker = "mk" + "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=8))
        self.is_chat = rng.random() < 0.4
        self.messages, self.text, self.used = [], "", 0

    def request(self, rng, limit, slots, n_probs):
        """Path and body of the next turn; nothing when the conversation is full."""
        start = f"The word is {self.marker}. " if self.used == 0 else ""
        words = rng.choice((2, 5, 5, 10, 25))
        user = start + " ".join(rng.choice(WORDS) for _ in range(words))
        n_predict = rng.choice((1, 4, 12, 24))
        expected = self.used + len(user) + n_predict + (TEMPLATE_TOKENS if self.is_chat else 2)
        if expected >= limit:
            return None
        body = {"n_predict": n_predict, "temperature": rng.choice((0, 0.8)), "seed": rng.randrange(1 << 30),
                "ignore_eos": rng.random() < 0.8, "stream": rng.random() < 0.5, "cache_prompt": rng.random() < 0.95}
        if rng.random() < 0.1:
            body["id_slot"] = rng.randrange(slots)
        if self.is_chat:
            body["messages"] = self.messages + [{"role": "user", "content": user}]
            if n_probs:
                body |= {"logprobs": True, "top_logprobs": n_probs}
            return "/v1/chat/completions", body
        body["prompt"] = self.text + user + "\n"
        body["return_tokens"] = True
        body["n_probs"] = n_probs or rng.choice((0, 3))
        return "/completion", body

    def take(self, body, events):
        """Goes on from a complete answer."""
        last = events[-1]
        if self.is_chat:
            choices = [choice for event in events for choice in event["choices"]]
            answer = "".join((choice.get("delta") or choice.get("message") or {}).get("content") or "" for choice in choices)
            self.messages = body["messages"] + [{"role": "assistant", "content": answer}]
            self.used += len(body["messages"][-1]["content"]) + 3 * len(answer) + TEMPLATE_TOKENS
        else:
            answer = "".join(event["content"] for event in events)
            self.text = body["prompt"] + answer + "\n"
            # A token of the answer may be several of the next prompt.
            self.used = last["tokens_evaluated"] + max(last["tokens_predicted"], len(answer.encode())) + 1
