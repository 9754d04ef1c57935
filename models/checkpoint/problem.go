package checkpoint

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/models/problem"
)

// ErrClosed is what every method returns after Close.
var ErrClosed = errors.New("checkpoint: used after Close")

// Problem is one thing wrong with a checkpoint. Open and Check return all they
// find, joined with errors.Join in a fixed order, 32 at most.
type Problem struct {
	File   string // name of the file in the directory, empty where it concerns none
	Tensor string // the tensor's name, empty where it concerns a whole file
	Found  string // what there is
	Want   string // what would be accepted
	Why    string // the reason or advice, possibly empty
}

// Error returns "file: tensor: found X, want Y" and the reason after a semicolon.
func (p *Problem) Error() string {
	var s strings.Builder
	for _, part := range []string{p.File, p.Tensor} {
		if part != "" {
			s.WriteString(shorten(part) + ": ")
		}
	}
	fmt.Fprintf(&s, "found %s, want %s", p.Found, p.Want)
	if p.Why != "" {
		s.WriteString("; " + p.Why)
	}
	return s.String()
}

// problems collects what is wrong with one checkpoint.
type problems struct{ problem.List }

func (p *problems) add(one Problem) { p.Add(&one) }

// maxShown is how many bytes of a name from a file a message repeats: more than
// any name of a decoder's tensor has.
const maxShown = 96

func shorten(text string) string { return problem.Shorten(text, maxShown) }

// bytesOf returns "1 byte" or "n bytes".
func bytesOf[T int | int64 | uint64](n T) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}
