package grammar

import (
	"fmt"
	"slices"
)

// Matcher follows one answer. It is an engine.LogitsMask, for one goroutine at a time.
type Matcher struct {
	g    *Grammar
	at   *place
	done bool // an end token has come
}

// Matcher begins an answer.
func (g *Grammar) Matcher() *Matcher { return &Matcher{g: g, at: g.root} }

// Mask writes which tokens may be next: end tokens where the answer is whole.
func (m *Matcher) Mask(allowed []uint32) {
	m.g.mu.Lock()
	leads := m.g.leading(m.at)
	m.g.mu.Unlock()
	leads.write(allowed)
	if m.at.whole {
		for _, end := range m.g.v.ends {
			allowed[end/32] |= 1 << (end % 32)
		}
	}
}

// Accept goes on behind a token. A token that Mask does not allow is an error.
func (m *Matcher) Accept(token int) error {
	if token < 0 || token >= m.g.v.size || m.done {
		return fmt.Errorf("grammar: token %d at the end of an answer, or none of the vocabulary", token)
	}
	if slices.Contains(m.g.v.ends, token) && m.at.whole {
		m.done = true
		return nil
	}
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	at := m.at
	for _, b := range m.g.v.bytes[token] {
		if at = m.g.step(at, b); at == nil {
			break
		}
	}
	if at == nil || len(m.g.v.bytes[token]) == 0 {
		return fmt.Errorf("grammar: token %d, %q, does not fit", token, m.g.v.bytes[token])
	}
	m.at = at
	return nil
}

// Whole reports whether the answer may end here.
func (m *Matcher) Whole() bool { return m.at.whole }
