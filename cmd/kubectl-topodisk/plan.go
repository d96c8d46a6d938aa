package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/topodisk/topodisk/explain/plan"
	"github.com/topodisk/topodisk/explain/plan/reader"
)

// newPlan tells what would happen; each kind of plan is a command of its own.
func newPlan(f *factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Tell what would happen if topodisk were installed or took over, or if a zone went",
		Long: "plan reads the cluster, changes nothing, and tells what would happen, with the commands to type and the way back.\n" +
			"Exit code 0: nothing would be refused or wait; 1: something would; 2: an error; 3: something that the plan needs could not be read.",
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPlanInstall(f), newPlanTakeover(f), newPlanDrain(f), newPlanSoldOut(f))
	return cmd
}

// planCommand returns the command of a kind of plan: it reads the cluster, prints the plan that make returns, and ends with its exit code.
func planCommand(f *factory, kind plan.Kind, cmd *cobra.Command, make func(facts *plan.Facts, args []string) (*plan.Plan, error)) *cobra.Command {
	out, driver := newOutput(), ""
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		objects, kinds, err := f.clients()
		if err != nil {
			return err
		}
		facts, err := reader.Read(cmd.Context(), reader.Clients{Objects: objects, Kinds: kinds}, driver, kind, time.Now())
		if err != nil {
			return err
		}
		made, err := make(facts, args)
		if err != nil {
			return &usageError{err}
		}
		if err := out.show(f.Out, "Plan", made, made.WriteText); err != nil {
			return err
		}
		return exitCode(made.Harms(), made.Incomplete)
	}
	out.addFlags(cmd)
	addDriverFlag(cmd, &driver)
	return cmd
}

// addInstallationFlags adds what an installation's commands name and no cluster knows.
func addInstallationFlags(cmd *cobra.Command, o *plan.Options) {
	*o = plan.DefaultOptions()
	cmd.Flags().StringVar(&o.Image, "image", o.Image, "registry and name of topodisk's image, for the commands")
	cmd.Flags().StringVar(&o.Chart, "chart", o.Chart, "path of topodisk's chart, for the commands")
}

func newPlanInstall(f *factory) *cobra.Command {
	var o plan.Options
	cmd := planCommand(f, plan.KindInstall, &cobra.Command{
		Use:   "install",
		Short: "Tell whether topodisk can be installed, and how",
		Args:  noArguments,
	}, func(facts *plan.Facts, _ []string) (*plan.Plan, error) { return plan.Install(facts, o), nil })
	addInstallationFlags(cmd, &o)
	return cmd
}

func newPlanTakeover(f *factory) *cobra.Command {
	var o plan.Options
	cmd := planCommand(f, plan.KindTakeover, &cobra.Command{
		Use:   "takeover",
		Short: "Tell how topodisk takes over from another driver of its name, and what it would refuse",
		Long: "plan takeover tells what serves disks, NAS, OSS and snapshots today, which classes and volumes topodisk would refuse,\n" +
			"and the commands that switch disks to topodisk and back. None of them touches NAS or OSS.",
		Args: noArguments,
	}, func(facts *plan.Facts, _ []string) (*plan.Plan, error) { return plan.Takeover(facts, o), nil })
	addInstallationFlags(cmd, &o)
	cmd.Flags().StringVar(&o.OtherChart, "other-chart", "", "path of the other driver's chart, for the commands, if a Helm release runs it")
	return cmd
}

func newPlanDrain(f *factory) *cobra.Command {
	return planCommand(f, plan.KindDrain, &cobra.Command{
		Use:     "drain ZONE",
		Short:   "Tell which claims and Pods would wait if all nodes of a zone went",
		Example: "  kubectl topodisk plan drain cn-hangzhou-h",
		Args:    namedArguments("ZONE"),
	}, func(facts *plan.Facts, args []string) (*plan.Plan, error) { return plan.Drain(facts, args[0]) })
}

func newPlanSoldOut(f *factory) *cobra.Command {
	return planCommand(f, plan.KindSoldOut, &cobra.Command{
		Use:     "soldout ZONE TYPE",
		Short:   "Tell which claims and classes would wait or go elsewhere if a zone had no more disks of a type",
		Example: "  kubectl topodisk plan soldout cn-hangzhou-h cloud_essd",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := namedArguments("ZONE", "TYPE")(cmd, args); err != nil {
				return err
			}
			if err := plan.CheckType(args[1]); err != nil {
				return &usageError{err}
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return plan.Types(), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}, func(facts *plan.Facts, args []string) (*plan.Plan, error) {
		return plan.SoldOut(facts, args[0], args[1])
	})
}

// namedArguments refuses any other number of arguments.
func namedArguments(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s is missing: the arguments are %s", names[len(args)], strings.Join(names, " "))
		case len(args) > len(names):
			return usagef("argument %q is not allowed: the arguments are %s", args[len(names)], strings.Join(names, " "))
		}
		return nil
	}
}
