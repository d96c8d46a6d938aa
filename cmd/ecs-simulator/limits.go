package main

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/topodisk/topodisk/ecssim"
)

// limitFlags are the flags of times, lives, limits and quotas.
type limitFlags struct {
	flags  *pflag.FlagSet
	spread string
	seed   string

	offers, quotaGiB, quotaZoneGiB []string

	// values are the fields of a Config that a flag is all there is to.
	values ecssim.Config
}

// add defines the flags.
func (f *limitFlags) add(flags *pflag.FlagSet) {
	f.flags = flags
	v := &f.values
	flags.StringVar(&f.spread, "spread", "", "how far times vary about those of --latency: the standard deviation of their logarithm, 0 (not at all) to 3; by default the profile's: 0.5 for fast and real, else 0")
	flags.StringVar(&f.seed, "seed", "", "number that IDs and the times of --spread come from, the same for the same number; by default another one at each start")
	flags.DurationVar(&v.Throttle.Phase, "throttle-phase", 0, "how long after the full minute the windows of --throttle begin")
	flags.BoolVar(&v.Throttle.Bucket, "throttle-bucket", false, "let the calls of --throttle come in second by second, not all at the window's beginning")
	flags.BoolVar(&v.Throttle.StickyMinute, "throttle-sticky-minute", false, "refuse an action that was throttled until its window ends; with --throttle-bucket")
	flags.DurationVar(&v.TokenLife, "client-token-life", 24*time.Hour, "how long a ClientToken is remembered")
	flags.DurationVar(&v.PageTokenLife, "page-token-life", 0, "how long a NextToken is taken; 0 is for ever")
	flags.DurationVar(&v.InstanceKeyLife, "instance-key-life", 6*time.Hour, "how long the keys of an instance's role are valid that the metadata service gives out")
	flags.StringArrayVar(&f.offers, "offer", nil, "disk categories that a zone offers as ZONE=CATEGORY[,CATEGORY], the region's own without a zone; repeat for more; a zone without it offers every ordinary one")
	flags.IntVar(&v.Quotas.Disks, "quota-disks", 0, "how many disks the account may have; 0 is no limit")
	flags.StringArrayVar(&f.quotaGiB, "quota-gib", nil, "how many GiB of a category the account may have as CATEGORY=GIB; repeat for more")
	flags.StringArrayVar(&f.quotaZoneGiB, "quota-zone-gib", nil, "how many GiB of a category each zone may have as CATEGORY=GIB; repeat for more")
	flags.IntVar(&v.Limits.SnapshotsPerDisk, "snapshots-per-disk", 256, "how many snapshots a disk may have")
	flags.IntVar(&v.Limits.SnapshotsAtOnce, "snapshots-at-once", 10, "how many snapshots of a disk may be progressing")
	flags.IntVar(&v.Limits.CategoryChanges, "category-changes", 50, "how many disks may be changing their category")
	flags.StringVar(&v.Account, "account", "1234567890123456", "ID of the account")
	flags.StringSliceVar(&v.KMSKeys, "kms-key", nil, "ID of a KMS key that exists; repeat for more; without any, every ID is taken")
	flags.StringSliceVar(&v.ResourceGroups, "resource-group", nil, "ID of a resource group that exists; repeat for more; without any, every ID is taken")
	flags.StringSliceVar(&v.StorageClusters, "storage-cluster", nil, "ID of a storage cluster that exists; repeat for more; without any, every ID is taken")
}

// apply puts the values of the flags into a Config whose profiles are there
// already.
func (f *limitFlags) apply(c *ecssim.Config) error {
	v := f.values
	c.Throttle.Phase, c.Throttle.Bucket, c.Throttle.StickyMinute = v.Throttle.Phase, v.Throttle.Bucket, v.Throttle.StickyMinute
	c.TokenLife, c.PageTokenLife, c.InstanceKeyLife = v.TokenLife, v.PageTokenLife, v.InstanceKeyLife
	c.Quotas, c.Limits, c.Account = v.Quotas, v.Limits, v.Account
	c.KMSKeys, c.ResourceGroups, c.StorageClusters = v.KMSKeys, v.ResourceGroups, v.StorageClusters
	for _, step := range []func(*ecssim.Config) error{f.checkZeros, f.readSpread, f.readSeed, f.readOffers, f.readQuotas} {
		if err := step(c); err != nil {
			return err
		}
	}
	return nil
}

// checkZeros refuses a zero where a Config takes that for its default.
func (f *limitFlags) checkZeros(*ecssim.Config) error {
	for _, name := range []string{"client-token-life", "instance-key-life", "snapshots-per-disk", "snapshots-at-once", "category-changes", "calls-kept"} {
		text := f.flags.Lookup(name).Value.String()
		if text == "0" || text == "0s" {
			return badFlag("--"+name, text, "more than zero")
		}
	}
	return nil
}

func (f *limitFlags) readSpread(c *ecssim.Config) error {
	if !f.flags.Changed("spread") {
		return nil
	}
	spread, err := strconv.ParseFloat(f.spread, 64)
	if err != nil || math.IsNaN(spread) || spread < 0 || spread > 3 {
		return badFlag("--spread", f.spread, "a number from 0 to 3")
	}
	c.Latency.Spread = spread
	return nil
}

// readSeed takes the time if there is no seed, so that IDs of an earlier run
// don't come back.
func (f *limitFlags) readSeed(c *ecssim.Config) error {
	c.Seed = uint32(time.Now().Unix())
	if !f.flags.Changed("seed") {
		return nil
	}
	seed, err := strconv.ParseUint(f.seed, 10, 32)
	if err != nil {
		return badFlag("--seed", f.seed, "a number from 0 to 4294967295")
	}
	c.Seed = uint32(seed)
	return nil
}

func (f *limitFlags) readOffers(c *ecssim.Config) error {
	for _, text := range f.offers {
		zone, categories, ok := strings.Cut(text, "=")
		if !ok || categories == "" {
			return badFlag("--offer", text, "ZONE=CATEGORY[,CATEGORY], such as cn-hangzhou-h=cloud_essd,cloud_auto")
		}
		if c.Offers == nil {
			c.Offers = map[string][]string{}
		}
		c.Offers[zone] = append(slices.Clip(c.Offers[zone]), strings.Split(categories, ",")...)
	}
	return nil
}

func (f *limitFlags) readQuotas(c *ecssim.Config) (err error) {
	if c.Quotas.GiB, err = readCapacities("--quota-gib", f.quotaGiB); err != nil {
		return err
	}
	c.Quotas.ZoneGiB, err = readCapacities("--quota-zone-gib", f.quotaZoneGiB)
	return err
}

// readCapacities reads GiB by category.
func readCapacities(flag string, texts []string) (map[string]int, error) {
	capacities := map[string]int{}
	for _, text := range texts {
		category, digits, _ := strings.Cut(text, "=")
		gib, err := strconv.Atoi(digits)
		if category == "" || err != nil || gib <= 0 {
			return nil, badFlag(flag, text, "CATEGORY=GIB with a number above zero, such as cloud_essd=4096")
		}
		capacities[category] = gib
	}
	return capacities, nil
}
