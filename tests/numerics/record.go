package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
)

// record is docs/numerics.json: everything that the tables of docs/numerics.md
// show. It has no date and no machine: amd64 computes the same bits everywhere.
type record struct {
	What      string        `json:"what"`
	Models    []modelRecord `json:"models"`
	Attention []single      `json:"attention"`
	Products  []single      `json:"products"`
}

type modelRecord struct {
	Name      string          `json:"name"`
	Shape     map[string]int  `json:"shape"`
	Positions int             `json:"positions"` // measured at each context
	Contexts  []contextRecord `json:"contexts"`
}

type contextRecord struct {
	Context int      `json:"context"`
	Results []result `json:"results"`
}

// subject is a model to be measured.
type subject struct {
	name      string
	config    models.Config
	contexts  []int
	positions int
}

// subjects are tiny, which the test measures again, and half of Llama-3.2-1B:
// half its width, layers and heads, a vocabulary of 4096.
func subjects() ([]subject, error) {
	tiny, err := models.Lookup("tiny")
	if err != nil {
		return nil, err
	}
	half, err := models.Lookup("llama3.2-1b")
	if err != nil {
		return nil, err
	}
	half.Layers, half.Hidden, half.Intermediate, half.Heads, half.KVHeads = half.Layers/2, half.Hidden/2,
		half.Intermediate/2, half.Heads/2, half.KVHeads/2
	half.Vocab = 4096
	return []subject{{"half of Llama-3.2-1B", half, []int{128, 1024, 4096}, 24}, {"tiny", tiny, []int{128, 448}, 24}}, nil
}

// measure is the subject's record at some of its contexts.
func (s subject) measure(contexts []int, workers int, progress func(string)) modelRecord {
	shape := s.config
	weights := reference.Synthetic(shape, seed)
	m := modelRecord{Name: s.name, Positions: s.positions,
		Shape: map[string]int{"layers": shape.Layers, "hidden": shape.Hidden,
			"intermediate": shape.Intermediate, "heads": shape.Heads, "kv_heads": shape.KVHeads, "head_dim": shape.HeadDim,
			"vocab": shape.Vocab}}
	for _, context := range contexts {
		results := newRun(shape, weights, context, s.positions, seed).measure(variants(), workers)
		for i := range results {
			r := &results[i]
			r.RelRMS, r.KL, r.Margin = digits(r.RelRMS), digits(r.KL), digits(r.Margin)
		}
		m.Contexts = append(m.Contexts, contextRecord{context, results})
		progress(fmt.Sprintf("%s, context %d", s.name, context))
	}
	return m
}

// seed is that of weights, tokens and caches.
const seed = 1

// Sizes of the single operations.
var (
	attentionContexts = []int{128, 1024, 4096, 32768}
	attentionSplits   = []int{1, 2, 4, 8, 16, 32, 64}
	productColumns    = []int{2048, 4096, 8192, 14336, 28672}
)

// Queries that attention, and rows that a product is measured with.
const (
	attentionQueries = 4
	productRows      = 512
)

// measureAll makes the whole record.
func measureAll(workers int, progress func(string)) (*record, error) {
	list, err := subjects()
	if err != nil {
		return nil, err
	}
	r := &record{What: "error of the kernel's roundings against float64, go run ./tests/numerics -update"}
	for _, s := range list {
		r.Models = append(r.Models, s.measure(s.contexts, workers, progress))
	}
	r.Attention = shortened(attentionErrors(attentionContexts, attentionSplits, attentionQueries))
	progress("attention alone")
	r.Products = shortened(productErrors(productColumns, productRows))
	progress("matrix products alone")
	return r, nil
}

func shortened(list []single) []single {
	for i := range list {
		list[i].RelRMS = digits(list[i].RelRMS)
	}
	return list
}

// digits is x to four significant digits, which is more than the positions
// determine.
func digits(x float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', 3, 64), 64)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return short
}

func readRecord(path string) (*record, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &r, nil
}

func (r *record) write(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o666)
}
