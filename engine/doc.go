// Package engine turns prompts into text with one kernel on one device, or with several
// kernels of one model.
//
// # Life cycle
//
// New loads the weights onto a device and returns an Engine; the device then
// belongs to it. Submit may be called from anywhere at any time and returns a Stream;
// its pieces come as the tokens do, and the end of its context ends it. Generate is Submit
// that waits. Close ends all requests, gives the device's memory back and closes the device.
// Calls after Close are refused with ErrClosed; a second Close does nothing.
//
// As many requests run at a time as a step of the kernel has rows, up to 16; more wait
// in their order. Package batch says how they share rows.
//
// # What a launch does
//
// Greedy generation stays in the kernel: a launch chooses up to TokensPerLaunch
// tokens, each handed to the host while the kernel goes on. What a launch has done
// beyond a stop string or a cancel is forgotten. Kernels that draw do so with a
// temperature, too, and make log-probabilities, up to draw.ScoredSteps tokens a launch,
// which come while the next one runs, and keep to penalties and masks. With other kernels every
// launch chooses one token, and the host another one from its logits (package
// sampling). A kernel of one row reads most of a prompt in launches of their own.
//
// # The KV cache
//
// The cache has room for KVTokens tokens in pages of the kernel's size, and one
// page beside them, the guard. A sequence takes pages as it grows, before each
// launch as many as the launch can reach, and gives back those that hold none of
// its tokens. Entries of the page table beyond its pages name the guard, which no
// sequence has and no step reads or writes.
//
// All requests share one cache: those that begin with the same tokens share pages,
// and whole pages of ended requests are kept while there is room. A request whose
// prompt begins with the same tokens, as the next turn of a conversation does, pays
// only for the rest. When there is no room the newest request gives its pages up and
// goes on later, unchanged.
//
// # When there is no room
//
// A generation that wants more than fits ends with finish reason KVFull and a
// *FullError; what was generated until then is returned and the cache is intact.
package engine
