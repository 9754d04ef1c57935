package tests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// figuresRun is a copy of bench/figures whose mkgen, tests/gpu/reference.py, nvidia-smi and PyTorch are those of
// testdata/figures.
type figuresRun struct {
	t                        *testing.T
	python, dir, notes, work string
}

func newFigures(t *testing.T) *figuresRun {
	t.Helper()
	real, err := exec.Command(anyPython(t), "-c", "import sys; print(sys.executable, end='')").Output()
	require.NoError(t, err)
	f := &figuresRun{t: t, python: string(real), dir: t.TempDir()}
	f.notes, f.work = filepath.Join(f.dir, "notes"), filepath.Join(f.dir, "work")
	require.NoError(t, os.Mkdir(f.work, 0o777))
	configs, err := filepath.Abs("../models/testdata/configs")
	require.NoError(t, err)
	for to, from := range map[string]string{"bench/figures": "../bench/figures",
		"tests/gpu/reference.py": "testdata/figures/reference.py", "bin/mkgen": "testdata/figures/mkgen",
		"tests/gpu/train_tokenizer.py": "testdata/figures/train_tokenizer.py",
		"bin/nvidia-smi":               "testdata/figures/nvidia-smi", "modules/torch.py": "", "modules/transformers.py": ""} {
		var text []byte
		if from != "" {
			text, err = os.ReadFile(from)
			require.NoError(t, err)
			text = bytes.Replace(text, []byte("/usr/bin/env python3"), real, 1)
		}
		to = filepath.Join(f.dir, to)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o777))
		require.NoError(t, os.WriteFile(to, text, 0o777))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(f.dir, "models/testdata"), 0o777))
	require.NoError(t, os.Symlink(configs, filepath.Join(f.dir, "models/testdata/configs")))
	return f
}

