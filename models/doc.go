// Package models holds the configurations of dense decoders: the
// registered ones (Lookup, Names, All) and any other read from a Hugging Face
// config.json (Parse, ParseFile) by one of the Families.
//
// A Config is plain data about mathematics: shapes, traits, rotary embedding,
// token ids. Its Arch says what every layer computes, its Tensors what the
// weights are by role and by name. It says nothing about how a kernel runs the model. Reading a
// configuration is strict: a field that changes the mathematics and that this
// project does not implement is refused by name, and so is a field that this
// package does not know.
//
// The package is a leaf: it imports only the standard library.
package models
