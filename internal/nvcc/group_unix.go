//go:build unix

package nvcc

import (
	"os/exec"
	"syscall"
)

// endTogether makes a command end with everything it started: it leads a process group of its own, and cancelling kills
// the group. nvcc's own children (cicc, ptxas) would otherwise go on compiling.
func endTogether(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
