package megakernel_test

import (
	"fmt"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"testing"
)

func TestRagTmp(t *testing.T) {
	for _, T := range []int{2, 8, 16} {
		for _, m := range []string{"tiny", "llama3.2-1b", "llama3-8b"} {
			c, err := models.Lookup(m)
			if err != nil {
				t.Fatal(err)
			}
			mk, err := megakernel.Build(c, megakernel.Options{Tokens: T})
			if err != nil {
				t.Log(err)
				t.Fail()
				continue
			}
			fmt.Println(m, T, mk.Plan.Stages, mk.Plan.StageBytes, mk.Plan.SharedBytes)
		}
	}
}