// run runs figures, named or with flags; env is "FAIL=x" and the like. What its commands noted begins anew.
func (f *figuresRun) run(args string, env ...string) (said string, err error) {
	f.t.Helper()
	require.NoError(f.t, os.RemoveAll(f.notes))
	command := append([]string{filepath.Join(f.dir, "bench/figures"), "--mkgen", filepath.Join(f.dir, "bin/mkgen"),
		"--out", filepath.Join(f.dir, "out"), "--work", f.work}, strings.Fields(args)...)
	cmd := exec.Command(f.python, command...)
	cmd.Env = append(os.Environ(), "NOTES="+f.notes, "COMMIT=1234abc", "MEMORY=81559", "CUDA_VISIBLE_DEVICES=",
		"PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+filepath.Join(f.dir, "modules"),
		"PATH="+filepath.Join(f.dir, "bin")+":"+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	left, problem := os.ReadDir(f.work)
	require.NoError(f.t, problem)
	require.Empty(f.t, left, "references are deleted at the end")
	return string(out), err
}

// noted is what the commands noted, but for kernels that were compiled.
func (f *figuresRun) noted() (all []string) {
	f.t.Helper()
	text, err := os.ReadFile(f.notes)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(f.t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if !strings.Contains(line, " compile ") {
			all = append(all, line)
		}
	}
	return all
}

// written are the files of --out.
func (f *figuresRun) written() (all []string) {
	f.t.Helper()
	paths, err := filepath.Glob(filepath.Join(f.dir, "out/h100/20??-??-??-*.json"))
	require.NoError(f.t, err)
	for _, p := range paths {
		all = append(all, filepath.Base(p)[len("2026-11-27-"):])
	}
	return all
}

// summary are the last lines, without paths.
func (f *figuresRun) summary(said string) (all []string) {
	_, last, found := strings.Cut(said, "\n\n")
	require.True(f.t, found, said)
	for line := range strings.Lines(last) {
		words := strings.Fields(line)
		if strings.HasSuffix(line, ".json\n") {
			require.FileExists(f.t, words[len(words)-1])
			words = words[:len(words)-1]
		}
		all = append(all, strings.Join(words, " "))
	}
	return all
}

func TestFiguresRunInOrderAndShareReferences(t *testing.T) {
	t.Parallel()
	f := newFigures(t)
	figures := "decode-llama3-8b-choices decode-llama3.2-1b steps-llama3-8b-rows16-choices"
	said, err := f.run(figures)
	require.NoError(t, err, said)
	require.Equal(t, []string{"0 reference llama3-8b", "0 bench decode-llama3-8b-choices 1", "0 reference llama3.2-1b",
		"0 bench decode-llama3.2-1b 2", "0 bench steps-llama3-8b-rows16-choices 1"}, f.noted(),
		"8B's reference is made once; 1B's is deleted behind its only figure")
	require.Equal(t, []string{
		"decode-llama3-8b-choices 296.6 tok/s, 96.8 %; of greedy's speed: sampled 99.0 % passed",
		"decode-llama3.2-1b 296.6 / 296.6 / 296.6 tok/s, 96.8 / 96.8 / 96.8 % passed",
		"steps-llama3-8b-rows16-choices 296.6 tok/s, 96.8 %; of greedy's speed: sampled 99.0 % passed"}, f.summary(said))
	first := []string{"decode-llama3-8b-choices-cases.json", "decode-llama3-8b-choices.json", "decode-llama3.2-1b-cases.json",
		"decode-llama3.2-1b.json", "steps-llama3-8b-rows16-choices-cases.json", "steps-llama3-8b-rows16-choices.json"}
	require.Equal(t, first, f.written())

	said, err = f.run(figures)
	require.NoError(t, err, said)
	require.Empty(t, f.noted(), "records of this commit are there")
	require.Equal(t, "decode-llama3.2-1b 296.6 / 296.6 / 296.6 tok/s, 96.8 / 96.8 / 96.8 % passed before",
		f.summary(said)[1])
	said, err = f.run("decode-llama3.2-1b", "COMMIT=5678def")
	require.NoError(t, err, said)
	require.Len(t, f.noted(), 2, "of another commit it runs again")
	require.Contains(t, f.written(), "decode-llama3.2-1b-2.json", "and replaces none")
}

func TestFiguresThatDoNotFitAreSkipped(t *testing.T) {
	t.Parallel()
	f := newFigures(t)
	said, err := f.run("decode-llama3-8b decode-llama3.2-1b --budget 100")
	require.NoError(t, err, said)
	require.Equal(t, []string{"0 reference llama3.2-1b", "0 bench decode-llama3.2-1b 1"}, f.noted())
	require.Contains(t, said, "decode-llama3-8b: skipped: it takes 332 s, 100 s are left\n")
	said, err = f.run("decode-llama3-70b-weights-e4m3 decode-phi-4")
	require.NoError(t, err, said)
	require.Equal(t, []string{"0 reference phi-4", "0 bench decode-phi-4 1"}, f.noted())
	require.Contains(t, said, "decode-llama3-70b-weights-e4m3: skipped: it wants 90 GiB of GPU memory, this one has 79\n")
}

// Of a cut model the whole one is measured, and no record of it is written; prompts have no record but what was
// measured.
func TestFiguresOfCutModelsAndPrompts(t *testing.T) {
	t.Parallel()
	f := newFigures(t)
	figures := "decode-llama3-70b-i4g128 prefill-llama3-8b prefill-llama3-70b-i4g128"
	said, err := f.run(figures)
	require.NoError(t, err, said)
	require.Equal(t, []string{"decode-llama3-70b-3-layers-i4g128-cases.json", "decode-llama3-70b-3-layers-i4g128.json",
		"decode-llama3-70b-i4g128-cases.json", "prefill-llama3-70b-3-layers-i4g128-cases.json",
		"prefill-llama3-70b-3-layers-i4g128.json", "prefill-llama3-70b-i4g128-cases.json",
		"prefill-llama3-8b-cases.json", "prefill-llama3-8b.json"}, f.written())
	require.Equal(t, []string{
		"decode-llama3-70b-i4g128 296.6 / 296.6 / 296.6 tok/s, 96.8 / 96.8 / 96.8 % passed by 3 layers",
		"prefill-llama3-8b 6.9 / 6.9 / 6.9 / 6.9 ms, 50.0 / 50.0 / 50.0 / 50.0 % passed",
		"prefill-llama3-70b-i4g128 6.9 ms, 50.0 % passed by 3 layers"}, f.summary(said))
	for what, logits := range map[string]bool{"prefill-llama3-8b-cases": true, "prefill-llama3-8b": false} {
		paths, err := filepath.Glob(filepath.Join(f.dir, "out/h100/*-"+what+".json"))
		require.NoError(t, err)
		require.Len(t, paths, 1)
		text, err := os.ReadFile(paths[0])
		require.NoError(t, err)
		require.Equal(t, logits, strings.Contains(string(text), "logits"), what)
	}
	said, err = f.run(figures)
	require.NoError(t, err, said)
	require.Empty(t, f.noted())
}

func TestFiguresThatFailTheirGateSaySo(t *testing.T) {
	t.Parallel()
	f := newFigures(t)
	said, err := f.run("decode-qwen3-8b decode-llama3.2-1b", "FAIL=qwen3-8b")
	require.Error(t, err)
	require.Equal(t, []string{
		"decode-qwen3-8b 296.6 tok/s, 96.8 % FAILED: the gate is not passed: fault x was not caught",
		"decode-llama3.2-1b 296.6 / 296.6 / 296.6 tok/s, 96.8 / 96.8 / 96.8 % passed"}, f.summary(said))
	require.NotContains(t, f.written(), "decode-qwen3-8b.json")
	require.Contains(t, f.written(), "decode-qwen3-8b-cases.json")
	said, err = f.run("decode-qwen3-8b")
	require.NoError(t, err, said)
	require.Len(t, f.noted(), 2, "it is run again")

	said, err = f.run("decode-llama3-8b-weights-i8 decode-phi-4", "FAIL=i8")
	require.Error(t, err)
	require.Equal(t, []string{"0 reference llama3-8b", "0 reference phi-4", "0 bench decode-phi-4 1"},
		slices.DeleteFunc(f.noted(), func(s string) bool { return strings.Contains(s, "weights-i8") }))
	require.Equal(t, "decode-llama3-8b-weights-i8 - FAILED: reference: out of memory", f.summary(said)[0])
}

func TestFiguresOfAServer(t *testing.T) {
	t.Parallel()
	f := newFigures(t)
	const figures = "served-qwen3-8b served-qwen3-8b-i4g128"
	said, err := f.run(figures, "FAIL=i4g128")
	require.Error(t, err)
	require.Equal(t, []string{"0 tokenizer", "0 bench http://127.0.0.1:1/v1 128/1024 1,4,16 1",
		"0 bench http://127.0.0.1:1/v1 1024/8,8192/8 1 5", "0 server ended"}, f.noted())
	summary := f.summary(said)
	require.Regexp(t, `^served-qwen3-8b 128/1024, 1: first token 31.0 ms, then 4.850 \(p99 5.000\); 128/1024, 4: .*; `+
		`1024/8, 1: first token 31.0 ms, .* measured, not gated$`, summary[0])
	require.Equal(t, "served-qwen3-8b-i4g128 - FAILED: no room for pages", summary[1])
	require.Equal(t, []string{"served-qwen3-8b.json"}, f.written())
	paths, err := filepath.Glob(filepath.Join(f.dir, "out/h100/*.json"))
	require.NoError(t, err)
	text, err := os.ReadFile(paths[0])
	require.NoError(t, err)
	var record struct {
		GPU, Commit, Command string
		Generator            string `json:"load_generator"`
		Cases                []json.RawMessage
	}
	require.NoError(t, json.Unmarshal(text, &record))
	require.Equal(t, "NVIDIA H100 80GB HBM3 1234abc sglang 0.5.3",
		strings.Join([]string{record.GPU, record.Commit, record.Generator}, " "))
	require.Contains(t, record.Command, "serve --model qwen3-8b --random 1 ")
	require.Len(t, record.Cases, 5)

	_, err = f.run(figures)
	require.NoError(t, err)
	require.Len(t, f.noted(), 3, "the other is there, and the tokenizer, too")
}

func TestFiguresRunSideBySideOnTwoGPUs(t *testing.T) {
	t.Parallel()
	f := newFigures(t)
	figures := "steps-llama3-8b-rows8 steps-llama3-8b-rows16 decode-llama3.2-3b decode-qwen3-8b"
	said, err := f.run(figures+" --gpus 0,1", "MEET=1")
	require.NoError(t, err, said)
	byGPU, references := map[string]int{}, 0
	for _, line := range f.noted() {
		words := strings.Fields(line)
		if words[1] == "bench" {
			byGPU[words[0]]++
		} else {
			references++
		}
	}
	require.Equal(t, 4, byGPU["0"]+byGPU["1"])
	require.Positive(t, byGPU["0"])
	require.Positive(t, byGPU["1"])
	require.Equal(t, 3, references, "8 and 16 rows share theirs")
	require.Len(t, f.written(), 8)
	order := []string{}
	for _, line := range f.summary(said) {
		order = append(order, strings.Fields(line)[0])
	}
	require.Equal(t, strings.Fields(figures), order)
}

func TestFiguresAreRefusedInOneLine(t *testing.T) {
	t.Parallel()
	f := newFigures(t)
	mkgen := filepath.Join(f.dir, "bin/mkgen")
	for _, c := range []struct{ args, env, want string }{
		{"decode-llama3-9b", "", "figures: unknown figure decode-llama3-9b: --list prints them\n"},
		{"", "", "figures: which? NAME..., --all, or --list\n"},
		{"decode-llama3-8b", "MEMORY=", "figures: no GPU 0, says nvidia-smi\n"},
		{"decode-llama3-8b --gpus 0,7", "", "figures: no GPU 7, says nvidia-smi\n"},
		{"decode-llama3-8b --mkgen /none", "", "figures: --mkgen /none does not run\n"},
		{"decode-llama3-8b", "COMMIT=12ab+modified",
			"figures: --mkgen " + mkgen + " is of no commit (12ab+modified), and a record names one\n"},
	} {
		said, err := f.run(c.args, c.env)
		require.Error(t, err)
		require.Equal(t, c.want, said)
	}
	require.NoError(t, os.Remove(filepath.Join(f.dir, "modules/transformers.py")))
	said, err := f.run("decode-llama3-8b", "PYTHONNOUSERSITE=1")
	if exec.Command(f.python, "-c", "import transformers").Run() != nil {
		require.Error(t, err)
		require.Regexp(t, "^figures: .* has no transformers, which references are made with\n$", said)
	}
}

// figure is an entry of bench/figures.
type figure struct {
	Name, Model, Contexts, Sequences, Weight, Head, Extra, Recorded string
	Rows, Prefill, Layers                                           int
	Loads                                                           []any
}

func figuresData(t *testing.T) (all []figure) {
	t.Helper()
	out, err := exec.Command(anyPython(t), "-c", `
import json, runpy
figures = runpy.run_path("../bench/figures")
print(json.dumps([{**f._asdict(), "recorded": figures["recorded"](f)} for f in figures["FIGURES"]]))`).Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &all))
	return all
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// A figure's contexts are within its reference. It has the name of the newest record there is of it, with the same
// model, formats, rows and contexts.
func TestFiguresHaveTheNamesOfTheirRecords(t *testing.T) {
	found, names := 0, map[string]bool{}
	for _, f := range figuresData(t) {
		require.False(t, names[f.Name], "%s is there twice", f.Name)
		names[f.Name] = true
		if len(f.Loads) > 0 {
			continue // of a server, whose record has no reference
		}
		longest := 0
		for s := range strings.SplitSeq(f.Sequences, ",") {
			length, _, _ := strings.Cut(s, ":")
			longest = max(longest, number(t, length))
		}
		for c := range strings.SplitSeq(f.Contexts, ",") {
			require.True(t, number(t, c) <= longest || f.Prefill > 0 || f.Layers > 0, "%s: %s is not gated", f.Name, c)
		}
		paths, err := filepath.Glob("../bench/results/h?00/20??-??-??-" + f.Recorded + ".json")
		require.NoError(t, err)
		again, err := filepath.Glob("../bench/results/h?00/20??-??-??-" + f.Recorded + "-[2-9].json")
		require.NoError(t, err)
		paths = append(paths, again...)
		if len(paths) == 0 {
			continue
		}
		found++
		newest := slices.MaxFunc(paths, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
		text, err := os.ReadFile(newest)
		require.NoError(t, err)
		var r struct {
			Options struct {
				Draws  bool
				Tokens int
				Weight string `json:"weight_format"`
				Head   string `json:"head_format"`
			}
			Cases []struct {
				Model   string
				Dtype   string
				Context json.Number
				Prompt  json.Number // of prompts, instead
			}
		}
		require.NoError(t, json.Unmarshal(text, &r))
		orBF16 := func(s string) string {
			if s == "" {
				return "bf16"
			}
			return s
		}
		if f.Prefill == 0 { // of prompts a case says it
			require.Equal(t, f.Weight, orBF16(r.Options.Weight), newest)
		}
		require.Equal(t, f.Head, orBF16(r.Options.Head), newest)
		require.Equal(t, f.Rows, max(1, r.Options.Tokens), newest)
		require.Equal(t, f.Extra != "", r.Options.Draws, newest)
		for _, c := range r.Cases {
			require.Equal(t, f.Model, strings.TrimSuffix(c.Model, fmt.Sprintf("-%d-layers", f.Layers)), newest)
			require.True(t, f.Prefill == 0 || c.Dtype == f.Weight, newest)
			require.Contains(t, strings.Split(f.Contexts, ","), cmp.Or(c.Context, c.Prompt).String(), newest)
		}
	}
	require.Greater(t, found, 15)
}

// A figure of another attention or cache has a reference of it, in a folder of its own.
func TestFiguresOfOtherAttentions(t *testing.T) {
	f := newFigures(t)
	said, err := f.run("--dry-run prefill-llama3.2-1b-kv-e4m3 prefill-llama3.2-1b-window")
	require.NoError(t, err, said)
	for _, want := range []string{" --case case:causal,kv=e4m3\n", " --case case:window=200+sinks=4\n",
		" --attention causal --kv e4m3 --prefill 1024 ", " --attention window=200+sinks=4 --prefill 1024 ",
		" --reference " + f.work + "/reference/case\n"} {
		require.Contains(t, said, want)
	}
}
