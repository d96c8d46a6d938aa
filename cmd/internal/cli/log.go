package cli

import (
	"flag"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// The values of --logging-format.
const (
	text = "text"
	json = "json"
)

// Log is the flags of the log.
type Log struct{ Format string }

// AddFlags adds --logging-format, --v and --vmodule. The other flags of klog
// are about files; they are taken and not shown.
func (l *Log) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&l.Format, "logging-format", text, "format of the log: text or json")
	of := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(of)
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
		klog.SetSlogLogger(slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: everything, ReplaceAttr: asKubernetes})))
	}
}

// everything is below every level: klog itself heeds --v.
const everything = slog.Level(-1 << 10)

// asKubernetes writes durations such as "1.5s", as Kubernetes' own programs do,
// instead of numbers of nanoseconds.
func asKubernetes(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
