package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/golden"
)

func TestLimitsReachTheSimulator(t *testing.T) {
	c := parsed(t,
		"--latency=real", "--spread=1.5", "--seed=7", "--throttle=tight", "--throttle-phase=20s", "--throttle-bucket", "--throttle-sticky-minute",
		"--client-token-life=10m", "--page-token-life=1m", "--instance-key-life=1h", "--offer=cn-hangzhou-h=cloud_essd,cloud_auto", "--offer==cloud_regional_disk_auto",
		"--quota-disks=3", "--quota-gib=cloud_essd=100", "--quota-zone-gib=cloud_auto=50", "--snapshots-per-disk=4", "--snapshots-at-once=5",
		"--category-changes=6", "--account=42", "--kms-key=k-1", "--kms-key=k-2", "--resource-group=rg-1", "--storage-cluster=dbsc-1").config
	if c.Latency.Spread != 1.5 || c.Seed != 7 || c.Throttle.Phase != 20*time.Second || !c.Throttle.Bucket || !c.Throttle.StickyMinute || c.Throttle.Limits[""] != 60 ||
		c.TokenLife != 10*time.Minute || c.PageTokenLife != time.Minute || c.InstanceKeyLife != time.Hour ||
		!slices.Equal(c.Offers["cn-hangzhou-h"], []string{"cloud_essd", "cloud_auto"}) || !slices.Equal(c.Offers[""], []string{"cloud_regional_disk_auto"}) ||
		c.Quotas.Disks != 3 || c.Quotas.GiB["cloud_essd"] != 100 || c.Quotas.ZoneGiB["cloud_auto"] != 50 ||
		c.Limits != (ecssim.Limits{SnapshotsPerDisk: 4, SnapshotsAtOnce: 5, CategoryChanges: 6}) || c.Account != "42" ||
		!slices.Equal(c.KMSKeys, []string{"k-1", "k-2"}) || !slices.Equal(c.ResourceGroups, []string{"rg-1"}) || !slices.Equal(c.StorageClusters, []string{"dbsc-1"}) {
		t.Errorf("config %+v", c)
	}
	if _, err := ecssim.New(c); err != nil {
		t.Error(err)
	}
}

func TestSpreadOfTheProfiles(t *testing.T) {
	for args, want := range map[string]float64{
		"": ecssim.DefaultSpread, "--latency=real": ecssim.DefaultSpread, "--latency=zero": 0, "--latency=awful": 0, "--spread=0": 0, "--latency=zero --spread=1": 1,
	} {
		if got := parsed(t, strings.Fields(args)...).config.Latency.Spread; got != want {
			t.Errorf("%q: spread %v, want %v", args, got, want)
		}
	}
}

func TestVersionIsPrinted(t *testing.T) {
	out, err := golden.Run(t, nil, "--version")
	if err != nil || out != "ecs-simulator "+version+"\n" {
		t.Errorf("got %q %v", out, err)
	}
}

func TestHelpHasEveryFlagAndTheLifeOfState(t *testing.T) {
	var text strings.Builder
	if err := run(t.Context(), []string{"--help"}, io.Discard, &text); !errors.Is(err, pflag.ErrHelp) {
		t.Fatalf("error %v", err)
	}
	if help := text.String(); !strings.Contains(help, "in memory and ends with the process") {
		t.Errorf("help says nothing of the life of state:\n%s", help)
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	addLimits(flags, &ecssim.Config{}, &forms{})
	flags.VisitAll(func(f *pflag.Flag) {
		if !grouped(f.Name) || !strings.Contains(text.String(), "--"+f.Name+" ") {
			t.Errorf("--%s is under no heading of --help", f.Name)
		}
	})
}
