package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// loadGenerator is bench_serving of sglang, which others wrote: it sends requests, and counts tokens and times on its
// own. It runs as a file: as a module it would import all of sglang.
type loadGenerator struct{ python, file, version string }

// generatorPackage is the last version of sglang whose bench_serving needs neither torch nor datasets.
const generatorPackage = "sglang==0.5.3.post3"

const generatorAt = `import importlib.metadata as m, importlib.util as u
print(m.version("sglang"), u.find_spec("sglang").submodule_search_locations[0])`

// loadGeneratorOf finds the load generator of a Python.
func loadGeneratorOf(ctx context.Context, python string) (loadGenerator, error) {
	said, err := exec.CommandContext(ctx, python, "-c", generatorAt).Output()
	version, dir, ok := strings.Cut(strings.TrimSpace(string(said)), " ")
	if err != nil || !ok {
		return loadGenerator{}, fmt.Errorf("--load-generator: found no sglang in %s (%w); "+
			"pip install --no-deps %s, and aiohttp, numpy, requests, tqdm, transformers", python, err, generatorPackage)
	}
	return loadGenerator{python, filepath.Join(dir, "bench_serving.py"), version}, nil
}

// args are for one measurement; dir has the prompts. A rate without bound would be no number of JSON.
func (g loadGenerator) args(s *serveBenchFlags, c servedCase, dir string) []string {
	return []string{g.file, "--backend", "vllm", "--base-url", s.base(), "--model", s.name, "--tokenizer", s.tokenizer,
		"--dataset-name", "sharegpt", "--dataset-path", filepath.Join(dir, promptsFile),
		"--sharegpt-output-len", strconv.Itoa(c.Out), "--num-prompts", strconv.Itoa(c.Requests),
		"--max-concurrency", strconv.Itoa(c.Concurrency), "--request-rate", "1e9", "--warmup-requests", "0",
		"--disable-tqdm", "--output-details", "--output-file", filepath.Join(dir, generatedFile)}
}

const promptsFile, generatedFile = "prompts.json", "generated.json"

// measure lets the load generator send the prompts once, and returns what it found.
func (g loadGenerator) measure(ctx context.Context, s *serveBenchFlags, c servedCase, prompts []string) (
	found generated, err error) {
	dir, err := os.MkdirTemp("", "mkgen-serve-")
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var all []any // conversations, of which it takes the first two turns
	for _, p := range prompts {
		turns := []map[string]string{{"value": p}, {"value": ""}}
		all = append(all, map[string]any{"conversations": turns})
	}
	data, err := json.Marshal(all)
	if err != nil {
		return found, err
	}
	if err := os.WriteFile(filepath.Join(dir, promptsFile), data, 0o600); err != nil {
		return found, err
	}
	run := exec.CommandContext(ctx, g.python, g.args(s, c, dir)...)
	run.Env = append(os.Environ(), "HF_HUB_OFFLINE=1") // it looks for the model's name there
	if key := os.Getenv(keyVariable); key != "" {
		run.Env = append(run.Env, "OPENAI_API_KEY="+key)
	}
	if said, err := run.CombinedOutput(); err != nil {
		return found, fmt.Errorf("sglang's bench_serving: %w\n%s", err, said[max(0, len(said)-4000):])
	}
	if data, err = os.ReadFile(filepath.Join(dir, generatedFile)); err != nil {
		return found, err
	}
	if err := json.Unmarshal(data, &found); err != nil {
		return found, fmt.Errorf("sglang's results: %w", err)
	}
	return found, nil
}

// generated is what the load generator writes, cut to what is read. Times are milliseconds.
type generated struct {
	Completed int
	In        int         `json:"total_input_tokens"` // by its own tokenizer
	Between   [][]float64 `json:"itls"`               // of each request: one less than its chunks with text
	Errors    []string
	FirstP50  float64 `json:"median_ttft_ms"`
	FirstP99  float64 `json:"p99_ttft_ms"`
	TokenP50  float64 `json:"median_tpot_ms"`
	TokenP99  float64 `json:"p99_tpot_ms"`
	ITLP50    float64 `json:"median_itl_ms"`
	ITLP99    float64 `json:"p99_itl_ms"`
	Rate      float64 `json:"output_throughput"`
}

// into fills in what was found, and refuses a run with errors, with prompts of another length, or in which more than
// one token in ten, and two more, came without a chunk with text.
func (g generated) into(c *servedCase) error {
	chunks := 0
	for _, r := range g.Between {
		chunks += len(r) + 1
	}
	in, out := c.In*c.Requests, c.Out*c.Requests
	switch fewest := out - out/10 - 2; {
	case g.Completed != c.Requests:
		return fmt.Errorf("%d of %d requests came to their end, want all: %s", g.Completed, c.Requests,
			strings.TrimSpace(strings.Join(g.Errors, "\n")))
	case g.In != in:
		return fmt.Errorf("prompts have %d tokens by the load generator's tokenizer, want %d", g.In, in)
	case chunks < fewest || chunks > out:
		return fmt.Errorf("%d tokens came in %d chunks with text, want %d to %d", out, chunks, fewest, out)
	}
	c.First, c.Token = percentile{g.FirstP50, g.FirstP99}, percentile{g.TokenP50, g.TokenP99}
	c.Between, c.TokenRate, c.Chunks = percentile{g.ITLP50, g.ITLP99}, g.Rate, chunks
	return nil
}
