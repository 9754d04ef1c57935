package ir

// Graph is kernels that run one behind the other, such as a step whose every phase is a
// kernel of its own. All have the same params block and the same buffers. A launch of the
// graph runs all nodes in order; it begins when the one before it has ended.
type Graph struct {
	Kernels []*Kernel
	Nodes   []Node
	// Dependent is whether a node may start before those before it have ended, the first
	// one aside: by programmatic dependent launch, where its kernel waits itself (OpGridWait).
	Dependent bool
	// Steps is how many times all nodes are run by one launch where that many are wanted; the
	// first node of each time waits for all before it. 0 means 1.
	Steps int
	// Repeat is the name of what tells a launch how often to run the graph; it is no
	// scalar of the params block.
	Repeat string
}

// Node is a launch of one of a graph's kernels.
type Node struct {
	Kernel  int               // index into Graph.Kernels
	Scalars map[string]uint64 // of the params block, those that every launch of the graph gives this node alike
}
