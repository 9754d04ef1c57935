// Package progress shows how far a long copy has come: a bar on a terminal, one
// plain line at the end everywhere else.
package progress

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Bar is the progress of one piece of work, counted in bytes or in what Count says. Its methods must not
// be called from two goroutines at a time.
type Bar struct {
	w     io.Writer
	what  string
	unit  string // "" for bytes
	begun time.Time
	shown bool                     // w is a terminal
	bar   *progressbar.ProgressBar // nil before the first Set
	total int64                    // of bar
}

// Start begins to show work called what, such as "loading weights", on w, usually
// os.Stderr. Nothing appears before the first Set.
func Start(w io.Writer, what string) *Bar {
	return &Bar{w: w, what: what, begun: time.Now(), shown: isTerminal(w)}
}

// Count is Start of work that is counted in a unit, such as "tokens".
func Count(w io.Writer, what, unit string) *Bar {
	b := Start(w, what)
	b.unit = unit
	return b
}

func newBar(w io.Writer, what, unit string, total int64) *progressbar.ProgressBar {
	return progressbar.NewOptions64(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(unit == ""), progressbar.OptionShowCount(), progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetPredictTime(true),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetRenderBlankState(false))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Set says that done of total bytes are done; it fits runtime.LoadOptions.Progress.
// What goes wrong with the terminal is ignored.
func (b *Bar) Set(done, total int64) {
	switch {
	case !b.shown:
		return
	case b.bar == nil:
		b.bar, b.total = newBar(b.w, b.what, b.unit, total), total
	case b.total != total:
		b.bar.ChangeMax64(total)
		b.total = total
	}
	_ = b.bar.Set64(done)
}

// End takes the bar away and writes one line: what was done, how much and how
// fast. bytes (or units) below 0 mean that it failed, or that results say it: then there is no line.
func (b *Bar) End(bytes int64) {
	if b.bar != nil {
		_ = b.bar.Clear()
	}
	if bytes < 0 {
		return
	}
	took := time.Since(b.begun)
	if b.unit != "" {
		fmt.Fprintf(b.w, "%s: %d %s in %.1f s, %.0f a second\n", b.what, bytes, b.unit, took.Seconds(),
			float64(bytes)/max(took.Seconds(), 1e-9))
		return
	}
	fmt.Fprintf(b.w, "%s: %s in %.1f s, %s/s\n", b.what, size(float64(bytes)), took.Seconds(),
		size(float64(bytes)/max(took.Seconds(), 1e-9)))
}

// size is a number of bytes in decimal units, with three digits.
func size(bytes float64) string {
	unit := "B"
	for _, u := range []string{"kB", "MB", "GB", "TB"} {
		if bytes < 999.5 {
			break
		}
		bytes, unit = bytes/1000, u
	}
	return fmt.Sprintf("%.3g %s", bytes, unit)
}
