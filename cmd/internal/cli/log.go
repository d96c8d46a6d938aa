package cli

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// The values of --logging-format.
const (
	text = "text"
	json = "json"
)

// Log is the flags of the log.
type Log struct {
	Format     string
	v, vmodule flag.Value
}

// AddFlags adds --logging-format, --v and --vmodule. The other flags of klog
// are about files; they are taken and not shown.
func (l *Log) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&l.Format, "logging-format", text, "format of the log: text or json")
	of := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(of)
	l.v, l.vmodule = of.Lookup("v").Value, of.Lookup("vmodule").Value
	of.VisitAll(func(f *flag.Flag) {
		flags.AddGoFlag(f)
		if f.Name != "v" && f.Name != "vmodule" {
			_ = flags.MarkHidden(f.Name) // the flag was just added
		}
	})
}

// Validate refuses a format that there is not.
func (l *Log) Validate() error {
	if l.Format != text && l.Format != json {
		return fmt.Errorf("--logging-format=%s is not allowed: allowed are %s and %s", l.Format, text, json)
	}
	return nil
}

// Start makes klog write in the format, as JSON one object a line to out.
func (l *Log) Start(out io.Writer) {
	if l.Format == json {
		klog.SetSlogLogger(slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: l.level(), ReplaceAttr: readable})))
	}
}

// level is what --v lets through: a library that asks klog for its logger asks
// it for no verbosity. What --vmodule lets through besides, klog alone knows.
func (l *Log) level() slog.Level {
	v, err := strconv.Atoi(l.v.String())
	if err != nil || l.vmodule.String() != "" {
		return -1 << 10
	}
	return slog.Level(-v)
}

// readable writes durations such as "1.5s", as Kubernetes' own programs do,
// instead of numbers of nanoseconds, and all verbosities above 0 as DEBUG.
func readable(_ []string, a slog.Attr) slog.Attr {
	switch value := a.Value.Any().(type) {
	case time.Duration:
		a.Value = slog.StringValue(value.String())
	case slog.Level:
		if a.Key == slog.LevelKey && value < slog.LevelInfo {
			a.Value = slog.StringValue(slog.LevelDebug.String())
		}
	}
	return a
}
