package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// big writes a checkpoint of zeros: one layer of the fixture's configuration with
// hidden size 4096, intermediate size 14336, and a vocabulary of that many rows.
// The file has holes, so that it takes no disk.
func big(tb testing.TB, dtype models.DType, vocab int) string {
	dir := directory(tb, "single_bf16", nil)
	path := filepath.Join(dir, ConfigFile)
	text, err := os.ReadFile(path)
	require.NoError(tb, err)
	edited := strings.NewReplacer(`"hidden_size": 16`, `"hidden_size": 4096`, `"intermediate_size": 24`,
		`"intermediate_size": 14336`, `"vocab_size": 40`, fmt.Sprintf(`"vocab_size": %d`, vocab), `"num_hidden_layers": 2`,
		`"num_hidden_layers": 1`).Replace(string(text))
	require.NoError(tb, os.WriteFile(path, []byte(edited), 0o600))
	config, err := models.Reading{}.ParseFile(path)
	require.NoError(tb, err)
	var list []string
	at := int64(0)
	for _, w := range tensorsOf(config) {
		end := at + int64(dtype.Bytes())
		for _, d := range w.shape {
			end = at + (end-at)*int64(d)
		}
		name := Tensor{DType: dtype}.dtype()
		list = append(list, fmt.Sprintf(`%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, w.name, name, showShape(w.shape),
			at, end))
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
				row := make([]half.BF16, t.cols)
				for i := worker; i < t.rows; i += n {
					require.NoError(tb, c.Row(name, i, row))
				}
			}
		})
	}
	group.Wait()
}
