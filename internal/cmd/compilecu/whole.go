package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/internal/nvcc"
)

// strongLoad is a strong load from global memory in machine code, with its width where that is
// not 32 bits and its offset from the address where it has one.
var strongLoad = regexp.MustCompile(`\bLDG(?:\.[A-Z]+)*(?:\.(\d+))?\.STRONG\.GPU\b[^;]*?(?:\+(-?)0x([0-9a-f]+))?\]`)

// part finds a strong load that is a part of one of 128 bits which ptxas has made several of,
// as it does where nobody uses the middle: then the tag may come with data from before
// (docs/memory-model.md, "Words with tags"). It is told by an offset inside 16 bytes: a word
// that a kernel loads strongly by itself has its place in a register. "" when there is none.
func part(sass string) string {
	for _, m := range strongLoad.FindAllStringSubmatch(sass, -1) {
		if m[1] == "128" || m[3] == "" {
			continue
		}
		if offset, err := strconv.ParseUint(m[3], 16, 64); err != nil || offset%16 != 0 {
			return m[0]
		}
	}
	return ""
}

// whole returns how many strong loads of 128 bits a cubin has, or an error when one was split.
func whole(ctx context.Context, c *nvcc.Compiler, src, cubin string) (int, error) {
	dump := filepath.Join(filepath.Dir(c.Path), "cuobjdump")
	if _, err := os.Stat(dump); err != nil {
		return 0, fmt.Errorf("%s: no cuobjdump beside nvcc, want it to see whether strong loads are whole; .ci/cuda-toolchain installs one: %w", src, err)
	}
	sass, err := exec.CommandContext(ctx, dump, "-sass", cubin).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: cuobjdump -sass: %w: %s", src, err, sass)
	}
	if found := part(string(sass)); found != "" {
		return 0, fmt.Errorf("%s: ptxas made several loads of a strong one of 128 bits: found %q, want LDG.E.128.STRONG.GPU alone: a tag may come with data from before; use all parts of the word (docs/memory-model.md, \"Words with tags\")", src, found)
	}
	return strings.Count(string(sass), ".128.STRONG.GPU"), nil
}
