// Package engine turns prompts into text with one kernel on one device.
//
// # Life cycle
//
// New loads the weights onto a device and returns an Engine; the device then
// belongs to it. Generate answers one Request after the other: it encodes the
// prompt, lets the kernel consume it and choose tokens, and hands out the text as
// it comes. Close ends a generation that runs, gives the device's memory back and
// closes the device.
//
// An Engine may be used by several goroutines, but generates for one at a time:
// a Generate during another is refused with ErrBusy. Calls after Close are
// refused with ErrClosed; a second Close does nothing.
//
// # What a launch does
//
// Greedy generation stays in the kernel: a launch consumes what is left of the
// prompt and chooses up to TokensPerLaunch tokens, each handed to the host while
// the kernel goes on. What a launch has done beyond a stop string or a cancel is
// forgotten. With a temperature every launch chooses one token, and the host
// draws another one from its logits (package sampling).
//
// # The KV cache
//
// The cache has room for KVTokens tokens in pages of the kernel's size, and one
// page beside them, the guard. A sequence takes pages as it grows, before each
// launch as many as the launch can reach, and gives back after each Generate
// those that hold none of its tokens. Entries of the page table beyond its pages
// name the guard, which no sequence has and no step reads or writes.
//
// The tokens of the last request stay in the cache. A request whose prompt begins
// with the same tokens, as the next turn of a conversation does, pays only for
// the rest; the result is the same, bit for bit, as without. Reset forgets them.
//
// # Many requests at a time
//
// A Batch answers up to 16 requests at once with a ragged kernel, more wait in
// their order. Submit may be called from anywhere at any time and returns a Stream;
// its pieces come as the tokens do, and the end of its context ends it. All requests
// share one cache: those that begin with the same tokens share pages, pages of ended
// requests are kept while there is room, and when there is none the newest request
// gives its pages up and goes on later, unchanged. Package batch says how.
//
// # When there is no room
//
// A generation that wants more than fits ends with finish reason KVFull and a
// *FullError; what was generated until then is returned and the cache is intact.
package engine
