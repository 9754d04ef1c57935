package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/kv"
)

// costs is a flag: what the planner counts instead of kv.DefaultCosts; zero for those.
type costs kv.Costs

func (c *costs) String() string {
	return fmt.Sprintf("%d,%d,%d,%d,%d,%d", c.Item, c.Part, c.Row, c.Token, c.State, c.Phase)
}

func (c *costs) Set(s string) error {
	words := strings.Split(s, ",")
	into := []*int{&c.Item, &c.Part, &c.Row, &c.Token, &c.State, &c.Phase}
	if len(words) != len(into) {
		return fmt.Errorf("%d numbers, want %d", len(words), len(into))
	}
	for i, word := range words {
		n, err := strconv.Atoi(word)
		if err != nil {
			return err
		}
		*into[i] = n
	}
	return nil
}
