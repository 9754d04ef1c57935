//go:build cuda

package cuda

/*
#cgo LDFLAGS: -lcuda
#include <cuda.h>
#include <stdint.h>

#undef cuInit // the shim's cuda.h puts cu's own call off; here the real one is made

static CUresult mkgen_init(void) { return cuInit(0); }

static CUresult mkgen_set_dynamic_shared(CUfunction f, int bytes) {
  return cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
}

static CUresult mkgen_prefer_shared(CUfunction f) {
  return cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
}

static CUresult mkgen_launch_cooperative(CUfunction f, unsigned grid, unsigned block, unsigned shared, CUstream stream, void *block_of_params) {
  void *params[1] = {block_of_params};
  return cuLaunchCooperativeKernel(f, grid, 1, 1, block, 1, 1, shared, stream, params);
}

static CUresult mkgen_host_alloc(void **host, CUdeviceptr *device, size_t bytes) {
  CUresult err = cuMemHostAlloc(host, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  if (err != CUDA_SUCCESS) return err;
  err = cuMemHostGetDevicePointer(device, *host, 0);
  if (err != CUDA_SUCCESS) cuMemFreeHost(*host);
  return err;
}

static CUresult mkgen_tensor_map(void *map, unsigned long long at, const uint64_t *dims, const uint64_t *strides, const uint32_t *box) {
  static const uint32_t one[3] = {1, 1, 1};
  return cuTensorMapEncodeTiled((CUtensorMap *)map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, (void *)at, dims, strides, box, one,
                                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static CUresult mkgen_attribute(int *value, int attribute, int device) {
  return cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, (CUdevice)device);
}

enum {
  mkgen_shared_optin = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
  mkgen_shared_per_sm = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
  mkgen_l2 = CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
  mkgen_sms = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
  mkgen_clock = CU_DEVICE_ATTRIBUTE_CLOCK_RATE,
  mkgen_cooperative = CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
};
*/
import "C"

import (
	"fmt"
	"reflect"
	"unsafe"

	"gorgonia.org/cu"
)

// DriverError is an error code of the CUDA driver with its name and its text.
type DriverError struct {
	// Code is the CUresult, Name such as "CUDA_ERROR_OUT_OF_MEMORY", Text the driver's sentence for it.
	Code int
	Name string
	Text string
}

func (e *DriverError) Error() string { return fmt.Sprintf("%s (%d, %s)", e.Name, e.Code, e.Text) }

// The codes that this package asks for.
const (
	codeOutOfMemory = C.CUDA_ERROR_OUT_OF_MEMORY
	codeNoBinary    = C.CUDA_ERROR_NO_BINARY_FOR_GPU
	codeNotFound    = C.CUDA_ERROR_NOT_FOUND
	codeNotReady    = C.CUDA_ERROR_NOT_READY
)

// driverError makes a CUresult an error, nil for success.
func driverError(code C.CUresult) error {
	if code == C.CUDA_SUCCESS {
		return nil
	}
	if code == C.CUDA_ERROR_STUB_LIBRARY { // there is no driver that could say its name and text
		return &DriverError{Code: int(code), Name: "CUDA_ERROR_STUB_LIBRARY",
			Text: "no libcuda.so.1 of an NVIDIA driver, or one without this function"}
	}
	e := &DriverError{Code: int(code), Name: fmt.Sprintf("CUresult %d", int(code)), Text: "the driver has no text for it"}
	var text *C.char
	if C.cuGetErrorName(code, &text) == C.CUDA_SUCCESS && text != nil {
		e.Name = C.GoString(text)
	}
	text = nil
	if C.cuGetErrorString(code, &text) == C.CUDA_SUCCESS && text != nil {
		e.Text = C.GoString(text)
	}
	return e
}

