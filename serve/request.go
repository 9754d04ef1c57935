package serve

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/grammar"
	"github.com/mkgen/mkgen/engine/sampling"
)

// Limits of one request.
const (
	mostChoices = 128 // n
	mostStops   = 16
	mostBias    = 100
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
	none    bool             // no token is to be generated (echo with max_tokens 0)
	grammar *grammar.Grammar // that answers are kept to; nil for none
	tools   []string         // functions that a chat's answer may call
	forced  bool             // it must call one

	stream          bool
	usage           bool // a last event has the usage
	continuousUsage bool // every event has it
}

// refusedFields would change the answer, so they are refused where they say something.
var refusedFields = []struct {
	name, why string
	neutral   []float64 // numbers that change nothing
}{
	{"prompt_logprobs", "want echo with logprobs, of /v1/completions", nil},
	{"suffix", "the model continues text, it does not fill gaps", nil},
	{"length_penalty", "the engine has no beam search", []float64{1}},
	{"use_beam_search", "the engine has no beam search", nil},
	{"best_of", "all choices are returned; want n", []float64{0, 1}},
	{"functions", "functions are out of date; want tools", nil},
	{"audio", "the model writes text only", nil},
	{"guided_json", "want response_format", nil},
	{"guided_regex", "want response_format", nil},
	{"guided_choice", "want response_format", nil},
	{"guided_grammar", "want response_format", nil},
	{"structured_outputs", "want response_format", nil},
	{"bad_words", "want logit_bias", nil},
	{"allowed_token_ids", "want response_format", nil},
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
	t.request.Penalties = penaltiesOf(f)
	f.read("stop_token_ids", (*ids)(&t.request.StopTokens), "a list of token ids")
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

// penaltiesOf reads what changes logits.
func penaltiesOf(f *fields) sampling.Penalties {
	p := sampling.Penalties{
		Presence:   f.number("presence_penalty", 0, -2, 2),
		Frequency:  f.number("frequency_penalty", 0, -2, 2),
		Repetition: f.number("repetition_penalty", 1, 0.001, 100),
	}
	var bias map[string]*float64
	f.read("logit_bias", &bias, "an object of token ids and numbers")
	for name, x := range bias {
		id, err := strconv.Atoi(name)
		if err != nil || x == nil || *x < -mostBias || *x > mostBias {
			f.refuse("logit_bias", "found %s for token %s, want a token id and -100 to 100", appendJSON(nil, x), quoted(name))
			return p
		}
		if p.Bias == nil {
			p.Bias = map[int]float64{}
		}
		p.Bias[id] = *x
	}
	return p
}

// logprobsOf reads which log-probabilities are wanted: of completions logprobs is how many tokens beside the chosen
// one, of chats it is true or false, and top_logprobs says how many.
func (t *task) logprobsOf(f *fields) {
	r := &t.request
	if !t.chat {
		r.Logprobs = f.has("logprobs")
		r.TopLogprobs = int(f.whole("logprobs", 0, 0, sampling.MaxLogprobs))
		r.PromptLogprobs = r.Logprobs && t.echo
		return
	}
	r.Logprobs = f.flag("logprobs", false)
	if r.TopLogprobs = int(f.whole("top_logprobs", 0, 0, sampling.MaxLogprobs)); r.TopLogprobs > 0 && !r.Logprobs {
		f.refuse("top_logprobs", "goes with logprobs: true")
	}
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
