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
}
