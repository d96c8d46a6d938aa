package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/topodisk/topodisk/internal/escape"
)

// Exit codes of every command, as kubectl diff has them: 1 is an answer, and only what is above is an error.
const (
	exitFine    = 0
	exitFound   = 1 // of why: the object waits; of plan: something would be refused or wait; of audit: something needs an action
	exitFailed  = 2 // a wrong argument, no API server, an object that is not there
	exitUnknown = 3 // of why, plan and audit: the facts don't suffice
)

// exitError ends the program with an exit code and says nothing.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// exitCode returns the error that ends a command that has an answer; nil if nothing was found and everything is known.
func exitCode(found, unknown bool) error {
	switch {
	case found:
		return exitError(exitFound)
	case unknown:
		return exitError(exitUnknown)
	}
	return nil
}

// run runs the program and returns the exit code.
func run(ctx context.Context, streams genericiooptions.IOStreams, args []string) int {
	f := newFactory(streams)
	root := newRoot(f)
	root.SetArgs(args)
	executed, err := root.ExecuteContextC(ctx)
	var exit exitError
	switch {
	case err == nil:
		return exitFine
	case errors.As(err, &exit):
		return int(exit)
	}
	fmt.Fprintf(f.ErrOut, "error: %s\n", escape.Text(err.Error()))
	var usage *usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(f.ErrOut, "See '%s --help' for usage.\n", executed.CommandPath())
	}
	return exitFailed
}

// usageError is about the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// flagError says what is allowed where the flag package's error doesn't.
func flagError(err error) error {
	if strings.Contains(err.Error(), "time: ") {
		return usagef("%w; allowed is a number with a unit, such as 90s or 5m", err)
	}
	return &usageError{err}
}

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

func newRoot(f *factory) *cobra.Command {
	root := &cobra.Command{
		Use:         "kubectl-topodisk",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl topodisk"},
		Short:       "Explain what the disks of topodisk wait for",
		Long: "kubectl topodisk explains what Pods, claims, volumes and nodes with disks of Alibaba Cloud ECS wait for, and what would happen.\n" +
			"It reads the cluster and changes nothing. What you may not read is named, and the answer given without it.",
		Example: `  # Why is the Pod db-0 of namespace shop Pending?
  kubectl topodisk why pod db-0 -n shop

  # Where is each claim's disk?
  kubectl topodisk volumes --all-namespaces

  # For completion by kubectl, an executable file kubectl_complete-topodisk in PATH has these two lines
  #!/bin/sh
  exec kubectl-topodisk __complete "$@"`,
		Args:              noCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetIn(f.In)
	root.SetOut(f.Out)
	root.SetErr(f.ErrOut)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	f.config.AddFlags(root.PersistentFlags())
	root.AddCommand(commands(f)...)
	addHelpFlag(root)
	f.completeGlobalFlags(root)
	setHelp(root)
	return root
}

// addHelpFlag adds --help to a command and those below it.
func addHelpFlag(cmd *cobra.Command) {
	cmd.Flags().BoolP("help", "h", false, "show this help")
	for _, c := range cmd.Commands() {
		addHelpFlag(c)
	}
}

// noCommand refuses arguments of the root that name no command.
func noCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return usagef("command %q is unknown; allowed are %s", args[0], strings.Join(names, ", "))
}

// shownGlobalFlags are those of kubectl's flags that every command's help shows; `kubectl topodisk options` shows all.
var shownGlobalFlags = []string{"namespace", "context", "kubeconfig"}

// setHelp makes a command's help show its own flags and few of the many that all commands have.
func setHelp(root *cobra.Command) {
	cobra.AddTemplateFunc("globalFlags", func(c *cobra.Command) string {
		few := pflag.NewFlagSet("", pflag.ContinueOnError)
		for _, name := range shownGlobalFlags {
			few.AddFlag(c.Root().PersistentFlags().Lookup(name))
		}
		return strings.TrimRight(few.FlagUsages(), "\n")
	})
	cobra.AddTemplateFunc("ownFlags", func(c *cobra.Command) string {
		return strings.TrimRight(c.LocalNonPersistentFlags().FlagUsages(), "\n")
	})
	root.SetUsageTemplate(`Usage:
  {{.UseLine}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}

Flags:
{{ownFlags .}}

Flags of every command (kubectl's own; 'kubectl topodisk options' shows all):
{{globalFlags .}}{{if .HasAvailableSubCommands}}

Use "{{.CommandPath}} COMMAND --help" for more about a command.{{end}}
`)
}

// newOptions shows the flags of every command, as kubectl options does.
func newOptions(f *factory) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "Show the flags that every command takes",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(f.Out, "Every command takes these flags of kubectl:\n%s", cmd.Root().PersistentFlags().FlagUsages())
			return err
		},
	}
}

// noArguments refuses arguments.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("argument %q is not allowed: allowed are flags", args[0])
	}
	return nil
}
