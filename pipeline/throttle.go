package pipeline

import (
	"fmt"
	"strconv"
	"strings"
)

// Throttle bounds the copies in flight of a producer that is ahead of its consumers: where
// they have not drained the chunk that was filled Chunks ago, InFlight are outstanding at
// most. Such an SM waits for others, and what it fetches for later comes out of the
// bandwidth of those that it waits for.
type Throttle struct{ Chunks, InFlight int }

// noThrottles is an empty list of throttles as text.
const noThrottles = "none"

// ParseThrottles reads throttles as ThrottlesText writes them; "" is nil.
func ParseThrottles(text string) (leads []Throttle, err error) {
	switch text {
	case "":
		return nil, nil
	case noThrottles:
		return []Throttle{}, nil
	}
	for _, part := range strings.Split(text, ",") {
		chunks, inFlight, _ := strings.Cut(part, ":")
		var l Throttle
		var err1, err2 error
		l.Chunks, err1 = strconv.Atoi(chunks)
		l.InFlight, err2 = strconv.Atoi(inFlight)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("lead %q in %q, want none or chunks:copies, as in 4:2, with commas between several", part,
				text)
		}
		leads = append(leads, l)
	}
	return leads, nil
}

// ThrottlesText is leads as "chunks:copies" with commas between, "none" without any.
func ThrottlesText(leads []Throttle) string {
	if len(leads) == 0 {
		return noThrottles
	}
	var parts []string
	for _, l := range leads {
		parts = append(parts, fmt.Sprintf("%d:%d", l.Chunks, l.InFlight))
	}
	return strings.Join(parts, ",")
}

// Copies says in words how many copies a plan keeps in flight.
func (p *Plan) Copies() string {
	text := "1 copy in flight"
	if p.InFlight > 1 {
		text = fmt.Sprintf("%d copies in flight", p.InFlight)
	}
	for _, l := range p.Throttles {
		text += fmt.Sprintf(", %d with a lead of %d chunk", l.InFlight, l.Chunks)
		if l.Chunks > 1 {
			text += "s"
		}
	}
	return text
}

// checkThrottles refuses leads that a ring cannot have. Its errors name the option, Leads: each is longer than the one
// before, and with fewer copies.
func checkThrottles(leads []Throttle, stages, inFlight int) error {
	chunks, than := 0, "that are in flight without a lead"
	for _, l := range leads {
		if l.Chunks <= chunks || l.Chunks >= stages {
			return fmt.Errorf("pipeline: Leads is %s, %d chunks, want more than %d and fewer than the ring's %d stages",
				ThrottlesText(leads), l.Chunks, chunks, stages)
		}
		if l.InFlight < 1 || l.InFlight >= inFlight {
			return fmt.Errorf("pipeline: Leads is %s, and %d in flight from %d chunks on, want at least 1 and fewer than the %d %s", ThrottlesText(leads), l.InFlight, l.Chunks, inFlight, than)
		}
		chunks, inFlight, than = l.Chunks, l.InFlight, "of the lead before"
	}
	return nil
}

// leadCursors are the stage filled Chunks ago, and the one filled InFlight ago.
type leadCursors struct{ led, near cursor }

// yield waits for copies to land where the producer leads. Which lead it has found
// depends on the run, and is seen in times alone.
func (p *Producer) yield(waits *filling) {
	r, k := p.r, p.r.k
	for _, l := range p.leads {
		behind := r.empty.Test(l.led.stage.Get(), l.led.parity.Get()).Not()
		k.If(behind, func() {
			near := l.near.stage.Get()
			r.watch.landed(k, r.full, near, l.near.parity.Get(), near)
			waits.waited()
		})
		l.led.advance()
		l.near.advance()
	}
}
