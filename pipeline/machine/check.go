package machine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Check says what is wrong with a machine: the first thing found, and what is wanted.
func (m *Machine) Check() error {
	if m.Format != Format {
		return fmt.Errorf("format is %d, want %d", m.Format, Format)
	}
	for _, f := range []struct{ name, value string }{{"gpu", m.GPU}, {"driver", m.Driver}, {"cuda", m.CUDA},
		{"compiler", m.Compiler}, {"commit", m.Commit}, {"date", m.Date}} {
		if f.value == "" {
			return fmt.Errorf("%s is missing", f.name)
		}
	}
	if _, err := time.Parse(time.DateOnly, m.Date); err != nil {
		return fmt.Errorf("date is %q, want one such as 2026-11-21", m.Date)
	}
	for _, f := range []struct {
		name string
		n    int
	}{{"sms", m.SMs}, {"consumers", m.Consumers}, {"stage_bytes", m.StageBytes}, {"stages", m.Stages}} {
		if f.n < 1 {
			return fmt.Errorf("%s is %d, want at least 1", f.name, f.n)
		}
	}
	if err := errors.Join(m.Ceiling.check("ceiling_gb_s"), m.Idle.check("idle"), m.Drain.Chunk.check("drain: chunk_us"),
		m.Drain.Finish.notBelow0("drain: finish_us")); err != nil {
		return first(err)
	}
	if err := m.checkCopies(); err != nil {
		return err
	}
	return m.checkExchanges()
}

func (m *Machine) checkCopies() error {
	if len(m.Copies) == 0 {
		return errors.New("copies is empty, want figures of one number of copies in flight at least")
	}
	for i, c := range m.Copies {
		at := fmt.Sprintf("copies[%d]", i)
		if c.InFlight < 1 || i > 0 && c.InFlight <= m.Copies[i-1].InFlight {
			return fmt.Errorf("%s: in_flight is %d, want ascending numbers from 1", at, c.InFlight)
		}
		if err := errors.Join(c.GBps.check(at+": gb_s"), c.Latency.check(at)); err != nil {
			return first(err)
		}
	}
	return nil
}

// compare orders exchanges.
func (e *Exchange) compare(f *Exchange) int {
	return cmp.Or(cmp.Compare(e.InFlight, f.InFlight), cmp.Compare(e.VectorBytes, f.VectorBytes))
}

func (m *Machine) checkExchanges() error {
	for i := range m.Exchanges {
		e, at := &m.Exchanges[i], fmt.Sprintf("exchanges[%d]", i)
		if e.InFlight < 0 || e.VectorBytes < 0 || i > 0 && m.Exchanges[i-1].compare(e) >= 0 {
			return fmt.Errorf("%s: in_flight is %d and vector_bytes %d, want both from 0, ascending", at, e.InFlight,
				e.VectorBytes)
		}
		err := e.Wait.check(at + ": wait_us")
		if e.VectorBytes > 0 {
			err = errors.Join(err, e.Read.check(at+": read_us"))
		} else if e.Read != (Figure{}) {
			err = errors.Join(err, fmt.Errorf("%s: read_us is %v of no vector, want 0", at, e.Read.Median))
		}
		if e.Count != nil {
			err = errors.Join(err, e.Count.check(at+": count_us"))
			if e.VectorBytes > 0 {
				err = errors.Join(err, fmt.Errorf("%s: count_us with a vector of %d bytes, want it with none", at, e.VectorBytes))
			}
		}
		if e.Unhidden != nil {
			err = errors.Join(err, e.Unhidden.ordered(at+": unhidden_us"))
		}
		err = errors.Join(err, e.checkWay(at+": counted", e.Counted), e.checkWay(at+": words", e.Words))
		if err != nil {
			return first(err)
		}
	}
	if m.Between < 1 {
		return fmt.Errorf("between_bytes is %d, want at least 1: what an SM streamed between two exchanges", m.Between)
	}
	for _, streaming := range []bool{false, true} {
		if !slices.ContainsFunc(m.Exchanges, func(e Exchange) bool { return (e.InFlight > 0) == streaming }) {
			return errors.New("exchanges: want some with nothing in flight (in_flight 0) and some with copies in flight")
		}
	}
	return nil
}

// checkWay checks another way of the exchange, where there is one.
func (e *Exchange) checkWay(at string, w *Way) error {
	if w == nil {
		return nil
	}
	if e.VectorBytes == 0 {
		return fmt.Errorf("%s of no vector, want it with one", at)
	}
	err := w.Took.check(at + ": took_us")
	if w.Unhidden != nil && e.InFlight == 0 {
		return fmt.Errorf("%s: unhidden_us with nothing in flight, want it beside a stream only", at)
	}
	if w.Unhidden != nil {
		err = errors.Join(err, w.Unhidden.ordered(at+": unhidden_us"))
	}
	return err
}

// first is the first of joined errors.
func first(err error) error {
	var all interface{ Unwrap() []error }
	if errors.As(err, &all) {
		return first(all.Unwrap()[0])
	}
	return err
}

func (l *Latency) check(at string) error {
	return errors.Join(l.Load.check(at+": load_us"), l.Atomic.check(at+": atomic_us"))
}

// check wants a positive figure.
func (f *Figure) check(name string) error {
	if !(f.Min > 0) { // NaN, too
		return fmt.Errorf("%s: min is %v and median %v, want all above 0", name, f.Min, f.Median)
	}
	return f.ordered(name)
}

// notBelow0 wants a figure of 0 or more.
func (f *Figure) notBelow0(name string) error {
	if !(f.Min >= 0) {
		return fmt.Errorf("%s: min is %v and median %v, want none below 0", name, f.Min, f.Median)
	}
	return f.ordered(name)
}

// mostFigure is more than anything that is measured, be it GB/s or µs.
const mostFigure = 1e9

// ordered wants a figure whose spread is around it, and that can be.
func (f *Figure) ordered(name string) error {
	if !(f.Min <= f.Median && f.Median <= f.Max) {
		return fmt.Errorf("%s: min %v, median %v, max %v, want them in this order", name, f.Min, f.Median, f.Max)
	}
	if f.Min < -mostFigure || f.Max > mostFigure {
		return fmt.Errorf("%s: min %v, median %v, max %v, want none beyond %v", name, f.Min, f.Median, f.Max, mostFigure)
	}
	return nil
}
