package serve

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/sampling"
)

// Limits of one request.
const (
	mostChoices = 128 // n
	mostStops   = 16
)

// prompt is one prompt as tokens, with its text where that is to be echoed.
type prompt struct {
	tokens []int
	text   string
}

// task is a parsed request: n sequences for each prompt.
type task struct {
	chat    bool
	prompts []prompt
	n       int
	request engine.Request // of each, but for its tokens and its choice's seed
	model   string         // as asked for, "" for none
	echo    bool
	none    bool // no token is to be generated (echo with max_tokens 0)

	stream          bool
	usage           bool // a last event has the usage
	continuousUsage bool // every event has it
}

// refusedFields would change the answer, so they are refused where they say something.
var refusedFields = []struct {
	name, why string
	neutral   []float64 // numbers that change nothing
}{
	{"logprobs", "the engine gives no log-probabilities", nil},
	{"top_logprobs", "the engine gives no log-probabilities", []float64{0}},
	{"prompt_logprobs", "the engine gives no log-probabilities", nil},
	{"suffix", "the model continues text, it does not fill gaps", nil},
	{"logit_bias", "the engine cannot change logits", nil},
	{"presence_penalty", "the engine has no penalties", []float64{0}},
	{"frequency_penalty", "the engine has no penalties", []float64{0}},
	{"repetition_penalty", "the engine has no penalties", []float64{1}},
	{"length_penalty", "the engine has no beam search", []float64{1}},
	{"use_beam_search", "the engine has no beam search", nil},
	{"best_of", "all choices are returned; want n", []float64{0, 1}},
	{"functions", "functions are out of date; want tools", nil},
	{"audio", "the model writes text only", nil},
	{"guided_json", "the engine has no token masks", nil},
	{"guided_regex", "the engine has no token masks", nil},
	{"guided_choice", "the engine has no token masks", nil},
	{"guided_grammar", "the engine has no token masks", nil},
	{"structured_outputs", "the engine has no token masks", nil},
	{"bad_words", "the engine has no token masks", nil},
	{"allowed_token_ids", "the engine has no token masks", nil},
	{"stop_token_ids", "only the model's own end tokens end a text", nil},
}

// refuseUnsupported refuses the first field that the server cannot honour.
func refuseUnsupported(f *fields) *Error {
	for _, r := range refusedFields {
		var v float64
		if f.empty(r.name) || json.Unmarshal(f.raw[r.name], &v) == nil && slices.Contains(r.neutral, v) {
			continue
		}
		return unsupported(r.name, r.why)
	}
	format := f.object("response_format")
	if kind := format.text("type"); kind != "" && kind != "text" {
		return unsupported("response_format", "the engine has no token masks; want the type text, found "+kind)
	}
	return f.err
}

// common reads what completions and chats share. most is max_tokens, -1 when it is absent.
func (t *task) common(f *fields) (most int) {
	t.model = f.text("model")
	t.n = int(f.whole("n", 1, 1, mostChoices))
	t.stream = f.flag("stream", false)
	if f.has("stream_options") && !t.stream {
		f.refuse("stream_options", "goes with stream: true")
	}
	options := f.object("stream_options")
	t.usage = options.flag("include_usage", false)
	t.continuousUsage = options.flag("continuous_usage_stats", false)
	if f.err == nil && options.err != nil {
		f.refuse("stream_options", "%s", options.err.Message)
	}
	t.request.Sampling = samplingOf(f)
	t.request.Stop = stops(f)
	t.request.IgnoreEnds = f.flag("ignore_eos", false)
	t.request.MinTokens = int(f.whole("min_tokens", 0, 0, math.MaxInt32))
	most = int(f.whole("max_tokens", -1, 0, math.MaxInt32))
	if t.chat {
		most = int(f.whole("max_completion_tokens", int64(most), 0, math.MaxInt32))
	}
	return most
}

// samplingOf reads how tokens are drawn. As in OpenAI's interface the temperature is 1 where nothing is
// said; with temperature 0 nothing else about the draw means anything.
func samplingOf(f *fields) sampling.Params {
	p := sampling.Params{
		Temperature: f.number("temperature", 1, 0, 2),
		TopK:        int(max(0, f.whole("top_k", 0, -1, math.MaxInt32))),
		TopP:        f.number("top_p", 1, 0, 1),
		MinP:        f.number("min_p", 0, 0, 1),
		Seed:        uint64(f.whole("seed", rand.Int64(), math.MinInt64, math.MaxInt64)),
	}
	if p.TopP == 0 {
		p.TopP = math.SmallestNonzeroFloat64 // one token; 0 would mean all to package sampling
	}
	if p.Temperature == 0 {
		return sampling.Params{}
	}
	return p
}

// stops reads a text or a list of texts.
func stops(f *fields) []string {
	if !f.has("stop") {
		return nil
	}
	var one string
	if json.Unmarshal(f.raw["stop"], &one) == nil {
		if one == "" {
			f.refuse("stop", "found an empty text")
		}
		return []string{one}
	}
	var all []string
	f.read("stop", &all, "a string or a list of strings")
	for _, s := range all {
		if s == "" {
			f.refuse("stop", "found an empty text")
		}
	}
	if len(all) > mostStops {
		f.refuse("stop", "found %d texts, want at most %d", len(all), mostStops)
	}
	return all
}
