package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/internal/nvcc"
)

// strongLoad is a strong load from global memory in machine code, with its width where that is
// not 32 bits, and its offset from the address where it has one.
var strongLoad = regexp.MustCompile(`\bLDG\.([A-Z0-9.]*)STRONG\.GPU\b[^;\n]*?(?:\+-?0x([0-9a-f]+))?\]\s*;`)

// strongLoads counts the strong loads of 128 bits in machine code, and finds one that is a part
// of such a load, "" when none is: of a load whose middle nobody uses ptxas makes two, and
// then a tag may come with data from before (docs/memory-model.md, "LL packets"). A part
// is told by its offset inside 16 bytes. Nothing else has one: a word that kernels load
// strongly by itself is the first of its buffer, or its place is in a register.
func strongLoads(sass string) (whole int, part string) {
	for _, m := range strongLoad.FindAllStringSubmatch(sass, -1) {
		if strings.Contains(m[1], "128") {
			whole++
			continue
		}
		if m[2] == "" {
			continue
		}
		if offset, err := strconv.ParseUint(m[2], 16, 64); err != nil || offset%16 != 0 {
			part = m[0]
		}
	}
	return whole, part
}

// loadsAreWhole returns how many strong loads of 128 bits a cubin has, or an error when one was
// split.
func loadsAreWhole(ctx context.Context, c *nvcc.Compiler, src, cubin string) (int, error) {
	sass, err := exec.CommandContext(ctx, filepath.Join(filepath.Dir(c.Path), "cuobjdump"), "-sass", cubin).Output()
	if err != nil {
		return 0, fmt.Errorf("%s: cuobjdump, wanted beside nvcc to see whether strong loads are whole (.ci/cuda-toolchain installs one): %w", src, err)
	}
	whole, part := strongLoads(string(sass))
	if part != "" {
		return 0, fmt.Errorf(`%s: strong loads: found %q, want LDG.E.128.STRONG.GPU alone: ptxas made several loads of one of 128 bits, so that its tag may come with data from before; use all parts of the word (docs/memory-model.md, "LL packets")`, src, part)
	}
	return whole, nil
}
