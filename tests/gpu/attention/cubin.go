package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/mkgen/mkgen/engine/compile"
)

// cubin is the file name of a kernel: of its text, so that no other's is taken for
// it.
func cubin(src compile.Source) string {
	sum := sha256.Sum256(src.Text)
	return fmt.Sprintf("%s-%s.cubin", src.Name, hex.EncodeToString(sum[:6]))
}

// compilerFile says, in the directory of the cubins, what compiled them.
const compilerFile = "compiler.txt"
