// Package serve answers OpenAI's HTTP interface with an engine that batches requests.
//
// A Server is an http.Handler. It parses requests, waits its turn behind a queue of bounded
// length, hands the sequences to a Backend and writes the tokens as they come: one
// server-sent event a token. Serve listens until its context ends, then lets what runs come to
// its end. docs/serving.md lists endpoints, fields and limits.
//
// # Who holds whom up
//
// The backend keeps the tokens of a sequence until they are taken, so a client that reads
// slowly holds no other up. A write that takes longer than Options.WriteTimeout ends its
// request. The context of a request ends with its connection, and the backend frees the rows
// with the launch that runs.
package serve
