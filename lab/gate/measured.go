package gate

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"sync"
)

// measured are positions in a row of one sequence, which several goroutines measure.
type measured struct {
	wg        sync.WaitGroup
	slots     chan struct{}
	positions []Position
	failures  []error
	hashes    [][sha256.Size]byte // of the kernel's logits
}

// newSlots bounds how many positions are in memory, of all measured that share them.
func newSlots() chan struct{} { return make(chan struct{}, 32) }

func newMeasured(n int, slots chan struct{}) *measured {
	return &measured{slots: slots, positions: make([]Position, n), failures: make([]error, n),
		hashes: make([][sha256.Size]byte, n)}
}

// add measures position i; row and k are kept.
func (m *measured) add(i int, row row, k []float32, own float64) {
	m.hash(i, k, func() {
		o, h := row.floats()
		m.positions[i], m.failures[i] = Measure(o, h, k, own)
	})
}

// hash notes the hash of position i's logits k, which are kept, and does more where that is not nil.
func (m *measured) hash(i int, k []float32, more func()) {
	m.slots <- struct{}{}
	m.wg.Go(func() {
		defer func() { <-m.slots }()
		raw, err := binary.Append(make([]byte, 0, 4*len(k)), binary.LittleEndian, k)
		if err != nil {
			panic(err) // not of floats
		}
		m.hashes[i] = sha256.Sum256(raw)
		if more != nil {
			more()
		}
	})
}

// wait waits for all that was added.
func (m *measured) wait() error {
	m.wg.Wait()
	return errors.Join(m.failures...)
}

// digest is of the logits of all positions, once they are there.
func (m *measured) digest() string {
	all := sha256.New()
	for _, h := range m.hashes {
		all.Write(h[:])
	}
	return hex.EncodeToString(all.Sum(nil))
}
