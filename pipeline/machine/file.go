package machine

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/internal/jsonfile"
)

//go:embed h200.json
var h200 []byte

// kind is what a machine file is.
var kind = jsonfile.Kind{Name: "a machine file of mkgen calibrate", Mark: "copies", Format: Format}

// H200 is the machine that predictions are of where no other is given.
func H200() *Machine {
	m, err := Parse(h200)
	if err != nil {
		panic("BUG: the machine that is built in: " + err.Error())
	}
	return m
}

// Parse reads a machine strictly: an unknown field, something behind it, and what Check
// finds, is an error.
func Parse(data []byte) (*Machine, error) { return jsonfile.ParseChecked[Machine](data, kind) }

// CheckFile refuses data that are no machine file, of this format or another; what is in it
// is not looked at.
func CheckFile(data []byte) error {
	k := kind
	k.Format = 0
	return k.Check(data)
}

// ReadFile reads a machine; errors name the file.
func ReadFile(path string) (*Machine, error) { return jsonfile.ReadChecked[Machine](path, kind) }

// WriteFile checks the machine and writes it whole or not at all; its directory is made.
func (m *Machine) WriteFile(path string) error {
	if err := m.Check(); err != nil {
		return fmt.Errorf("no machine is written: %w", err)
	}
	return jsonfile.Write(path, m)
}

// Is refuses a GPU of another name than the one that was measured.
func (m *Machine) Is(gpu string) error {
	if m.GPU != gpu {
		return fmt.Errorf("it is of %s, this one is %s; mkgen calibrate measures it", m.GPU, gpu)
	}
	return nil
}

// About is what it is, for a reader: "NVIDIA H200, measured 2026-11-21 by 8827b8f", or
// without the commit where that is no hash.
func (m *Machine) About() string {
	if m.Executor {
		return "the executor, whose figures mean nothing"
	}
	about := fmt.Sprintf("%s, measured %s", m.GPU, m.Date)
	if commit, _, _ := strings.Cut(m.Commit, "+"); len(commit) == 40 {
		about += " by " + commit[:7]
	}
	if m.bandwidth != 0 && m.bandwidth != 1 {
		about += " with memory of another bandwidth"
	}
	return about
}
