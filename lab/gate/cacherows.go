package gate

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/mkgen/mkgen/lab/probe"
	"github.com/mkgen/mkgen/megakernel"
)

// HasRows is whether every sequence comes with projections of its keys and values.
func (r *Reference) HasRows() bool {
	for _, q := range r.Sequences {
		if q.KV == "" {
			return false
		}
	}
	return len(r.Sequences) > 0
}

// checkRows refuses files of rows that are not as long as they should be for a kernel's model.
func (r *Reference) checkRows(mk *megakernel.Kernel) error {
	for q, s := range r.Sequences {
		want := int64(mk.Config.Layers) * int64(probe.RowsBytes(mk.Config.KVHeads, s.Length))
		info, err := os.Stat(filepath.Join(r.dir, s.KV))
		if err != nil {
			return fmt.Errorf("reference: sequence %d: %w", q, err)
		}
		if info.Size() != want {
			return fmt.Errorf("reference: %s has %d bytes, want %d", s.KV, info.Size(), want)
		}
	}
	return nil
}

// compareRows compares all rows of the cache of a run that is over; nil where there is nothing to
// compare with.
func (s *RaggedSubject) compareRows(ref *Reference) (*Local, error) {
	if s.Read == nil || !ref.HasRows() {
		return nil, nil
	}
	if err := ref.checkRows(s.Kernel); err != nil {
		return nil, err
	}
	l := &Local{}
	for q, table := range dealt(ref, s.Kernel.KV.Page, s.Pages) {
		store := &probe.Store{Kernel: s.Kernel, Read: s.Read, Pages: s.Pages, Table: table}
		if err := ref.compareRows(&l.Rows, q, store, 0, ref.Sequences[q].Length); err != nil {
			return nil, err
		}
	}
	l.Reasons = l.Rows.Problems()
	l.Passed = len(l.Reasons) == 0
	return l, nil
}

// compareRows compares tokens from to to−1 of sequence q in all layers of a cache.
func (r *Reference) compareRows(f *probe.Figures, q int, store *probe.Store, from, to int) (err error) {
	s, mk := r.Sequences[q], store.Kernel
	file, err := os.Open(filepath.Join(r.dir, s.KV))
	if err != nil {
		return fmt.Errorf("reference: %w", err)
	}
	defer file.Close() // only read
	want := make([]byte, probe.RowsBytes(mk.Config.KVHeads, s.Length))
	for l := range mk.Config.Layers {
		if _, err := io.ReadFull(file, want); err != nil {
			return fmt.Errorf("reference: %s: %w", s.KV, err)
		}
		rows, err := store.Layer(l, from, to)
		if err != nil {
			return err
		}
		probe.CompareRows(f, l, rows, want, s.Length)
	}
	f.Raise(probe.CacheRow, min(mostOwnRows, DefaultRules().OwnFactor*r.OwnRows))
	f.Raise(probe.CacheRowScale, min(mostOwnRowSizes, DefaultRules().OwnFactor*r.OwnRowSizes))
	return nil
}

// mostOwnRows is the limit of a row of the cache at most, however far the kernel's own roundings take one: a row of
// another token is 1.4 off.
const mostOwnRows = 0.5

// mostOwnRowSizes is the same of a head's factor, of which a fault of 2 % must stay above.
const mostOwnRowSizes = 0.015
