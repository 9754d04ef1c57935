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

func TestHeadsOfSeveralLinesEndInTheSameOne(t *testing.T) {
	tab := New("name", ">bytes of\na step", "what\nit\nis")
	tab.Row("a", 5, "first")
	var b strings.Builder
	require.NoError(t, tab.Write(&b, ""))
	require.Equal(t, "                what\n      bytes of  it\nname    a step  is\na            5  first\n", b.String())
}

func TestCellsAreCutAtSpacesAndLinesWidenNoColumn(t *testing.T) {
	tab := New("name", ">n", "what")
	tab.RowWithin([]int{0, 0, 9}, "a", 5, "one two three")
	tab.Line("  whatever stands in a line")
	tab.RowWithin([]int{2}, "b", "", "")
	var b strings.Builder
	require.NoError(t, tab.Write(&b, " "))
	require.Equal(t, " name  n  what\n a     5  one two\n          three\n   whatever stands in a line\n b\n", b.String())
}

func TestTextHasLinesOf80Characters(t *testing.T) {
	var b strings.Builder
	require.NoError(t, Text(&b, "  ", "%s", strings.Repeat("größer ", 12)))
	require.Equal(t, "  "+strings.Repeat("größer ", 10)+"größer\n  größer\n", b.String())
	require.EqualError(t, Text(full{}, "", "x"), "full")
	b.Reset()
	require.NoError(t, Text(&b, "", ""))
	require.Empty(t, b.String())
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestTheWritersErrorComesBack(t *testing.T) {
	require.EqualError(t, New("a").Write(full{}, ""), "full")
}
