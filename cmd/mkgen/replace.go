package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/sweep"
	"github.com/mkgen/mkgen/lab/trace"
	"github.com/mkgen/mkgen/lab/tune"
	"github.com/mkgen/mkgen/pipeline/machine"
)

// replaceable refuses to replace what is there, unless it is empty or ours.
func (o output) replaceable() error {
	if o.ours == nil {
		return nil
	}
	file, err := os.Open(o.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--%s: %w", o.flag, err)
	}
	defer file.Close() // it was read only
	if err := o.ours(file); err != nil {
		return fmt.Errorf("--%s: %s: %w; remove it or name another file", o.flag, o.path, err)
	}
	return nil
}

// The files that are replaced by others of their kind only.
var (
	ourPage    = begins("a page of mkgen trace", trace.IsPage)
	ourChrome  = unzipped(begins("a Chrome trace of mkgen trace", trace.IsChrome))
	ourSVG     = begins("a timeline of mkgen trace", trace.IsSVG)
	ourPlot    = begins("a plot of mkgen", bench.IsPlot)
	ourTable   = begins("a table of mkgen bench --ablate", tune.IsMarkdown)
	ourCubin   = begins("a cubin", compile.IsCubin)
	ourSweep   = checked(sweep.CheckFile)
	ourPrompts = checked(bench.CheckAttentionFile)
	ourMachine = checked(machine.CheckFile)
)

// begins refuses files by what they begin with; name is what is wanted, with its article.
func begins(name string, is func(head []byte) bool) func(io.Reader) error {
	return func(file io.Reader) error {
		head, err := io.ReadAll(io.LimitReader(file, 512))
		if err != nil || len(head) == 0 || is(head) {
			return err
		}
		return fmt.Errorf("it begins %s, want %s", beginning(head), name)
	}
}

// unzipped lets ours see what is in a file that gzip compressed.
func unzipped(ours func(io.Reader) error) func(io.Reader) error {
	return func(file io.Reader) error {
		b := bufio.NewReader(file)
		if head, err := b.Peek(2); err != nil || !bytes.Equal(head, []byte{0x1f, 0x8b}) {
			return ours(b)
		}
		z, err := gzip.NewReader(b)
		if err != nil {
			return err
		}
		return ours(z)
	}
}

// beginning is what a file begins with, for a reader.
func beginning(head []byte) string {
	const shown = 24
	text := bytes.ToLower(bytes.TrimSpace(head))
	for _, k := range []struct{ head, name string }{{"{", "like JSON"}, {"[", "like JSON"},
		{"<!doctype html", "like HTML"}, {"<html", "like HTML"}, {"<svg", "like an SVG"}, {"<?xml", "like XML"}} {
		if bytes.HasPrefix(text, []byte(k.head)) {
			return k.name
		}
	}
	return fmt.Sprintf("with %q", head[:min(shown, len(head))])
}

// checked refuses files by all that is in them.
func checked(check func(data []byte) error) func(io.Reader) error {
	return func(file io.Reader) error {
		data, err := io.ReadAll(file)
		if err != nil || len(data) == 0 {
			return err
		}
		return check(data)
	}
}

// ourRecord refuses files that are no records of mkgen bench, and, where what is written is
// not gated, records that are.
func ourRecord(gated bool) func(io.Reader) error {
	return checked(func(data []byte) error {
		before, err := bench.CheckFile(data)
		if err == nil && before && !gated {
			return errors.New("it passed the gate, this one would be " + bench.Ungated)
		}
		return err
	})
}

// ourPrefill is ourRecord for files of prompts.
func ourPrefill(gated bool) func(io.Reader) error {
	return checked(func(data []byte) error { return bench.CheckPrefillFile(data, gated) })
}
