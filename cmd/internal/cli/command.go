// Package cli has what the command lines of all programs share: commands, flags
// of the log and of the API server, pages over HTTP, and the metrics that
// describe the program itself.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

// Run works until its context ends, and returns the exit code. An error that it returns is about the command line, or for people.
type Run func(ctx context.Context, args []string, out, diagnostics io.Writer) (code int, err error)

// Command is something that a program does instead of its usual work.
type Command struct {
	Name    string // the arguments that ask for it, such as "audit" or "capacity off"
	Summary string // one line for the program's --help
	Run     Run    // gets the arguments after the name
}

// Main runs the command whose name the arguments of the process begin with, else what the program usually does, until a signal
// comes, and ends the process.
func Main(program string, usual Run, commands ...Command) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	code := run(ctx, program, append(commands, Command{Run: usual}), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the first command whose name the arguments begin with, and prints its error.
func run(ctx context.Context, program string, commands []Command, args []string, out, diagnostics io.Writer) int {
	for _, c := range commands {
		words := strings.Fields(c.Name)
		if len(args) < len(words) || !slices.Equal(args[:len(words)], words) {
			continue
		}
		code, err := c.Run(ctx, args[len(words):], out, diagnostics)
		if errors.Is(err, pflag.ErrHelp) {
			return 0
		}
		if err != nil {
			_, _ = fmt.Fprintf(diagnostics, "%s: %v\n", strings.Join(append([]string{program}, words...), " "), err)
			return max(code, 1)
		}
		return code
	}
	return 0
}

// ParseFlags reads flags, and leaves other arguments to flags.Args. The error about a value says what is allowed.
func ParseFlags(flags *pflag.FlagSet, args []string) error {
	err := flags.Parse(args)
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	if words := allowedValues[invalid.GetFlag().Value.Type()]; words != "" {
		return fmt.Errorf("%w; allowed is %s", err, words)
	}
	return err
}

// allowedValues says of the types of flags which values there are.
var allowedValues = map[string]string{
	"duration": "a number with a unit, such as 90s or 5m",
	"int":      wholeNumber, "int32": wholeNumber, "int64": wholeNumber, "uint": wholeNumber, "Level": wholeNumber,
	"float32": "a number", "float64": "a number", "bool": "true or false",
}

const wholeNumber = "a whole number"

// Parse reads a command line that takes flags alone. The error about any other
// argument names the commands that the program has.
func Parse(flags *pflag.FlagSet, args []string, commands ...Command) error {
	if err := ParseFlags(flags, args); err != nil || flags.NArg() == 0 {
		return err
	}
	stray := flags.Arg(0)
	allowed := "flags"
	if len(commands) > 0 {
		names := make([]string, len(commands))
		for i, c := range commands {
			names[i] = c.Name
		}
		allowed += ", and before them one of the commands " + strings.Join(names, ", ")
	}
	if i := slices.Index(args, stray); i > 0 && strings.HasPrefix(args[i-1], "--") {
		return fmt.Errorf("argument %q is not allowed: allowed are %s; a value belongs to its flag, such as %s=%s", stray, allowed, args[i-1], stray)
	}
	return fmt.Errorf("argument %q is not allowed: allowed are %s", stray, allowed)
}

// SetUsage makes --help print how the program is called, its commands and its
// flags.
func SetUsage(flags *pflag.FlagSet, out io.Writer, summary string, commands ...Command) {
	flags.SetOutput(out)
	flags.Usage = func() {
		_, _ = fmt.Fprintf(out, "%s\n\nUsage:\n  %s [flags]\n", summary, flags.Name())
		for _, c := range commands {
			_, _ = fmt.Fprintf(out, "  %s %s [flags]\n        %s\n", flags.Name(), c.Name, c.Summary)
		}
		_, _ = fmt.Fprintf(out, "\nFlags:\n%s", flags.FlagUsages())
	}
}
