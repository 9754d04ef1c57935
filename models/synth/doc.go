// Package synth makes random weights and tokens that a Go program and a torch program compute independently, bit for
// bit the same, so that a reference of 16 GB is described by a seed instead of being moved. tests/gpu/synth.py is the
// other half.
//
// Every value is a pure function of (seed, tensor name, flat row-major element index i); all arithmetic is modulo 2^32
// or 2^64 and unsigned:
//
//	h       = FNV-1a-64(name)                                offset 0xcbf29ce484222325, prime 0x100000001b3
//	z       = h + seed*0x9e3779b97f4a7c15                    then splitmix64's finaliser:
//	z       = (z ^ z>>30) * 0xbf58476d1ce4e5b9
//	z       = (z ^ z>>27) * 0x94d049bb133111eb
//	key     = z ^ z>>31;  k0 = low 32 bits, k1 = high 32 bits
//	fmix(x) = murmur3's 32-bit finaliser: x ^= x>>16; x *= 0x85ebca6b; x ^= x>>13; x *= 0xc2b2ae35; x ^= x>>16
//	r(i)    = fmix(fmix(uint32(i) ^ k0) + k1)                0 <= i < 2^31
//
// A Recipe maps r to a bf16 value; each mapping is exact in float32 up to its one final rounding to bf16 (nearest, ties
// to even):
//
//	Normal: s = (sum of r's four bytes) - 510, in [-510, 510], approximately normal with standard deviation
//	sqrt(21845) = 147.8;
//	        value = bf16(s * Mantissa * 2^Exp + Shift), Mantissa in [128, 256], so that s*Mantissa has 18 bits at most;
//	        Shift is 0, or -1 with Exp >= -23, so that the sum is exact in float32
//	Gain:   u = r>>16; value = bf16((2*u + 65537) / 131072), uniform in (0.5, 1.5)
//
// A token at position i of sequence q is (r(i) * vocab) >> 32 with the name "tokens.<q>".
package synth
