package table

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestColumnsLineUpAndLinesEndWithoutSpaces(t *testing.T) {
	tab := New("name", ">bytes", "what")
	tab.Row("a", 5, "first")
	tab.Row("größer", 12345)
	var b strings.Builder
	require.NoError(t, tab.Write(&b, "  "))
	require.Equal(t, "  name    bytes  what\n  a           5  first\n  größer  12345\n", b.String())
}

func TestARowOfTooManyCellsIsABug(t *testing.T) {
	require.PanicsWithValue(t, "BUG: table: 2 cells in a row of 1 columns", func() { New("a").Row(1, 2) })
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestTheWritersErrorComesBack(t *testing.T) {
	require.EqualError(t, New("a").Write(full{}, ""), "full")
}
