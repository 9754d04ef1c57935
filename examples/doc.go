// Package examples holds generated output that is committed to be read, built
// and compared: tiny is all that `mkgen --model tiny --sms 4` writes.
package examples

//go:generate go run ../cmd/mkgen --quiet --model tiny --sms 4 -o tiny
