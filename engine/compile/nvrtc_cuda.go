//go:build cuda

package compile

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

// What is called of NVRTC; its header is not needed. A result of 0 is success, 6 a text that does not compile.
typedef struct {
  void *library;
  const char *(*error)(int);
  int (*version)(int *, int *);
  int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
  int (*destroy)(void **);
  int (*compile)(void *, int, const char *const *);
  int (*log_size)(void *, size_t *);
  int (*log)(void *, char *);
  int (*ptx_size)(void *, size_t *);
  int (*ptx)(void *, char *);
  int (*cubin_size)(void *, size_t *);
  int (*cubin)(void *, char *);
  int (*flow)(void *, int (*)(void *, void *), void *); // NULL before CUDA 13
} mkgen_nvrtc;

// Keeps a library open under its path: NVRTC opens its builtins by their bare name.
static int mkgen_nvrtc_keep(const char *path) { return dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL; }

static int mkgen_nvrtc_open(mkgen_nvrtc *n, const char *path) {
  n->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!n->library) return 0;
  *(void **)&n->error = dlsym(n->library, "nvrtcGetErrorString");
  *(void **)&n->version = dlsym(n->library, "nvrtcVersion");
  *(void **)&n->create = dlsym(n->library, "nvrtcCreateProgram");
  *(void **)&n->destroy = dlsym(n->library, "nvrtcDestroyProgram");
  *(void **)&n->compile = dlsym(n->library, "nvrtcCompileProgram");
  *(void **)&n->log_size = dlsym(n->library, "nvrtcGetProgramLogSize");
  *(void **)&n->log = dlsym(n->library, "nvrtcGetProgramLog");
  *(void **)&n->ptx_size = dlsym(n->library, "nvrtcGetPTXSize");
  *(void **)&n->ptx = dlsym(n->library, "nvrtcGetPTX");
  *(void **)&n->cubin_size = dlsym(n->library, "nvrtcGetCUBINSize");
  *(void **)&n->cubin = dlsym(n->library, "nvrtcGetCUBIN");
  *(void **)&n->flow = dlsym(n->library, "nvrtcSetFlowCallback");
  return n->error && n->version && n->create && n->destroy && n->compile && n->log_size && n->log && n->ptx_size && n->ptx &&
         n->cubin_size && n->cubin;
}

// The file that the library came from.
static const char *mkgen_nvrtc_path(mkgen_nvrtc *n) {
  Dl_info info;
  return dladdr(*(void **)&n->version, &info) ? info.dli_fname : "";
}

static int mkgen_nvrtc_asked(void *stop, void *unused) { return atomic_load((atomic_int *)stop); }
static void mkgen_nvrtc_stop(int *stop) { atomic_store((atomic_int *)stop, 1); }

static const char *mkgen_nvrtc_error(mkgen_nvrtc *n, int code) { return n->error(code); }
static int mkgen_nvrtc_version(mkgen_nvrtc *n, int *major, int *minor) { return n->version(major, minor); }
static int mkgen_nvrtc_create(mkgen_nvrtc *n, void **p, const char *text, const char *name) { return n->create(p, text, name, 0, NULL, NULL); }
static int mkgen_nvrtc_destroy(mkgen_nvrtc *n, void *p) { return n->destroy(&p); }
static int mkgen_nvrtc_compile(mkgen_nvrtc *n, void *p, int count, char **args, int *stop) {
  if (n->flow) n->flow(p, mkgen_nvrtc_asked, stop);
  return n->compile(p, count, (const char *const *)args);
}
static int mkgen_nvrtc_log_size(mkgen_nvrtc *n, void *p, size_t *size) { return n->log_size(p, size); }
static int mkgen_nvrtc_log(mkgen_nvrtc *n, void *p, char *to) { return n->log(p, to); }
static int mkgen_nvrtc_ptx_size(mkgen_nvrtc *n, void *p, size_t *size) { return n->ptx_size(p, size); }
static int mkgen_nvrtc_ptx(mkgen_nvrtc *n, void *p, char *to) { return n->ptx(p, to); }
static int mkgen_nvrtc_cubin_size(mkgen_nvrtc *n, void *p, size_t *size) { return n->cubin_size(p, size); }
static int mkgen_nvrtc_cubin(mkgen_nvrtc *n, void *p, char *to) { return n->cubin(p, to); }
*/
import "C"

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/nvcc"
)

