//go:build !cuda

package main

import "errors"

func load(*flags) error {
	return errors.New("this program was built without the tag cuda and can only -write")
}
