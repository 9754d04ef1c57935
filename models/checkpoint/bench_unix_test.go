//go:build unix

package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// meter reports bytes per second of the clock, and per second that the process had
// a processor: on a busy machine only the latter says what the code costs.
func meter(b *testing.B, read func() int64) {
	used := func() int64 {
		var usage syscall.Rusage
		require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
		return usage.Utime.Nano() + usage.Stime.Nano()
	}
	total, before := int64(0), used()
	for b.Loop() {
		n := read()
		b.SetBytes(n)
		total += n
	}
	b.ReportMetric(float64(total)/float64(used()-before), "GB/cpu-s")
}

// BenchmarkRows reads every row of a file that is in the page cache, through a new
// mapping each time (cold: every page faults) or through the same one (warm).
func BenchmarkRows(b *testing.B) {
	for _, dtype := range []models.DType{models.BF16, models.F16, models.F32} {
		dir := big(b, dtype, 16384)
		readAll(b, open(b, dir), 2) // puts the file into the page cache
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/%d/cold", dtype, workers), func(b *testing.B) {
				meter(b, func() int64 {
					c, err := Open(dir)
					require.NoError(b, err)
					readAll(b, c, workers)
					require.NoError(b, c.Close())
					return c.Bytes()
				})
			})
			b.Run(fmt.Sprintf("%s/%d/warm", dtype, workers), func(b *testing.B) {
				c := open(b, dir)
				readAll(b, c, workers)
				meter(b, func() int64 {
					readAll(b, c, workers)
					return c.Bytes()
				})
			})
		}
	}
}

// BenchmarkCheck scans a mapped file in the page cache.
func BenchmarkCheck(b *testing.B) {
	for _, dtype := range []models.DType{models.BF16, models.F16, models.F32} {
		c := open(b, big(b, dtype, 16384))
		b.Run(dtype.String(), func(b *testing.B) {
			meter(b, func() int64 {
				require.NoError(b, c.Check(b.Context(), nil))
				return c.Bytes()
			})
		})
	}
}

// BenchmarkConvert converts random weights in the first-level cache, a third of
// those in F16 subnormal.
func BenchmarkConvert(b *testing.B) {
	random := rand.New(rand.NewPCG(7, 8))
	src, dst := make([]byte, 1<<22), make([]half.BF16, 4096)
	for i := 0; i < len(src); i += 2 {
		binary.LittleEndian.PutUint16(src[i:], uint16(random.IntN(3)<<10|random.IntN(1<<10)|random.IntN(2)<<15))
	}
	table := newF16Table()
	for _, dtype := range []models.DType{models.BF16, models.F16, models.F32} {
		row := len(dst) * dtype.Bytes()
		b.Run(dtype.String(), func(b *testing.B) {
			meter(b, func() int64 {
				for at := 0; at < len(src); at += row {
					convert(dst, src[at:at+row], dtype, table)
				}
				return int64(len(src))
			})
		})
	}
}
