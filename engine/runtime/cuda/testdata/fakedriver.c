// A fake libcuda.so.1 for tests without a GPU: one "GPU" whose memory is the host's, with just the functions that the package calls.
// Only scripts/build-cuda --fake puts it where programs find it. It checks that a context is current and that pointers are its own, so that a use after
// release is seen; a launch adds 1 to the first 32-bit word of the params block, at once.
//
// Environment: MKGEN_FAKE_INIT=<code> cuInit's result; MKGEN_FAKE_COMPUTE=<major> (default 9); MKGEN_FAKE_SYNC=<code> what waiting for a
// stream returns; MKGEN_FAKE_LOAD=<code> what loading a module returns.
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMS = 4, OPTIN = 232448, PER_SM = 233472, LIVE = 4096, MEMORY = 1 << 30 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int current;         // whether this thread has the context
static int retained;                 // uses of the primary context
static size_t used;                  // bytes of device memory
static struct { void *p; size_t bytes; int kind; } live[LIVE];
enum { NONE, DEVICE, HOST, STREAM, EVENT, MODULE, GRAPH, EXEC };

static int knob(const char *name, int otherwise) {
  const char *v = getenv(name);
  return v && *v ? atoi(v) : otherwise;
}

static CUresult make(int kind, size_t bytes, void **p) {
  if (!current || !retained) return CUDA_ERROR_INVALID_CONTEXT;
  pthread_mutex_lock(&lock);
  CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
  if (kind != DEVICE || used + bytes <= MEMORY) {
    for (int i = 0; i < LIVE; i++) {
      if (live[i].kind != NONE) continue;
      if (!(*p = aligned_alloc(256, (bytes + 255) / 256 * 256))) break;
      memset(*p, 0xA5, bytes);
      live[i].p = *p, live[i].bytes = bytes, live[i].kind = kind;
      if (kind == DEVICE) used += bytes;
      r = CUDA_SUCCESS;
      break;
    }
  }
  pthread_mutex_unlock(&lock);
  return r;
}

// find looks for n bytes from p inside one live object of the kind; drop releases it (p must be its start).
static CUresult find(int kind, const void *p, size_t n, int drop) {
  if (!current || !retained) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult r = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < LIVE && r != CUDA_SUCCESS; i++) {
    char *start = live[i].p;
    if (live[i].kind != kind || (char *)p < start || (char *)p + n > start + live[i].bytes) continue;
    if (drop && start != p) continue;
    r = CUDA_SUCCESS;
    if (drop) {
      if (kind == DEVICE) used -= live[i].bytes;
      free(start);
      live[i].kind = NONE;
    }
  }
  pthread_mutex_unlock(&lock);
  return r;
}

CUresult cuInit(unsigned flags) { return knob("MKGEN_FAKE_INIT", 0); }
CUresult cuDriverGetVersion(int *v) { return *v = 13000, CUDA_SUCCESS; }
CUresult cuGetExportTable(const void **table, const CUuuid *id) { (void)id; return *table = 0, CUDA_ERROR_NOT_FOUND; } // NVRTC asks for one
CUresult cuDeviceGetCount(int *n) { return *n = 1, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *d, int ordinal) { return *d = ordinal, ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; }
CUresult cuDeviceGetName(char *name, int n, CUdevice d) { return snprintf(name, n, "mkgen fake GPU"), CUDA_SUCCESS; }
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice d) { return *bytes = MEMORY, CUDA_SUCCESS; }

CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) {
  switch ((int)a) {
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *v = knob("MKGEN_FAKE_COMPUTE", 9); break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *v = 0; break;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *v = SMS; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *v = OPTIN; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *v = PER_SM; break;
  case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *v = 1 << 20; break;
  case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *v = 1000000; break;
  case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: *v = 1; break;
  default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { return retained++, *c = (CUcontext)&retained, CUDA_SUCCESS; }

CUresult cuDevicePrimaryCtxRelease(CUdevice d) {
  if (retained < 1) return CUDA_ERROR_INVALID_CONTEXT;
  int left = 0;
  for (int i = 0; i < LIVE; i++) left += live[i].kind != NONE;
  if (--retained == 0 && left) return fprintf(stderr, "fake driver: %d objects left\n", left), CUDA_ERROR_UNKNOWN;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext c) { return current = c == (CUcontext)&retained, CUDA_SUCCESS; }
CUresult cuMemGetInfo(size_t *avail, size_t *total) { return *avail = MEMORY - used, *total = MEMORY, CUDA_SUCCESS; }
CUresult cuMemAlloc(CUdeviceptr *p, size_t bytes) { return make(DEVICE, bytes, (void **)p); }
CUresult cuMemFree(CUdeviceptr p) { return find(DEVICE, (void *)p, 0, 1); }
CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned flags) { return make(HOST, bytes, p); }
CUresult cuMemHostGetDevicePointer(CUdeviceptr *d, void *p, unsigned flags) { return *d = (CUdeviceptr)p, find(HOST, p, 0, 0); }
CUresult cuMemFreeHost(void *p) { return find(HOST, p, 0, 1); }

CUresult cuMemcpyHtoDAsync(CUdeviceptr d, const void *h, size_t n, CUstream s) {
  CUresult r = find(DEVICE, (void *)d, n, 0);
  if (r == CUDA_SUCCESS) r = find(STREAM, s, 0, 0);
  if (r == CUDA_SUCCESS) memcpy((void *)d, h, n);
  return r;
}

CUresult cuMemcpyDtoHAsync(void *h, CUdeviceptr d, size_t n, CUstream s) {
  CUresult r = find(DEVICE, (void *)d, n, 0);
  if (r == CUDA_SUCCESS) r = find(STREAM, s, 0, 0);
  if (r == CUDA_SUCCESS) memcpy(h, (void *)d, n);
  return r;
}

CUresult cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream s) {
  CUresult r = find(DEVICE, (void *)d, n, 0);
  if (r == CUDA_SUCCESS) memset((void *)d, v, n);
  return r;
}

CUresult cuStreamCreate(CUstream *s, unsigned flags) { return make(STREAM, 1, (void **)s); }
CUresult cuStreamDestroy(CUstream s) { return find(STREAM, s, 0, 1); }
CUresult cuStreamQuery(CUstream s) { return find(STREAM, s, 0, 0) ? CUDA_ERROR_INVALID_HANDLE : knob("MKGEN_FAKE_SYNC", 0); }
CUresult cuStreamSynchronize(CUstream s) { return cuStreamQuery(s); }
CUresult cuEventCreate(CUevent *e, unsigned flags) { return make(EVENT, 1, (void **)e); }
CUresult cuEventDestroy(CUevent e) { return find(EVENT, e, 0, 1); }
CUresult cuEventRecord(CUevent e, CUstream s) { return find(EVENT, e, 0, 0) ? CUDA_ERROR_INVALID_HANDLE : find(STREAM, s, 0, 0); }
CUresult cuEventSynchronize(CUevent e) { return find(EVENT, e, 0, 0); }
CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) { return *ms = 1.5f, find(EVENT, from, 0, 0) ? 400 : find(EVENT, to, 0, 0); }

CUresult cuModuleLoadData(CUmodule *m, const void *image) {
  int code = knob("MKGEN_FAKE_LOAD", 0);
  return code ? code : make(MODULE, 1, (void **)m);
}

CUresult cuModuleUnload(CUmodule m) { return find(MODULE, m, 0, 1); }

CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
  if (strcmp(name, "kernel")) return CUDA_ERROR_NOT_FOUND;
  return *f = (CUfunction)m, find(MODULE, m, 0, 0);
}

static int dynamic_shared = 49152; // of the only function

