package nvcc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ErrNoDisassembler is what [Disassemble] returns (wrapped, with every place it looked) when there is no nvdisasm.
var ErrNoDisassembler = errors.New("no nvdisasm found")

// Disassemble returns what nvdisasm prints of a cubin: the code with the lines of the source that the compiler noted
// (-lineinfo). nvdisasm is looked for beside an nvcc, when one is given, and in the places where [Find] looks for nvcc.
func Disassemble(ctx context.Context, cubin []byte, beside string) (string, error) {
	tool, err := disassembler(beside)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mkgen-nvdisasm-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "kernel.cubin")
	if err := os.WriteFile(file, cubin, 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, tool, "-c", "-gi", file)
	cmd.WaitDelay = 5 * time.Second
	text, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return "", fmt.Errorf("%s: %w %s", tool, err, firstLine(string(failed.Stderr)))
	}
	return string(text), err
}

// Disassembles says whether [Disassemble] finds an nvdisasm.
func Disassembles(beside string) bool {
	_, err := disassembler(beside)
	return err == nil
}

func disassembler(beside string) (string, error) {
	var looked []string
	for _, path := range append([]string{beside, os.Getenv("NVCC")}, candidates()...) {
		tool := filepath.Join(filepath.Dir(path), "nvdisasm")
		if path == "" || slices.Contains(looked, tool) {
			continue
		}
		if info, err := os.Stat(tool); err == nil && !info.IsDir() {
			return tool, nil
		}
		looked = append(looked, tool)
	}
	if tool, err := exec.LookPath("nvdisasm"); err == nil {
		return tool, nil
	}
	return "", fmt.Errorf("%w: looked at %s and PATH; .ci/cuda-toolchain installs one", ErrNoDisassembler,
		strings.Join(looked, ", "))
}
