package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// versionInfo is what `version --output=json` prints.
type versionInfo struct {
	Version string `json:"version"`
}

// newVersion prints the version.
func newVersion(f *factory) *cobra.Command {
	out := newOutput()
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			return out.show(f.Out, "Version", &versionInfo{version}, func(to io.Writer) error {
				_, err := fmt.Fprintln(to, "kubectl-topodisk", version)
				return err
			})
		},
	}
	out.addFlags(cmd)
	return cmd
}