CUresult cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f) {
  *v = a == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES ? 1024 : a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 512 : 0;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) {
  if (a == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) return v == 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (a != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || v + 1024 > OPTIN) return CUDA_ERROR_INVALID_VALUE;
  return dynamic_shared = v, CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction f, int block, size_t shared) {
  *n = shared > (size_t)dynamic_shared ? 0 : PER_SM / (shared + 2048);
  return CUDA_SUCCESS;
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                   unsigned shared, CUstream s, void **params) {
  CUresult r = find(STREAM, s, 0, 0);
  if (r != CUDA_SUCCESS || find(MODULE, f, 0, 0) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_HANDLE;
  unsigned *word = *(unsigned **)params[0];
  if (find(DEVICE, word, 4, 0) && find(HOST, word, 4, 0)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return *word += 1, CUDA_SUCCESS;
}

// A graph is the words that its launches add 1 to, and which of them are programmatic dependent ones.
enum { NODES = 64 };
struct graph { int n; unsigned *word[NODES]; int dependent[NODES]; };
static CUstream capturing;
static struct graph captured;

CUresult cuStreamBeginCapture(CUstream s, CUstreamCaptureMode mode) {
  if (capturing || mode != CU_STREAM_CAPTURE_MODE_RELAXED || find(STREAM, s, 0, 0)) return CUDA_ERROR_ILLEGAL_STATE;
  return capturing = s, memset(&captured, 0, sizeof captured), CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {
  if (find(MODULE, f, 0, 0)) return CUDA_ERROR_INVALID_HANDLE;
  if (!capturing || c->hStream != capturing || captured.n == NODES) return CUDA_ERROR_NOT_SUPPORTED;
  unsigned *word = *(unsigned **)params[0];
  if (find(DEVICE, word, 4, 0) && find(HOST, word, 4, 0)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (unsigned i = 0; i < c->numAttrs; i++) {
    if (c->attrs[i].id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) return CUDA_ERROR_INVALID_VALUE;
    captured.dependent[captured.n] = c->attrs[i].value.programmaticStreamSerializationAllowed;
  }
  return captured.word[captured.n++] = word, CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream s, CUgraph *g) {
  if (s != capturing) return CUDA_ERROR_ILLEGAL_STATE;
  capturing = NULL;
  CUresult r = make(GRAPH, sizeof(struct graph), (void **)g);
  if (r == CUDA_SUCCESS) memcpy(*g, &captured, sizeof captured);
  return r;
}

CUresult cuGraphGetEdges_v2(CUgraph g, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *n) {
  struct graph *x = (struct graph *)g;
  if (find(GRAPH, g, 0, 0)) return CUDA_ERROR_INVALID_HANDLE;
  for (int i = 1; data && i < x->n; i++) data[i - 1].type = x->dependent[i] ? CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC : CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
  return *n = x->n ? x->n - 1 : 0, CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *e, CUgraph g, unsigned long long flags) {
  if (find(GRAPH, g, 0, 0)) return CUDA_ERROR_INVALID_HANDLE;
  CUresult r = make(EXEC, sizeof(struct graph), (void **)e);
  if (r == CUDA_SUCCESS) memcpy(*e, g, sizeof(struct graph));
  return r;
}

CUresult cuGraphDestroy(CUgraph g) { return find(GRAPH, g, 0, 1); }
CUresult cuGraphExecDestroy(CUgraphExec e) { return find(EXEC, e, 0, 1); }

CUresult cuGraphLaunch(CUgraphExec e, CUstream s) {
  struct graph *x = (struct graph *)e;
  if (find(EXEC, e, 0, 0) || find(STREAM, s, 0, 0)) return CUDA_ERROR_INVALID_HANDLE;
  for (int i = 0; i < x->n; i++) *x->word[i] += 1;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult r, const char **text) {
  *text = r == CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : r == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
          : r == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : r == CUDA_ERROR_NOT_FOUND ? "CUDA_ERROR_NOT_FOUND"
          : r == CUDA_ERROR_NO_BINARY_FOR_GPU ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : NULL;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult r, const char **text) { return *text = "a fake driver's text", CUDA_SUCCESS; }
