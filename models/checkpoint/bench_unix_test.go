//go:build unix

package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/models"
)

// big writes a checkpoint of zeros: one layer of the fixture's configuration with
// hidden size 4096, intermediate size 14336, and a vocabulary of that many rows.
// The file has holes, so that it takes no disk.
func big(tb testing.TB, dtype models.DType, vocab int) string {
	dir := directory(tb, "single_bf16", nil)
	path := filepath.Join(dir, ConfigFile)
	text, err := os.ReadFile(path)
	require.NoError(tb, err)
	edited := strings.NewReplacer(`"hidden_size": 16`, `"hidden_size": 4096`, `"intermediate_size": 24`, `"intermediate_size": 14336`,
		`"vocab_size": 40`, fmt.Sprintf(`"vocab_size": %d`, vocab), `"num_hidden_layers": 2`, `"num_hidden_layers": 1`).Replace(string(text))
	require.NoError(tb, os.WriteFile(path, []byte(edited), 0o600))
	config, err := models.ParseFile(path)
	require.NoError(tb, err)
	var list []string
	at := int64(0)
	for _, w := range tensorsOf(config) {
		end := at + int64(dtype.Bytes())
		for _, d := range w.shape {
			end = at + (end-at)*int64(d)
		}
		name := Tensor{DType: dtype}.dtype()
		list = append(list, fmt.Sprintf(`%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, w.name, name, showShape(w.shape), at, end))
		at = end
	}
	header := frame("{" + strings.Join(list, ",") + "}")
	path = filepath.Join(dir, SingleFile)
	require.NoError(tb, os.WriteFile(path, header, 0o600))
	require.NoError(tb, os.Truncate(path, int64(len(header))+at))
	return dir
}

// readAll reads every row once on n goroutines.
func readAll(tb testing.TB, c *Checkpoint, n int) {
	var group sync.WaitGroup
	for worker := range n {
		group.Go(func() {
			for _, name := range c.order {
				t := c.tensors[name]
				row := make([]uint16, t.cols)
				for i := worker; i < t.rows; i += n {
					require.NoError(tb, c.Row(name, i, row))
				}
			}
		})
	}
	group.Wait()
}

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
	src, dst := make([]byte, 1<<22), make([]uint16, 4096)
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
