// A kernel that cannot keep its values in the 32 registers it is allowed: ptxas must report spills.
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float *p) {
  float v[64];
#pragma unroll
  for (int i = 0; i < 64; i++) v[i] = p[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; i++) p[i * 1024 + threadIdx.x] = v[(i * 7 + 3) & 63] * v[i];
}