// nvrtcCompiler is an open NVRTC. It is never closed: a process that compiles once may do so again.
type nvrtcCompiler struct {
	lib          *C.mkgen_nvrtc // in C memory: it outlives a call that was given up
	path         string
	major, minor int
}

// openNVRTC opens the first library there is; one that is too old is an error, as an nvcc would be.
func openNVRTC() (compiler, error) {
	paths := libraries()
	lib := (*C.mkgen_nvrtc)(C.calloc(1, C.sizeof_mkgen_nvrtc))
	for _, path := range paths {
		if !openLibrary(lib, path) {
			continue
		}
		var major, minor C.int
		if code := C.mkgen_nvrtc_version(lib, &major, &minor); code != 0 {
			return nil, fmt.Errorf("NVRTC %s: version: %s", path, C.GoString(C.mkgen_nvrtc_error(lib, code)))
		}
		c := &nvrtcCompiler{lib: lib, path: C.GoString(C.mkgen_nvrtc_path(lib)), major: int(major), minor: int(minor)}
		if c.major < nvcc.MinMajor {
			return nil, fmt.Errorf("NVRTC %s is of CUDA %d.%d, want CUDA %d or newer", c.path, c.major, c.minor, nvcc.MinMajor)
		}
		return c, nil
	}
	C.free(unsafe.Pointer(lib))
	return nil, fmt.Errorf("%w: looked for %s", errNoNVRTC, strings.Join(paths, ", "))
}

// openLibrary opens one candidate, its builtins first where its folder is known.
func openLibrary(lib *C.mkgen_nvrtc, path string) bool {
	if filepath.IsAbs(path) {
		// the pattern is well-formed
		builtins, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "libnvrtc-builtins.so.*"))
		for _, b := range builtins {
			name := C.CString(b)
			C.mkgen_nvrtc_keep(name)
			C.free(unsafe.Pointer(name))
		}
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	return C.mkgen_nvrtc_open(lib, name) != 0
}

func (c *nvrtcCompiler) name() string { return fmt.Sprintf("NVRTC %d.%d", c.major, c.minor) }

// identity has the library's file with its size: the version that NVRTC tells has no build in it.
func (c *nvrtcCompiler) identity(target emit.Target, extra []string) []string {
	build := c.path
	if real, err := filepath.EvalSymlinks(c.path); err == nil {
		build = filepath.Base(real)
		if info, err := os.Stat(real); err == nil {
			build = fmt.Sprintf("%s of %d bytes", build, info.Size())
		}
	}
	return append([]string{c.name(), build}, nvrtcArguments(target, extra)...)
}

func (c *nvrtcCompiler) compile(ctx context.Context, text []byte, target emit.Target,
	extra []string) ([]byte, string, error) {
	return c.made(ctx, text, target, extra, false)
}

func (c *nvrtcCompiler) ptx(ctx context.Context, text []byte, target emit.Target, extra []string) (string, error) {
	ptx, _, err := c.made(ctx, text, target, extra, true)
	return string(ptx), err
}

