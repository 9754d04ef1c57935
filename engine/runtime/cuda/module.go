//go:build cuda

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"gorgonia.org/cu"
)

// Module is a cubin loaded on a device.
type Module struct {
	handle
	module cu.Module
}

// LoadModule loads a cubin, compiled for this GPU's architecture. Anything but an ELF file is refused here, a cubin for
// another architecture by the driver.
func (d *Device) LoadModule(cubin []byte) (*Module, error) {
	if !bytes.HasPrefix(cubin, []byte("\x7fELF")) {
		return nil, fmt.Errorf("cuda: load a module: %d bytes that are no cubin (an ELF file)", len(cubin))
	}
	m := &Module{}
	m.handle = handle{dev: d, what: "module", free: func() error { return m.module.Unload() }}
	err := d.do("load a module", func() error {
		var err error
		if m.module, err = cu.LoadData(string(cubin)); err != nil {
			err = fromCu(err)
			if e, ok := err.(*DriverError); ok && e.Code == codeNoBinary {
				return fmt.Errorf("%w: the cubin is not for compute capability %d.%d of %s",
					err, d.facts.ComputeMajor, d.facts.ComputeMinor, d.facts.Name)
			}
			return err
		}
		d.keep(&m.handle)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Close unloads the module; its functions must not be running. A second Close does nothing.
func (m *Module) Close() error { return m.release("close a module") }

// Function is a kernel of a module. It takes one parameter: its params block, or the address of it.
type Function struct {
	module *Module
	name   string
	fn     cu.Function
	// Registers and StaticShared are per thread, and per block in bytes. Local is local memory per thread in bytes:
	// more than 0 means spills or arrays that are not in registers. MaxThreads is the largest block.
	Registers, StaticShared, Local, MaxThreads int
}

// Function returns the kernel of this name, as in the cubin (extern "C", or mangled).
func (m *Module) Function(name string) (*Function, error) {
	f := &Function{module: m, name: name}
	err := m.use("kernel "+name, func() error {
		var err error
		if f.fn, err = m.module.Function(name); err != nil {
			err = fromCu(err)
			if e, ok := err.(*DriverError); ok && e.Code == codeNotFound {
				return fmt.Errorf("the module has no kernel of this name: %w", err)
			}
			return err
		}
		for _, a := range []struct {
			to *int
			id cu.FunctionAttribute
		}{
			{&f.Registers, cu.NumRegs}, {&f.StaticShared, cu.SharedSizeBytes},
			{&f.Local, cu.LocalSizeBytes}, {&f.MaxThreads, cu.FnMaxThreadsPerBlock},
		} {
			if *a.to, err = f.fn.Attribute(a.id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// SetDynamicShared allows the kernel this size of dynamic shared memory in bytes; above 48 KiB a launch needs it. It is
// refused when that and the static part exceed what a block may have.
func (f *Function) SetDynamicShared(bytes int) error {
	optin := f.module.dev.facts.SharedOptin
	if bytes < 0 || bytes > optin-f.StaticShared {
		return fmt.Errorf("cuda: kernel %s: %d bytes of dynamic shared memory beside %d static: want 0 to %d (%d per block)",
			f.name, bytes, f.StaticShared, optin-f.StaticShared, optin)
	}
	return f.module.use(fmt.Sprintf("kernel %s: allow %d bytes of dynamic shared memory", f.name, bytes), func() error {
		return setDynamicShared(f.fn, bytes)
	})
}

// PreferShared asks for as much of the multiprocessors' on-chip memory to be shared memory as there can be, so that
// other kernels' blocks find room beside this one's.
func (f *Function) PreferShared() error {
	return f.module.use("kernel "+f.name+": prefer shared memory", func() error { return preferShared(f.fn) })
}

// PerSM returns how many blocks of block threads and shared bytes of dynamic shared memory fit on one multiprocessor;
// 0 when not one does.
func (f *Function) PerSM(block, shared int) (n int, err error) {
	err = f.module.use("occupancy of kernel "+f.name, func() error {
		n, err = f.fn.MaxActiveBlocksPerMultiProcessor(block, int64(shared))
		return err
	})
	return n, err
}

// LaunchCooperative queues the kernel in the stream: grid blocks of block threads with shared bytes of dynamic shared
// memory each, all resident at once. params are the bytes of its one parameter, 1 to 4096 of them: a params block by
// value, or an address (see Pointer). They are copied before the call returns. A grid that cannot be resident is
// refused before the launch. A fault of the kernel shows later, at [Stream.Sync].
func (f *Function) LaunchCooperative(s *Stream, grid, block, shared int, params []byte) error {
	if s.dev != f.module.dev {
		return errors.New("cuda: launch " + f.name + ": kernel and stream are of different devices")
	}
	if grid < 1 || block < 1 || block > f.MaxThreads || shared < 0 {
		return fmt.Errorf("cuda: launch %s: %d blocks of %d threads with %d bytes: want at least 1 block, 1 to %d threads, at least 0 bytes",
			f.name, grid, block, shared, f.MaxThreads)
	}
	if len(params) < 1 || len(params) > 4096 {
		return fmt.Errorf("cuda: launch %s: a parameter of %d bytes, want 1 to 4096", f.name, len(params))
	}
	perSM, err := f.PerSM(block, shared)
	if err != nil {
		return err
	}
	if err := resident(f.name, perSM, s.dev.facts.SMs, grid, block, shared); err != nil {
		return err
	}
	return f.module.use("launch "+f.name, func() error {
		return s.held(func() error { return launchCooperative(f.fn, s.stream, grid, block, shared, params) })
	})
}

// Pointer is the parameter of a kernel that takes an address, from [Mem.Addr] or [Host.Addr].
func Pointer(addr uint64) []byte { return binary.LittleEndian.AppendUint64(nil, addr) }
