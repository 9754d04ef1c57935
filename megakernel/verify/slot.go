package verify

import "github.com/mkgen/mkgen/engine/runtime"

// slot is a token's place in a cache of n pages a layer.
type slot struct{ pages, layer, page, slot int }

// head is the byte at which the keys and values of a token of one head begin.
func (t *Trial) head(s slot, head int) int64 {
	kv := t.mk.KV
	return int64(kv.Index(s.pages, s.layer, s.page, head, s.slot, 0, 0)/(2*kv.D)) * int64(kv.TokenBytes())
}

// element is where dimension d of K (which = 0) or V lies behind head.
func (t *Trial) element(s slot, head, which, d int) int64 {
	return int64(t.mk.KV.Index(s.pages, s.layer, s.page, head, s.slot, which, d)*t.elementBytes()) - t.head(s, head)
}

// write puts a token into the cache.
func (t *Trial) write(sim *runtime.Sim, s slot, token kvToken) error {
	kv := t.mk.KV
	raw := make([]byte, kv.TokenBytes())
	for h := range kv.Heads {
		for d := range kv.D {
			for v, values := range [][]float64{token.k, token.v} {
				copy(raw[t.element(s, h, v, d):], t.bits(s.layer, h, v, values[h*kv.D+d]))
			}
		}
		if err := sim.Write("kv", t.head(s, h), raw); err != nil {
			return err
		}
	}
	return nil
}

// readToken takes a token out of the cache.
func (t *Trial) readToken(sim *runtime.Sim, s slot) (kvToken, error) {
	kv := t.mk.KV
	n := kv.Heads * kv.D
	token := kvToken{make([]float64, n), make([]float64, n)}
	raw := make([]byte, kv.TokenBytes())
	for h := range kv.Heads {
		if err := sim.Read("kv", t.head(s, h), raw); err != nil {
			return token, err
		}
		for d := range kv.D {
			for v, values := range [][]float64{token.k, token.v} {
				values[h*kv.D+d] = t.value(s.layer, h, v, raw[t.element(s, h, v, d):])
			}
		}
	}
	return token, nil
}