// made compiles in this process, and returns the cubin or the PTX. NVRTC of CUDA 13 is told to stop when ctx ends; an
// older one goes on in the background, and what it makes is dropped.
func (c *nvrtcCompiler) made(ctx context.Context, text []byte, target emit.Target, extra []string,
	ptx bool) ([]byte, string, error) {
	type outcome struct {
		made []byte
		log  string
		err  error
	}
	done := make(chan outcome, 1)
	stop := (*C.int)(C.calloc(1, C.sizeof_int))
	finished := make(chan struct{})
	go func() {
		var o outcome
		o.made, o.log, o.err = c.program(text, nvrtcArguments(target, extra), stop, ptx)
		close(finished)
		done <- o
	}()
	go func() { // owns stop
		select {
		case <-finished:
		case <-ctx.Done():
			C.mkgen_nvrtc_stop(stop)
			<-finished
		}
		C.free(unsafe.Pointer(stop))
	}()
	select {
	case o := <-done:
		return o.made, o.log, o.err
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
}

// program makes, compiles and destroys one program of NVRTC, and returns its cubin or its PTX.
func (c *nvrtcCompiler) program(text []byte, args []string, stop *C.int, ptx bool) ([]byte, string, error) {
	source, name := C.CString(string(text)), C.CString(emit.KernelFile)
	defer C.free(unsafe.Pointer(source))
	defer C.free(unsafe.Pointer(name))
	var p unsafe.Pointer
	if code := C.mkgen_nvrtc_create(c.lib, &p, source, name); code != 0 {
		return nil, "", c.failed("create a program", code)
	}
	defer C.mkgen_nvrtc_destroy(c.lib, p)
	list := (**C.char)(C.calloc(C.size_t(len(args)), C.size_t(unsafe.Sizeof(uintptr(0)))))
	defer C.free(unsafe.Pointer(list))
	for i, a := range args {
		arg := C.CString(a)
		defer C.free(unsafe.Pointer(arg))
		unsafe.Slice(list, len(args))[i] = arg
	}
	code := C.mkgen_nvrtc_compile(c.lib, p, C.int(len(args)), list, stop)
	log, err := c.fetch("log", p, func(n *C.size_t) C.int { return C.mkgen_nvrtc_log_size(c.lib, p, n) },
		func(to *C.char) C.int { return C.mkgen_nvrtc_log(c.lib, p, to) })
	said := strings.TrimRight(string(log), "\x00\n")
	if code != 0 {
		return nil, "", &refusal{compiler: c.name(), log: said, cause: c.failed("compile", code)}
	}
	if err != nil {
		return nil, "", err
	}
	if ptx {
		made, err := c.fetch("PTX", p, func(n *C.size_t) C.int { return C.mkgen_nvrtc_ptx_size(c.lib, p, n) },
			func(to *C.char) C.int { return C.mkgen_nvrtc_ptx(c.lib, p, to) })
		return bytes.TrimRight(made, "\x00"), said, err
	}
	cubin, err := c.fetch("cubin", p, func(n *C.size_t) C.int { return C.mkgen_nvrtc_cubin_size(c.lib, p, n) },
		func(to *C.char) C.int { return C.mkgen_nvrtc_cubin(c.lib, p, to) })
	return cubin, said, err
}

// fetch reads one of NVRTC's pairs of a size and a getter.
func (c *nvrtcCompiler) fetch(what string, p unsafe.Pointer, size func(*C.size_t) C.int,
	get func(*C.char) C.int) ([]byte, error) {
	n := (*C.size_t)(C.calloc(1, C.sizeof_size_t))
	defer C.free(unsafe.Pointer(n))
	if code := size(n); code != 0 {
		return nil, c.failed("size of the "+what, code)
	}
	if *n == 0 {
		return nil, errors.New("NVRTC gave an empty " + what)
	}
	data := make([]byte, *n)
	if code := get((*C.char)(unsafe.Pointer(&data[0]))); code != 0 {
		return nil, c.failed(what, code)
	}
	return data, nil
}

func (c *nvrtcCompiler) failed(what string, code C.int) error {
	return fmt.Errorf("%s: %s", what, C.GoString(C.mkgen_nvrtc_error(c.lib, code)))
}
