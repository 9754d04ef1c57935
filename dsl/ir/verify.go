package ir

// Verify checks a kernel; the checks arrive with the next commit.
func Verify(k *Kernel) error { return nil }
