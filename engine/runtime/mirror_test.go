package runtime

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// writes is a device that notes what is written.
type writes struct {
	Device
	log []string
}

func (w *writes) Write(name string, offset int64, src []byte) error {
	w.log = append(w.log, fmt.Sprintf("%s %d+%d", name, offset, len(src)))
	return nil
}

// keeper is a device with memory of its own that it copies from.
type keeper struct {
	writes
	raw []byte
}

func (k *keeper) Keep(n int) ([]byte, error) {
	k.raw = make([]byte, n)
	return k.raw, nil
}

func TestMemoryThatADeviceKeepsIsWrittenInWords(t *testing.T) {
	k := &keeper{}
	for _, dev := range []Device{k, &k.writes} {
		got, err := keep(dev, 3)
		require.NoError(t, err)
		require.Len(t, got, 3)
		got[1] = 0x04030201
		require.Equal(t, []byte{0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0}, words(got))
	}
	require.Equal(t, []byte{0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0}, k.raw)
}

func TestOnlyWordsThatChangeAreWritten(t *testing.T) {
	d := &writes{}
	m := newMirror("m", 10)
	require.NoError(t, m.all(d))
	set := func(i int, v uint32) { m.encode(func(dst []uint32) { dst[i] = v }) }
	require.NoError(t, m.changed(d))
	set(3, 1)
	set(5, 2)
	require.NoError(t, m.changed(d))
	require.NoError(t, m.changed(d))
	set(3, 0)
	require.NoError(t, m.changed(d))
	require.Equal(t, []string{"m 0+40", "m 12+12", "m 12+4"}, d.log)
	require.Equal(t, m.want, m.has)
	set(7, 1)
	m.used = 7
	require.NoError(t, m.changed(d))
	m.used = 8
	require.NoError(t, m.changed(d))
	require.Equal(t, []string{"m 28+4"}, d.log[3:])
}

func TestChangesOfLongMirrorsAreWrittenFromTheFirstToTheLast(t *testing.T) {
	const n = 3*mirrorBlock + 7
	d := &writes{}
	m := newMirror("m", n)
	require.NoError(t, m.all(d))
	for first := 0; first < n; first += 19 {
		for last := first; last < n; last += 83 {
			d.log = nil
			m.want[first]++
			m.want[last] += 2
			require.NoError(t, m.changed(d))
			require.Equal(t, []string{fmt.Sprintf("m %d+%d", 4*first, 4*(last-first+1))}, d.log)
			require.NoError(t, m.changed(d))
			require.Len(t, d.log, 1)
		}
	}
	require.Equal(t, m.want, m.has)
}
