package main

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/topodisk/topodisk/ecssim"
)

// addLimits defines the flags of times, lives, limits and quotas.
func addLimits(flags *pflag.FlagSet, c *ecssim.Config, in *forms) {
	flags.StringVar(&in.spread, "spread", "", "how much the times of --latency vary: the standard deviation of their logarithm, 0 (not at all) to 3; by default the profile's: 0.5 for fast and real, else 0")
	flags.StringVar(&in.seed, "seed", "", "number that IDs and the times of --spread come from, the same for the same number; by default another one at each start")
	flags.DurationVar(&c.Throttle.Phase, "throttle-phase", 0, "how long after the full minute the windows of --throttle begin")
	flags.BoolVar(&c.Throttle.Bucket, "throttle-bucket", false, "refill the calls of --throttle every second, not all at the beginning of the window")
	flags.BoolVar(&c.Throttle.StickyMinute, "throttle-sticky-minute", false, "refuse an action that was throttled until its window ends; with --throttle-bucket")
	flags.DurationVar(&c.TokenLife, "client-token-life", 24*time.Hour, "how long a ClientToken is remembered")
	flags.DurationVar(&c.PageTokenLife, "page-token-life", 0, "how long a NextToken is taken; 0 is forever")
	flags.DurationVar(&c.InstanceKeyLife, "instance-key-life", 6*time.Hour, "how long the keys of an instance's role are valid that the metadata service gives out")
	flags.StringArrayVar(&in.offers, "offer", nil, "disk categories that a zone offers as ZONE=CATEGORY[,CATEGORY], the region's own without a zone; repeat for more; a zone without it offers every ordinary one")
	flags.IntVar(&c.Quotas.Disks, "quota-disks", 0, "how many disks the account may have; 0 is no limit")
	flags.StringArrayVar(&in.quotaGiB, "quota-gib", nil, "how many GiB of a category the account may have as CATEGORY=GIB; repeat for more")
	flags.StringArrayVar(&in.quotaZoneGiB, "quota-zone-gib", nil, "how many GiB of a category each zone may have as CATEGORY=GIB; repeat for more")
	flags.IntVar(&c.Limits.SnapshotsPerDisk, "snapshots-per-disk", 256, "how many snapshots a disk may have")
	flags.IntVar(&c.Limits.SnapshotsAtOnce, "snapshots-at-once", 10, "how many snapshots of a disk may be progressing")
	flags.IntVar(&c.Limits.CategoryChanges, "category-changes", 50, "how many disks may be changing their category")
	flags.StringVar(&c.Account, "account", "1234567890123456", "ID of the account")
	flags.StringSliceVar(&c.KMSKeys, "kms-key", nil, "ID of a KMS key that exists; repeat for more; without any, every ID is taken")
	flags.StringSliceVar(&c.ResourceGroups, "resource-group", nil, "ID of a resource group that exists; repeat for more; without any, every ID is taken")
	flags.StringSliceVar(&c.StorageClusters, "storage-cluster", nil, "ID of a storage cluster that exists; repeat for more; without any, every ID is taken")
}

// readNumbers refuses a zero where a Config takes that for its default, and reads the numbers whose default is not one.
func (o *options) readNumbers(in forms, flags *pflag.FlagSet) error {
	for _, name := range []string{"client-token-life", "instance-key-life", "snapshots-per-disk", "snapshots-at-once", "category-changes", "calls-kept"} {
		text := flags.Lookup(name).Value.String()
		if text == "0" || text == "0s" {
			return badFlag("--"+name, text, "more than zero")
		}
	}
	if flags.Changed("spread") {
		spread, err := strconv.ParseFloat(in.spread, 64)
		if err != nil || math.IsNaN(spread) || spread < 0 || spread > 3 {
			return badFlag("--spread", in.spread, "a number from 0 to 3")
		}
		o.config.Latency.Spread = spread
	}
	o.config.Seed = uint32(time.Now().Unix()) // so that IDs of an earlier run don't come back
	if flags.Changed("seed") {
		seed, err := strconv.ParseUint(in.seed, 10, 32)
		if err != nil {
			return badFlag("--seed", in.seed, "a number from 0 to 4294967295")
		}
		o.config.Seed = uint32(seed)
	}
	return nil
}

func (o *options) readOffer(text string) error {
	zone, categories, ok := strings.Cut(text, "=")
	if !ok || categories == "" {
		return badFlag("--offer", text, "ZONE=CATEGORY[,CATEGORY], such as cn-hangzhou-h=cloud_essd,cloud_auto")
	}
	o.config.Offers[zone] = append(o.config.Offers[zone], strings.Split(categories, ",")...)
	return nil
}

// readCapacity returns what reads the GiB of a category.
func readCapacity(flag string, capacities map[string]int) func(string) error {
	return func(text string) error {
		category, digits, _ := strings.Cut(text, "=")
		gib, err := strconv.Atoi(digits)
		if category == "" || err != nil || gib <= 0 {
			return badFlag(flag, text, "CATEGORY=GIB with a number above zero, such as cloud_essd=4096")
		}
		capacities[category] = gib
		return nil
	}
}
