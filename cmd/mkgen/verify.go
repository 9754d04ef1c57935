package main
import "github.com/spf13/cobra"
func newVerify(x any) *cobra.Command { return &cobra.Command{Use:"verify"} }
