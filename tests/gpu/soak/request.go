package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// request is one of the soak's, made of its number alone.
type request struct {
	number int
	prompt string
	body   map[string]any
	stream bool
	echo   bool
	most   int           // tokens of the answer
	whole  bool          // the answer has just this many
	schema bool          // the answer is JSON if it comes to its end
	leave  time.Duration // 0: the client stays; else when it goes
}

// words are what prompts are made of.
var words = strings.Fields("the dog ran to park and found a bone while old king of forest said come here my child 3 7 once more")

// schemaOf is what some answers are kept to.
const schemaOf = `{"type":"object","properties":{"name":{"type":"string","maxLength":12},"ages":{"type":"array","items":
{"type":"integer","minimum":0,"maximum":99},"maxItems":4}},"required":["name","ages"],"additionalProperties":false}`

// requestOf makes the n-th request of a seed. Prompts begin with the request's mark, or with one of eight texts that
// others have, too, for the prefix cache, and then the mark.
func requestOf(seed uint64, n, longest int) request {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	q := request{number: n, stream: r.IntN(2) == 0, echo: r.IntN(3) == 0, most: 1 + r.IntN(longest)}
	var text []string
	if r.IntN(3) == 0 {
		shared := rand.New(rand.NewPCG(seed, 1<<40+uint64(r.IntN(8))))
		for range 40 {
			text = append(text, words[shared.IntN(len(words))])
		}
	}
	text = append(text, fmt.Sprintf("request %d", n))
	for range r.IntN(120) {
		text = append(text, words[r.IntN(len(words))])
	}
	q.prompt = strings.Join(text, " ")
	q.body = map[string]any{"prompt": q.prompt, "max_tokens": q.most, "seed": n,
		"temperature": []float64{0, 0.8, 1.5}[r.IntN(3)]}
	if r.IntN(2) == 0 {
		q.body["top_p"], q.body["top_k"] = 0.95, 50
	}
	switch r.IntN(6) {
	case 0:
		q.body["frequency_penalty"], q.body["repetition_penalty"] = 0.7, 1.1
		q.body["logit_bias"] = map[string]float64{"65": 2}
	case 1:
		q.body["logprobs"] = r.IntN(21)
	case 2:
		q.body["stop"] = []string{"zq", "\n\n"}
	case 3:
		q.schema = true
		q.body["response_format"] = map[string]any{"type": "json_schema",
			"json_schema": map[string]any{"name": "s", "schema": json.RawMessage(schemaOf)}}
	case 4:
		q.body["min_p"] = 0.05
	}
	if !q.schema && q.body["stop"] == nil && r.IntN(4) > 0 {
		q.whole, q.body["ignore_eos"] = true, true
	}
	if q.echo {
		q.body["echo"] = true
	}
	if q.stream {
		q.body["stream"], q.body["stream_options"] = true, map[string]any{"include_usage": true}
	}
	if r.IntN(8) == 0 {
		q.leave = time.Duration(1+r.IntN(400)) * time.Millisecond
	}
	return q
}
