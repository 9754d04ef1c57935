package checkpoint_test

import (
	"context"
	"fmt"
	"log"

	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/half"
)

// Open validates everything but the values of the weights; Check looks at those.
func Example() {
	c, err := checkpoint.Open("testdata/sharded_f16")
	if err != nil {
		log.Fatal(err) // says which file and tensor, what was found and what is wanted
	}
	defer c.Close()
	if err := c.Check(context.Background(), nil); err != nil {
		log.Fatal(err)
	}
	row := make([]half.BF16, c.Config().Hidden)
	if err := c.Row("model.norm.weight", 0, row); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d bytes of weights; first final gain %#04x\n", c.Bytes(), row[0])
	// Output: 10400 bytes of weights; first final gain 0x3826
}
