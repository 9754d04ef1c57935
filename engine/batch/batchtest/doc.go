// Package batchtest is a stepper for tests: a language model that is a hash of all
// tokens before, which it reads from where the page tables say they are.
package batchtest
