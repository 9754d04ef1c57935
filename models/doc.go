// Package models holds the configurations of Llama-family decoders: the
// registered ones (Lookup, Names, All) and any other read from a Hugging Face
// config.json (Parse, ParseFile).
//
// A Config is plain data about mathematics: shapes, norms, rotary embedding,
// token ids. It says nothing about how a kernel runs the model. Reading a
// configuration is strict: a field that changes the mathematics and that this
// project does not implement is refused by name, and so is a field that this
// package does not know.
//
// The package is a leaf: it imports only the standard library.
package models
