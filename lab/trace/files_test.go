package trace

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFilesAreKnownByWhatTheyBeginWith(t *testing.T) {
	tr := small().trace()
	forms := []struct {
		write func(io.Writer) error
		is    func([]byte) bool
		old   string // from before files named their generator
	}{
		{tr.WritePage, IsPage, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=1212\"/>\n<title>tiny on executor: trace</title>"},
		{func(w io.Writer) error { return tr.WriteChrome(w, 1) }, IsChrome,
			`{"displayTimeUnit":"ns","otherData":{"model":"tiny"`},
		{tr.WriteSVG, IsSVG, `<svg xmlns="http://www.w3.org/2000/svg" width="1180" height="70" viewBox="0 0 1180 70" role="img" aria-label="timeline"`},
	}
	for i, f := range forms {
		var b bytes.Buffer
		require.NoError(t, f.write(&b))
		for j, other := range forms {
			require.Equal(t, i == j, other.is(b.Bytes()[:min(512, b.Len())]), "%d by %d", i, j)
			require.Equal(t, i == j, other.is([]byte(f.old)), "%d by %d", i, j)
		}
		for _, not := range []string{"", "{}", "<html>", "<!DOCTYPE html>\n<html lang=\"en\">",
			"<svg xmlns=\"http://www.w3.org/2000/svg\">", `{"traceEvents":[]}`} {
			require.False(t, f.is([]byte(not)), not)
		}
	}
}
