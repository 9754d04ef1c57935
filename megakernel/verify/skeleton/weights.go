package skeleton

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
)

// share is an SM's part of a matrix of one layer: a range of bytes of the packed buffer.
type share struct {
	name       string // "layer 1, gate_up", "lm_head"
	start, end int64
}

// sharesOf lists each SM's shares in the order of a step, from the tiles that the plan gives
// to the SMs: layer after layer, matrix after matrix, SM after SM, without gaps. It uses no
// offset of the plan.
func sharesOf(mk *megakernel.Kernel) [][]share {
	shares := make([][]share, mk.Options.SMs)
	at := int64(0)
	deal := func(prefix string, ms []pipeline.MatrixPlan) {
		for i := range ms {
			for sm := range shares {
				m := &ms[i]
				end := at + int64(m.Count[sm])*m.TileBytes()
				shares[sm] = append(shares[sm], share{prefix + m.Name, at, end})
				at = end
			}
		}
	}
	for l := range mk.Config.Layers {
		deal(fmt.Sprintf("layer %d, ", l), mk.Plan.Layer)
	}
	deal("", mk.Plan.Final)
	return shares
}

// checkShares says why shares do not make up the model's matrices, or nil: every tile of
// every matrix must be dealt out once, and tiles must hold the matrix.
func checkShares(mk *megakernel.Kernel) error {
	for _, m := range slices.Concat(mk.Plan.Layer, mk.Plan.Final) {
		tile := 0
		for sm := range mk.Options.SMs {
			if m.First[sm] != tile && m.Count[sm] > 0 {
				return fmt.Errorf("SM %d's share of %s begins at tile %d, the one before ends at %d", sm, m.Name, m.First[sm], tile)
			}
			tile += m.Count[sm]
		}
		if bytes := int64(tile) * m.TileBytes(); bytes < 2*int64(m.Rows)*int64(m.K) || tile != m.Tiles {
			return fmt.Errorf("the shares of %s are %d tiles, %d bytes in all, want %d tiles, for %d × %d elements", m.Name,
				tile, bytes, m.Tiles, m.Rows, m.K)
		}
	}
	return nil
}

// stream is how far an SM has come with copying its shares.
type stream struct {
	step, at int    // the share being copied
	done     int64  // bytes of it
	spans    []span // that have been copied, ascending, neighbours joined
	copies   int
	before   int // shares copied whole: 1 + the number, from the launch's begin on, of the last that had bytes
}

type span struct{ from, end int64 }

// now is the number of the share being copied, from the launch's begin on.
func (s *stream) now(shares []share) int { return s.step*len(shares) + s.at }

// between reports whether a copy of KV that is made now belongs to share n's attention, n
// being a number of a QKV: all of that has been copied, and nothing of what follows.
func (s *stream) between(shares []share, n int) bool {
	return s.done == 0 && s.before <= n+1 && n < s.now(shares)
}

// settle goes to the next share that has bytes to copy.
func (s *stream) settle(shares []share, steps int) {
	for s.step < steps && s.done == shares[s.at].end-shares[s.at].start {
		if s.done > 0 {
			s.before = s.now(shares) + 1
		}
		s.done, s.spans = 0, s.spans[:0]
		if s.at++; s.at == len(shares) {
			s.step, s.at = s.step+1, 0
		}
		if s.at == 0 && !slices.ContainsFunc(shares, func(sh share) bool { return sh.end > sh.start }) {
			s.step = steps // an SM without weights
		}
	}
}

// where says how far s is.
func (s *stream) where(shares []share) string {
	sh := shares[s.at]
	if s.done == 0 && s.before > 0 && s.at == 0 {
		return fmt.Sprintf("all its shares of %s copied", plural.Of(s.step, "step"))
	}
	return fmt.Sprintf("%d of %d bytes copied of its share of %s in step %d, bytes %d to %d", s.done, sh.end-sh.start,
		sh.name, s.step, sh.start, sh.end)
}

// add notes a copy and reports whether any of it had been copied before.
func (s *stream) add(from, end int64) (again bool) {
	i, _ := slices.BinarySearchFunc(s.spans, from, func(x span, at int64) int {
		if x.from <= at {
			return -1
		}
		return 1
	})
	if i > 0 && s.spans[i-1].end > from || i < len(s.spans) && s.spans[i].from < end {
		return true
	}
	s.done += end - from
	if i > 0 && s.spans[i-1].end == from {
		s.spans[i-1].end = end
		return false
	}
	s.spans = slices.Insert(s.spans, i, span{from, end})
	return false
}

// weights checks a copy of weights: it must lie in the share that the SM is at, none of
// whose bytes comes twice, and the next share begins only when all of this one have come.
func (w *watch) weights(a interp.Access) error {
	s, shares := &w.streams[a.CTA], w.shares[a.CTA]
	end := a.Offset + a.Bytes
	if s.step == w.steps {
		return fmt.Errorf("SM %d copies bytes %d to %d of the weights, %s, after all its shares of %s", a.CTA, a.Offset, end,
			w.owner(a.Offset), plural.Of(w.steps, "step"))
	}
	if sh := shares[s.at]; a.Offset < sh.start || end > sh.end {
		return fmt.Errorf("SM %d copies bytes %d to %d of the weights, %s, with %s", a.CTA, a.Offset, end, w.owner(a.Offset),
			s.where(shares))
	}
	if s.add(a.Offset, end) {
		return fmt.Errorf("SM %d copies bytes %d to %d of the weights a second time, with %s", a.CTA, a.Offset, end,
			s.where(shares))
	}
	s.copies++
	s.settle(shares, w.steps)
	return nil
}

// owner says whose byte at is.
func (w *watch) owner(at int64) string {
	for sm, shares := range w.shares {
		for _, sh := range shares {
			if at >= sh.start && at < sh.end {
				return fmt.Sprintf("which are SM %d's of %s", sm, sh.name)
			}
		}
	}
	return "which are nobody's"
}
