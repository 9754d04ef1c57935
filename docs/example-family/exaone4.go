// Package exaone4 teaches mkgen a family that it does not have: EXAONE 4.
package exaone4

import "github.com/mkgen/mkgen/models"

// Family is EXAONE 4: norms of what attention and MLP give, norms of every head's q and k, windows in three layers of
// four, and no rotary embedding in the fourth (transformers: modeling_exaone4.py).
func Family() models.Family {
	return models.Family{
		Name:     "exaone4",
		Title:    "EXAONE 4",
		Class:    "Exaone4ForCausalLM",
		Defaults: `{"bos_token_id": 0, "eos_token_id": 2, "sliding_window": 4096, "sliding_window_pattern": 4}`,
		Read:     read,
		Names: models.TensorNames{
			models.RolePostAttn: "model.layers.%d.post_attention_layernorm.weight",
			models.RolePostMLP:  "model.layers.%d.post_feedforward_layernorm.weight",
		},
	}
}

func read(f *models.Fields, c *models.Config) {
	c.Traits.Act = f.Activation("hidden_act")
	c.Traits.Norms = models.NormsAfter
	c.Traits.QKNorm = models.QKNormByHead

	hybrid := f.Optional("sliding_window", 1, models.MaxMaxPositions) != 0 // the small model has none
	window := f.Window("sliding_window", c)
	sliding := f.Sliding(c, func(layer int) bool { return (layer+1)%4 != 0 }) // layer_types, where it is there
	f.Pass("sliding_window_pattern")                                          // "LLLG" says it once more
	c.LayerKinds(func(layer int) models.Kind {
		switch {
		case !hybrid:
			return models.Kind{}
		case sliding(layer):
			return models.Kind{Window: window}
		}
		return models.Kind{NoRope: true}
	})
}
