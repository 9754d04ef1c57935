package compile

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/nvcc"
)

// nvccCompiler compiles with nvcc, in a temporary folder.
type nvccCompiler struct{ *nvcc.Compiler }

func (c *nvccCompiler) name() string { return "nvcc " + c.Version }

// identity has what nvcc takes from its environment too.
func (c *nvccCompiler) identity(target emit.Target, extra []string) []string {
	id := append([]string{c.name(), "prepend " + os.Getenv("NVCC_PREPEND_FLAGS"),
		"append " + os.Getenv("NVCC_APPEND_FLAGS")}, target.NvccFlags()...)
	return append(id, extra...)
}

func (c *nvccCompiler) compile(ctx context.Context, text []byte, target emit.Target,
	extra []string) ([]byte, string, error) {
	dir, err := os.MkdirTemp("", "mkgen-compile-")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(dir)
	src, out := filepath.Join(dir, emit.KernelFile), filepath.Join(dir, "kernel.cubin")
	if err := os.WriteFile(src, text, 0o600); err != nil {
		return nil, "", err
	}
	opt := nvcc.Options{Arch: target.Arch, Base: target.NvccFlags(), Flags: extra}
	report, err := c.Compile(ctx, src, out, opt)
	var refused *nvcc.Error
	switch {
	case ctx.Err() != nil:
		return nil, "", ctx.Err()
	case errors.As(err, &refused):
		return nil, "", c.refusal(ctx, refused, src, opt)
	case err != nil:
		return nil, "", err
	}
	cubin, err := os.ReadFile(out)
	return cubin, report.Text, err
}

func (c *nvccCompiler) ptx(ctx context.Context, text []byte, target emit.Target, extra []string) (string, error) {
	dir, err := os.MkdirTemp("", "mkgen-ptx-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	src := filepath.Join(dir, emit.KernelFile)
	if err := os.WriteFile(src, text, 0o600); err != nil {
		return "", err
	}
	return c.PTX(ctx, src, nvcc.Options{Arch: target.Arch, Base: target.NvccFlags(), Flags: extra})
}

// refusal is nvcc's error. Where ptxas, not the front end, refused the text, its messages name lines of PTX: then nvcc
// runs once more, keeps the PTX with the source's lines in it, and the messages of that run count.
func (c *nvccCompiler) refusal(ctx context.Context, first *nvcc.Error, src string, opt nvcc.Options) *refusal {
	r := &refusal{compiler: c.name(), log: first.Text, cause: first.Err}
	if !ptxasForm.MatchString(first.Text) {
		return r
	}
	dir := filepath.Dir(src)
	opt.Flags = append(opt.Flags[:len(opt.Flags):len(opt.Flags)], "-lineinfo", "-keep", "-keep-dir", dir)
	var again *nvcc.Error
	if _, err := c.Compile(ctx, src, filepath.Join(dir, "lines.cubin"), opt); !errors.As(err, &again) {
		return r
	}
	if ptx, err := os.ReadFile(filepath.Join(dir, "kernel.ptx")); err == nil {
		r.log, r.ptx = again.Text, ptx
	}
	return r
}
