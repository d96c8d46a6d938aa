package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/explain/collect"
)

// whyOptions are the command line of why.
type whyOptions struct {
	*factory
	out               *output
	driver            string
	topodiskNamespace string
	from, dump        string
	args              []string
}

// newWhy says why an object waits.
func newWhy(f *factory) *cobra.Command {
	o := &whyOptions{factory: f, out: newOutput()}
	cmd := &cobra.Command{
		Use:   "why (TYPE NAME | TYPE/NAME | --from=FILE)",
		Short: "Say why a Pod, claim, volume, node or VolumeAttachment waits",
		Long: "Say why an object waits: the cause, the evidence for it, who must act, the next command to type, and who tries again and when.\n" +
			"It reads what the object depends on, by get and list alone. What you may not read is named where it could change the answer.\n\n" +
			"TYPE is one of " + kindsText() + ".\n\n" +
			"Exit codes: 0 the object does not wait; 1 it waits; 3 what could be read does not tell; 2 an error, such as a wrong argument\n" +
			"or an object that is not there.",
		Example: `  # Why is the Pod db-0 of namespace shop Pending?
  kubectl topodisk why pod db-0 -n shop

  # Why is a claim not bound, and why is a disk not detached?
  kubectl topodisk why pvc/data-db-0 -n shop
  kubectl topodisk why pv d-bp1abcdefghijklmnopq

  # Does the node take disks?
  kubectl topodisk why node worker-1

  # The answer for a program: the cause alone
  kubectl topodisk why pod db-0 -o jsonpath='{.cause}'

  # Save all facts, without secrets, for somebody who has no access to the cluster, and judge them there
  kubectl topodisk why pod db-0 -n shop --dump=facts.yaml
  kubectl topodisk why --from=facts.yaml`,
		ValidArgsFunction: f.completeSubject,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.args = args
			switch {
			case o.from == "" && cmd.Flags().Changed("from"):
				return usagef("--from= is not allowed: allowed is a file that --dump has written, or -")
			case o.from != "" && cmd.Flags().Changed("driver-name"):
				return usagef("--driver-name=%s is not allowed with --from: the file names the driver", o.driver)
			case o.from != "" && o.topodiskNamespace != "":
				return usagef("--topodisk-namespace=%s is not allowed with --from: the file has what was read", o.topodiskNamespace)
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&o.from, "from", "", "judge the facts in this file, which --dump has written, instead of reading a cluster; - is standard input")
	cmd.Flags().StringVar(&o.dump, "dump", "", "write all facts, without secrets, to this file; - is standard output, and then the answer is omitted")
	o.out.addFlags(cmd)
	addDriverFlag(cmd, &o.driver)
	cmd.Flags().StringVar(&o.topodiskNamespace, "topodisk-namespace", "", "namespace that disk-provisioner runs in; empty: the one that has its Lease")
	return cmd
}

func (o *whyOptions) run(ctx context.Context) error {
	facts, err := o.facts(ctx)
	if err != nil {
		return err
	}
	if o.dump == "-" {
		return collect.WriteDump(o.Out, facts)
	}
	if o.dump != "" {
		if err := writeFile(o.dump, facts); err != nil {
			return err
		}
	}
	verdict := explain.Why(facts)
	err = o.out.show(o.Out, "Verdict", &verdict, func(io.Writer) error { return printVerdict(o.screen, &verdict) })
	if err != nil {
		return err
	}
	return exitCodeOf(verdict.State)
}

// facts reads the facts from the cluster or from a file.
func (o *whyOptions) facts(ctx context.Context) (*explain.Facts, error) {
	if o.from != "" {
		return o.readFile()
	}
	kind, name, err := parseSubject(o.args)
	if err != nil {
		return nil, err
	}
	subject := explain.Ref{Kind: kind.name, Name: name}
	if collect.Kinds[kind.name] {
		if subject.Namespace, err = o.namespace(); err != nil {
			return nil, err
		}
	}
	config, err := o.restConfig()
	if err != nil {
		return nil, err
	}
	clients, err := collect.NewClients(config)
	if err != nil {
		return nil, err
	}
	return collect.Read(ctx, clients, subject, o.driver, o.topodiskNamespace)
}

// readFile reads the facts of --from.
func (o *whyOptions) readFile() (*explain.Facts, error) {
	switch {
	case len(o.args) > 0:
		return nil, usagef("argument %q is not allowed with --from: the file names the object", o.args[0])
	case o.dump != "":
		return nil, usagef("--dump=%s is not allowed with --from: the facts are in a file already", o.dump)
	}
	in := o.In
	if o.from != "-" {
		file, err := os.Open(o.from)
		if err != nil {
			return nil, fmt.Errorf("--from: %w", err)
		}
		defer file.Close()
		in = file
	}
	facts, err := collect.ReadDump(in)
	if err != nil {
		return nil, fmt.Errorf("--from=%s: %w", o.from, err)
	}
	return facts, nil
}

// writeFile writes a dump that its owner alone may read: names of the cluster's objects are in it.
func writeFile(path string, facts *explain.Facts) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("--dump: %w", err)
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() { // a file that was there keeps its permissions else
		err = file.Chmod(0o600)
	}
	if err == nil {
		err = collect.WriteDump(file, facts)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("--dump=%s: %w", path, err)
	}
	return nil
}

func exitCodeOf(state explain.State) error {
	return exitCode(state == explain.Waits, state != explain.Works)
}