// fromCu makes an error of cu's (an unexported integer type) a DriverError, and leaves every other error as it is.
func fromCu(err error) error {
	if err == nil {
		return nil
	}
	if v := reflect.ValueOf(err); v.Kind() == reflect.Int {
		return driverError(C.CUresult(v.Int()))
	}
	return err
}

// initDriver makes the driver ready; it may be called any number of times.
func initDriver() error { return driverError(C.mkgen_init()) }

// attributes reads the device attributes that cu does not name, and the others beside them.
func attributes(device cu.Device, f *Facts) error {
	var shared, perSM, l2, sms, clock, cooperative C.int
	for _, a := range []struct {
		to *C.int
		id C.int
	}{
		{&shared, C.mkgen_shared_optin}, {&perSM, C.mkgen_shared_per_sm}, {&l2, C.mkgen_l2},
		{&sms, C.mkgen_sms}, {&clock, C.mkgen_clock}, {&cooperative, C.mkgen_cooperative},
	} {
		if err := driverError(C.mkgen_attribute(a.to, a.id, C.int(device))); err != nil {
			return fmt.Errorf("device attribute %d: %w", int(a.id), err)
		}
	}
	f.SharedOptin, f.SharedPerSM, f.L2 = int(shared), int(perSM), int64(l2)
	f.SMs, f.ClockKHz, f.Cooperative = int(sms), int(clock), cooperative != 0
	return nil
}

// raw returns the CUfunction that a cu.Function holds as its only field.
func raw(f cu.Function) C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f)) }

// A cu.Function or cu.Stream that is more than one pointer would make raw and the launch wrong: then these do not
// compile.
var (
	_ [unsafe.Sizeof(cu.Function{}) - unsafe.Sizeof(uintptr(0))]struct{} = [0]struct{}{}
	_ [unsafe.Sizeof(cu.Stream{}) - unsafe.Sizeof(uintptr(0))]struct{}   = [0]struct{}{}
)

// setDynamicShared allows the function so much dynamic shared memory, in bytes.
func setDynamicShared(f cu.Function, bytes int) error {
	return driverError(C.mkgen_set_dynamic_shared(raw(f), C.int(bytes)))
}

// preferShared asks for the largest share of on-chip memory as shared memory.
func preferShared(f cu.Function) error { return driverError(C.mkgen_prefer_shared(raw(f))) }

// launchCooperative launches a one-dimensional grid with all blocks resident; params are the bytes of the kernel's only
// parameter.
func launchCooperative(f cu.Function, s cu.Stream, grid, block, shared int, params []byte) error {
	stream := *(*C.CUstream)(unsafe.Pointer(&s))
	return driverError(C.mkgen_launch_cooperative(raw(f), C.uint(grid), C.uint(block), C.uint(shared), stream,
		unsafe.Pointer(unsafe.SliceData(params))))
}

// hostAlloc allocates pinned host memory mapped into the device's address space.
func hostAlloc(bytes int) (host unsafe.Pointer, device uint64, err error) {
	var d C.CUdeviceptr
	err = driverError(C.mkgen_host_alloc(&host, &d, C.size_t(bytes)))
	return host, uint64(d), err
}

// tensorMap has the driver make a tensor map of an address.
func tensorMap(at uint64, dims [3]int64, strides [2]int64, box [3]int) ([]byte, error) {
	var d [3]C.uint64_t
	var s [2]C.uint64_t
	var b [3]C.uint32_t
	for i := range dims {
		d[i], b[i] = C.uint64_t(dims[i]), C.uint32_t(box[i])
	}
	for i := range strides {
		s[i] = C.uint64_t(strides[i])
	}
	var place [192]byte // the driver wants 64-byte alignment
	skip := -int(uintptr(unsafe.Pointer(&place[0]))) & 63
	out := place[skip : skip+128]
	err := driverError(C.mkgen_tensor_map(unsafe.Pointer(&out[0]), C.ulonglong(at), &d[0], &s[0], &b[0]))
	return append([]byte(nil), out...), err
}
