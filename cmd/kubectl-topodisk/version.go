package main

import (
	"fmt"

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
			structured, err := out.forPrograms()
			if err != nil {
				return err
			}
			if structured {
				return out.print(f.Out, "Version", &versionInfo{version})
			}
			_, err = fmt.Fprintln(f.Out, "kubectl-topodisk", version)
			return err
		},
	}
	out.addFlags(cmd)
	return cmd
}
