// Package prefix remembers which tokens the pages of a KV cache hold, so that a
// sequence that begins with the same tokens as another one need not compute them
// again.
//
// A Tree is a radix tree over tokens whose edges are whole pages: a page is in it
// when all its slots are filled, and is never written again. Running sequences
// have a Cursor each, at the node where their whole pages end, and hold all pages
// above it; the tree holds each of its pages once itself. A page that only the
// tree holds is idle: nobody needs it, somebody may come back to it, and Evict
// gives it up when pages run out, the least recently used first.
package prefix
