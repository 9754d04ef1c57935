package runtime

// mirror is a buffer of words that the host fills, and what the device has of it.
type mirror struct {
	name      string
	want, has []uint32
}

func newMirror(name string, n int) mirror {
	return mirror{name: name, want: make([]uint32, n), has: make([]uint32, n)}
}

// encode lets f write the words that the device is to have.
func (m *mirror) encode(f func(dst []uint32)) { f(m.want) }

// all writes the whole buffer.
func (m *mirror) all(dev Device) error {
	copy(m.has, m.want)
	return dev.Write(m.name, 0, words(m.has))
}

// changed writes from the first word that the device has otherwise to the last.
func (m *mirror) changed(dev Device) error {
	from, to := 0, len(m.want)
	for from < to && m.want[from] == m.has[from] {
		from++
	}
	for to > from && m.want[to-1] == m.has[to-1] {
		to--
	}
	if from == to {
		return nil
	}
	copy(m.has[from:to], m.want[from:to])
	return writeAhead(dev, m.name, 4*int64(from), words(m.has[from:to]))
}

// writeAhead writes what the next launch finds.
func writeAhead(dev Device, name string, offset int64, raw []byte) error {
	if d, ok := dev.(aheadWriter); ok {
		return d.WriteAhead(name, offset, raw)
	}
	return dev.Write(name, offset, raw)
}

// aheadWriter is a device that copies while the host goes on: what is written so is
// there when the next launch begins.
type aheadWriter interface {
	WriteAhead(name string, offset int64, src []byte) error
}
