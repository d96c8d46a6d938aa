package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/topodisk/topodisk/cmd/internal/cli"
	"github.com/topodisk/topodisk/provisioner"
	"github.com/topodisk/topodisk/provisioner/claim"
	"github.com/topodisk/topodisk/provisioner/request"
)

// Exit codes of `disk-provisioner journal list|show|end`.
const (
	journalDone    = 0
	journalRefused = 1
	journalFailed  = 2
)

// maxReason is the longest --reason in characters: it stands in an event and in the log.
const maxReason = 200

// journalCommand is one of the commands.
type journalCommand struct {
	name, usage string
	takesClaim  bool
	takesReason bool
	run         func(context.Context, *provisioner.Journal, *journalOptions, io.Writer) error
}

var journalList = journalCommand{
	name:  "journal list",
	usage: "disk-provisioner journal list prints the journal's records: the volumes that are being provisioned, and those of unknown outcome.",
	run: func(ctx context.Context, j *provisioner.Journal, o *journalOptions, out io.Writer) error {
		return j.List(ctx, out, o.events)
	},
}

var journalShow = journalCommand{
	name: "journal show", takesClaim: true,
	usage: "disk-provisioner journal show CLAIM-UID prints a record: the request, and claim and PersistentVolume as they are now.",
	run: func(ctx context.Context, j *provisioner.Journal, o *journalOptions, out io.Writer) error {
		return j.Show(ctx, out, o.claim, o.events)
	},
}

var journalEnd = journalCommand{
	name: "journal end", takesClaim: true, takesReason: true,
	usage: "disk-provisioner journal end CLAIM-UID --reason=TEXT has the leader end a record whose outcome can't be determined: the request is\n" +
		"not repeated any more. A disk that was made all the same stays in ECS, where disk-provisioner audit finds it.\n" +
		"It ends with 0 if the record is ended, with 1 if that is refused or no leader has done it, and with 2 if it failed.",
	run: func(ctx context.Context, j *provisioner.Journal, o *journalOptions, out io.Writer) error {
		if err := j.End(ctx, o.claim, o.reason, o.wait); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "The record of claim %s is ended.\n", o.claim)
		return err
	},
}

// start runs the command.
func (c journalCommand) start(ctx context.Context, args []string, out, diagnostics io.Writer) (int, error) {
	err := c.do(ctx, args, out, diagnostics)
	var refused *provisioner.RefusedError
	switch {
	case err == nil:
		return journalDone, nil
	case errors.As(err, &refused) || errors.Is(err, provisioner.ErrNotEnded):
		return journalRefused, err
	}
	return journalFailed, err
}

// journalOptions are the command line of one of the commands.
type journalOptions struct {
	claim, reason     string
	wait              time.Duration
	events            bool
	driver, namespace string
	cluster           cli.Cluster
	log               cli.Log
}

// parse parses the command line, and prints the help to out.
func (c journalCommand) parse(args []string, out io.Writer) (*journalOptions, error) {
	o := &journalOptions{}
	f := pflag.NewFlagSet("disk-provisioner "+c.name, pflag.ContinueOnError)
	cli.SetUsage(f, out, c.usage)
	f.StringVar(&o.driver, "driver-name", driverNameByDefault, "name of the driver whose journal it is")
	f.StringVar(&o.namespace, "leader-election-namespace", "", "namespace of the journal; the Pod's own if empty")
	if c.takesReason {
		f.StringVar(&o.reason, "reason", "", "why the record is ended; it is written to the log and to an event of the claim")
		f.DurationVar(&o.wait, "wait", time.Minute, "how long to wait for the leader")
	} else {
		f.BoolVar(&o.events, "events", false, "read the last outcome from the claims' events; the account must be allowed to list them, which disk-provisioner's is not")
	}
	o.cluster.AddFlags(f)
	o.log.AddFlags(f)
	if err := cli.ParseFlags(f, args); err != nil {
		return nil, err
	}
	if err := c.takeClaim(o, f.Args()); err != nil {
		return nil, err
	}
	o.namespace = cmp.Or(o.namespace, cli.PodNamespace())
	switch {
	case o.driver == "":
		return nil, errors.New("--driver-name is empty; it is the driver's flag of that name, such as " + driverNameByDefault)
	case c.takesReason && !isReason(o.reason):
		return nil, &provisioner.RefusedError{Field: "--reason", Value: o.reason,
			Allowed: fmt.Sprintf("allowed is a line of text of 1 to %d characters", maxReason)}
	case c.takesReason && o.wait < 0:
		return nil, fmt.Errorf("--wait=%s; it must not be negative", o.wait)
	}
	return o, o.log.Validate()
}

// isReason says whether a text may stand in an event and in a line of the log.
func isReason(text string) bool {
	return strings.TrimSpace(text) != "" && utf8.RuneCountInString(text) <= maxReason && !strings.ContainsFunc(text, unicode.IsControl)
}

// takeClaim parses the arguments that are not flags.
func (c journalCommand) takeClaim(o *journalOptions, args []string) error {
	switch {
	case !c.takesClaim && len(args) > 0:
		return fmt.Errorf("argument %q is not allowed: allowed are flags", args[0])
	case c.takesClaim && len(args) != 1:
		return fmt.Errorf("arguments are %q; allowed is one CLAIM-UID, as `disk-provisioner journal list` shows it", args)
	case c.takesClaim:
		o.claim = args[0]
	}
	return nil
}

func (c journalCommand) do(ctx context.Context, args []string, out, help io.Writer) error {
	o, err := c.parse(args, help)
	if err != nil {
		return err
	}
	o.log.Start(os.Stderr)
	client, err := o.cluster.Client(func(config *rest.Config) { config.QPS, config.Burst = journalQPS, journalBurst })
	if err != nil {
		return err
	}
	config := provisioner.Config{Config: claim.Config{Options: request.Options{DriverName: o.driver}}, Namespace: o.namespace}
	journal, err := provisioner.ReadJournal(ctx, config, client)
	if err != nil {
		return err
	}
	return c.run(ctx, journal, o, out)
}
