package exaone4

import (
	"os"
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/tests/families"
)

func TestLogitsAreThoseOfTransformers(t *testing.T) {
	golden, err := families.Read(os.DirFS("testdata"), "golden.json")
	if err != nil {
		t.Fatal(err)
	}
	config, err := golden.Config([]models.Family{Family()})
	if err != nil {
		t.Fatal(err)
	}
	arch := config.Arch()
	t.Log("\n" + arch.String())
	diff, err := golden.Difference(config)
	if err != nil {
		t.Fatal(err)
	}
	if diff > 2e-5 {
		t.Errorf("logits differ by %.1e of their standard deviation, want 2e-5 or less", diff)
	}
}
