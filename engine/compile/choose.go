package compile

import (
	"context"
	"errors"
	"fmt"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/nvcc"
)

// compiler is nvcc or NVRTC.
type compiler interface {
	// name is what users read: "nvcc 13.0.88".
	name() string
	// identity is all that decides the cubin beside the text: which build of which compiler, and every argument.
	identity(target emit.Target, extra []string) []string
	// compile returns the cubin and what the compiler said, ptxas's figures among it. A text it does not take is a
	// *refusal.
	compile(ctx context.Context, text []byte, target emit.Target, extra []string) (cubin []byte, log string, err error)
	// ptx returns the PTX of a text, of the same build and arguments.
	ptx(ctx context.Context, text []byte, target emit.Target, extra []string) (string, error)
}

// errNoNVRTC is what openNVRTC returns (wrapped, with what was looked for where) when there is none.
var errNoNVRTC = errors.New("no NVRTC")

// choose finds the compiler. An nvcc that is there but cannot be used (too old, does not run) is an error, not a reason
// to take NVRTC: the user would wonder why.
func choose(opt Options) (compiler, error) {
	switch opt.With {
	case "", Nvcc, NVRTC:
	default:
		return nil, fmt.Errorf("compiler %q is unknown, want %s or %s", opt.With, Nvcc, NVRTC)
	}
	if opt.With == NVRTC {
		c, err := openNVRTC()
		if errors.Is(err, errNoNVRTC) {
			err = fmt.Errorf("%w: %w", ErrNoCompiler, err)
		}
		return c, err
	}
	c, err := nvcc.Find(opt.NvccPath)
	if err == nil {
		return &nvccCompiler{c}, nil
	}
	if !errors.Is(err, nvcc.ErrNotFound) {
		return nil, err
	}
	if opt.With == Nvcc {
		return nil, fmt.Errorf("%w: %w", ErrNoCompiler, err)
	}
	library, missing := openNVRTC()
	if errors.Is(missing, errNoNVRTC) {
		return nil, fmt.Errorf("%w: %w; %w", ErrNoCompiler, err, missing)
	}
	return library, missing
}
