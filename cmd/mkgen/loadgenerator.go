package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// loadGenerator is a program that others wrote, which measures a server and counts tokens and times on its own.
type loadGenerator struct {
	args func(s *serveBenchFlags, c servedCase, dir string) []string // what it leaves goes to dir
	env  func(key string) []string                                   // nil: nothing beside the program's own
	left string                                                      // the file in dir with what it found
	read func(data []byte) (generated, error)
}

// generated is what a load generator found, of the requests behind those that warm up.
type generated struct {
	requests, failed      int
	shortest              int // tokens of an answer
	first, token, between percentile
	rate                  float64 // tokens of answers a second
}

// loadGenerators are those that are known, by their program's name.
var loadGenerators = map[string]loadGenerator{
	"aiperf":   {args: aiperfArgs, left: "profile_export_aiperf.json", read: readAiperf},
	"guidellm": {args: guidellmArgs, env: guidellmEnv, left: guidellmLeft, read: readGuidellm},
}

// loadGeneratorOf finds a load generator by its program.
func loadGeneratorOf(program string) (loadGenerator, error) {
	g, ok := loadGenerators[filepath.Base(program)]
	if !ok {
		var names []string
		for name := range loadGenerators {
			names = append(names, name)
		}
		slices.Sort(names)
		return g, usagef("--load-generator: found %s, want a program named %s", program, strings.Join(names, " or "))
	}
	return g, nil
}

func aiperfArgs(s *serveBenchFlags, c servedCase, dir string) []string {
	number := strconv.Itoa
	args := []string{"profile", "--model", s.name, "--url", strings.TrimSuffix(s.url, "/v1"), "--endpoint-type",
		"completions", "--streaming", "--tokenizer", s.tokenizer, "--concurrency", number(c.Concurrency),
		"--request-count", number(c.Requests), "--warmup-request-count", number(c.Concurrency),
		"--synthetic-input-tokens-mean", number(c.In), "--synthetic-input-tokens-stddev", "0",
		"--output-tokens-mean", number(c.Out), "--output-tokens-stddev", "0", "--random-seed", "1",
		"--use-server-token-count",
		"--extra-inputs", "ignore_eos:true", "--extra-inputs", "temperature:0", "--ui", "none", "--artifact-dir", dir}
	if key := os.Getenv(keyVariable); key != "" {
		args = append(args, "--api-key", key)
	}
	return args
}

// readAiperf reads what aiperf has written.
func readAiperf(data []byte) (generated, error) {
	type figure struct{ Avg, Min, P50, P99 float64 }
	var read struct {
		Count   figure `json:"request_count"`
		Errors  figure `json:"request_error_rate"` // in percent
		First   figure `json:"time_to_first_token"`
		Token   figure `json:"inter_token_latency"`
		Between figure `json:"inter_chunk_latency"`
		Out     figure `json:"output_sequence_length"`
		Rate    figure `json:"output_token_throughput"`
	}
	if err := json.Unmarshal(data, &read); err != nil {
		return generated{}, fmt.Errorf("aiperf's results: %w", err)
	}
	of := func(f figure) percentile { return percentile{f.P50, f.P99} }
	ended := math.Round(read.Count.Avg)
	failed := 0
	if read.Errors.Avg > 0 {
		failed = max(1, int(math.Round(ended*read.Errors.Avg/100)))
	}
	return generated{requests: int(ended), failed: failed, shortest: int(read.Out.Min), first: of(read.First),
		token: of(read.Token), between: of(read.Between), rate: read.Rate.Avg}, nil
}

const guidellmLeft = "report.json"

// guidellmArgs has as many requests before those that count as run at a time. guidellm makes all prompts before it
// begins, so it is told how many. It sends ignore_eos on its own.
func guidellmArgs(s *serveBenchFlags, c servedCase, dir string) []string {
	all := c.Requests + c.Concurrency
	warm := (float64(c.Concurrency) + 0.5) / float64(all) // it rounds down
	return []string{"benchmark", "run", "--target", strings.TrimSuffix(s.url, "/v1"), "--model", s.name, "--processor",
		s.tokenizer, "--rate-type", "concurrent", "--rate", strconv.Itoa(c.Concurrency), "--max-requests",
		strconv.Itoa(all), "--warmup-percent", strconv.FormatFloat(warm, 'f', 6, 64),
		"--backend-args", `{"extra_body":{"temperature":0}}`,
		"--data", fmt.Sprintf("prompt_tokens=%d,output_tokens=%d,samples=%d", c.In, c.Out, all), "--random-seed", "1",
		"--disable-progress", "--output-path", filepath.Join(dir, guidellmLeft)}
}

// guidellmEnv is where guidellm takes a key from; it must not ask the network for the tokenizer.
func guidellmEnv(key string) []string {
	env := []string{"HF_HUB_OFFLINE=1"}
	if key != "" {
		env = append(env, "GUIDELLM__OPENAI__API_KEY="+key)
	}
	return env
}

// readGuidellm reads what guidellm has written. Its time between tokens is a request's mean.
func readGuidellm(data []byte) (generated, error) {
	type figure struct {
		Successful struct {
			Mean, Min   float64
			Percentiles percentile
		}
	}
	var read struct {
		Benchmarks []struct {
			Totals  struct{ Successful, Errored, Incomplete int } `json:"request_totals"`
			Metrics struct {
				Out   figure `json:"output_token_count"`
				First figure `json:"time_to_first_token_ms"`
				Token figure `json:"inter_token_latency_ms"`
				Rate  figure `json:"output_tokens_per_second"`
			}
		}
	}
	if err := json.Unmarshal(data, &read); err != nil {
		return generated{}, fmt.Errorf("guidellm's results: %w", err)
	}
	if len(read.Benchmarks) != 1 {
		return generated{}, fmt.Errorf("guidellm's results: found %d benchmarks, want 1", len(read.Benchmarks))
	}
	b := read.Benchmarks[0]
	of := func(f figure) percentile { return f.Successful.Percentiles }
	return generated{requests: b.Totals.Successful, failed: b.Totals.Errored + b.Totals.Incomplete,
		shortest: int(b.Metrics.Out.Successful.Min), first: of(b.Metrics.First), token: of(b.Metrics.Token),
		rate: b.Metrics.Rate.Successful.Mean}, nil
}
