//go:build linux || darwin

package runtime

import "syscall"

// room returns how many bytes are free on the disk of a directory, and how many are to stay so: wanted, or a twentieth
// of the disk and 1 GiB at least for 0.
func room(dir string, wanted int64) (free, want int64, known bool) {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return 0, 0, false
	}
	block := int64(s.Bsize)
	if wanted == 0 {
		wanted = max(1<<30, int64(s.Blocks)*block/20)
	}
	return int64(s.Bavail) * block, wanted, true
}
