package checkpoint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
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

// maxProblems bounds how many problems one error lists.
const maxProblems = 32

// problems collects what is wrong with one checkpoint.
type problems struct {
	list    []error
	omitted int
}

func (p *problems) add(problem Problem) {
	if len(p.list) == maxProblems {
		p.omitted++
		return
	}
	p.list = append(p.list, &problem)
}

// err returns nil when nothing was added.
func (p *problems) err() error {
	if p.omitted > 0 {
		return errors.Join(append(p.list[:len(p.list):len(p.list)],
			fmt.Errorf("and %d more problems", p.omitted))...)
	}
	return errors.Join(p.list...)
}

// maxShown is how many bytes of a name from a file a message repeats: more than
// any name of a decoder's tensor has.
const maxShown = 96

// shorten makes a name from a file fit for one line of a message: printable, at
// most maxShown bytes before quoting.
func shorten(text string) string {
	cut := text
	if len(cut) > maxShown {
		cut = strings.ToValidUTF8(cut[:maxShown], "") + "..."
	}
	quoted := strconv.Quote(cut)
	return quoted[1 : len(quoted)-1]
}

// bytesOf returns "1 byte" or "n bytes".
func bytesOf[T int | int64 | uint64](n T) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}
