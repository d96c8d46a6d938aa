package ecssim

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/actions"
	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/state"
)

// Config is what a Server is made from. Region and Zones are mandatory.
type Config struct {
	Region string   // such as cn-hangzhou
	Zones  []string // IDs of the region's zones, such as cn-hangzhou-h

	// Offers are the disk categories that a zone offers, "" standing for the
	// region's own. A zone that is not mentioned offers every ordinary one.
	Offers map[string][]string
	// SoldOutCode is the code of a refusal for want of stock: one of
	// SoldOutCodes, or empty for the first of them.
	SoldOutCode string

	// Instances have a system disk each, which counts in the DiskQuantity of
	// their type. The type must be one of InstanceTypes(), or declared.
	Instances []Instance
	// InstanceTypes declares types that the table lacks, or other figures for
	// those that it has.
	InstanceTypes []InstanceType

	// AccessKeys maps access key IDs to their secrets. Without any, nobody's
	// signature is checked.
	AccessKeys map[string]string
	// SecurityTokens maps the IDs of those AccessKeys that are temporary to
	// their tokens. They work until EndTemporaryKeys.
	SecurityTokens map[string]string
	Account        string // account ID of the caller; default 1234567890123456
	// Roles are the RAM roles that can be assumed. With any, signatures are
	// checked even if there are no AccessKeys.
	Roles []Role
	// Denials are the permissions that callers lack.
	Denials []Denial
	// InstanceKeyLife is how long the keys live that the metadata service gives
	// an instance for its role; default 6 h.
	InstanceKeyLife time.Duration

	// KMSKeys, ResourceGroups and StorageClusters are the IDs that exist; nil
	// takes any.
	KMSKeys, ResourceGroups, StorageClusters []string

	// BeforeReply, if it isn't nil, is called after a request has taken effect
	// and before its reply is sent, so that what follows from it outside of the
	// server is there when the caller hears of it.
	BeforeReply func()

	Latency  Latency
	Queues   Queues // of each instance; the zero value is Serial
	Doubts   Doubts
	Limits   Limits
	Throttle Throttle
	Quotas   Quotas

	// TokenLife is how long a ClientToken is remembered; default 24 h.
	TokenLife time.Duration
	// PageTokenLife is how long a NextToken is taken; by default for ever.
	PageTokenLife time.Duration
	// BindFailedTokens makes a refused CreateDisk, CreateSnapshot,
	// CreateSnapshotGroup or ResizeDisk use its ClientToken up: the same
	// request gets the same answer ("How to ensure idempotence", ECS's
	// documentation), and other parameters are a mismatch. A refusal for a
	// state that ends by itself binds nothing.
	BindFailedTokens bool
	// ForgiveUnknownDisk makes DeleteDisk of a disk that does not exist a
	// success; by default it is InvalidDiskId.NotFound. ECS's documentation says both.
	ForgiveUnknownDisk bool

	// Seed goes into the IDs of disks: simulators with different seeds make
	// different IDs. With the same seed the n-th disk has the same ID.
	Seed uint32
	// LedgerSize is how many calls Calls returns at most; default 10000.
	LedgerSize int
}

// region is the part of a Config that a region is made from.
func (c Config) region() state.Config {
	return state.Config{
		Region: c.Region, Zones: c.Zones, Offers: c.Offers, SoldOutCode: c.SoldOutCode, Instances: c.Instances, InstanceTypes: c.InstanceTypes,
		Seed: c.Seed, TokenLife: c.TokenLife, Past: faults.MaxLag,
	}
}

// rules is the part of a Config that actions go by.
func (c Config) rules() actions.Rules {
	return actions.Rules{
		Region: c.Region, Zones: c.Zones, Account: c.Account, Roles: c.Roles, InstanceKeyLife: c.InstanceKeyLife,
		KMSKeys: c.KMSKeys, ResourceGroups: c.ResourceGroups, StorageClusters: c.StorageClusters,
		Queues: c.Queues, Doubts: c.Doubts, Limits: c.Limits, Quotas: c.Quotas, PageTokenLife: c.PageTokenLife,
		BindFailedTokens: c.BindFailedTokens, ForgiveUnknownDisk: c.ForgiveUnknownDisk,
	}
}

// complete checks a Config and fills in its defaults.
func (c Config) complete() (Config, error) {
	for _, check := range []func() error{c.region().Check, c.checkKeys, func() error { return c.Latency.Check(actions.Names()) }, c.Queues.Check,
		c.checkDoubts, c.Limits.Check, func() error { return c.Throttle.Check(actions.Names()) }, c.Quotas.Check, c.checkLimits} {
		if err := check(); err != nil {
			return Config{}, err
		}
	}
	c.SoldOutCode = cmp.Or(c.SoldOutCode, state.SoldOutCodes[0])
	c.Account = cmp.Or(c.Account, "1234567890123456")
	c.TokenLife = cmp.Or(c.TokenLife, 24*time.Hour)
	c.LedgerSize = cmp.Or(c.LedgerSize, 10000)
	c.Limits = c.Limits.Complete()
	return c, nil
}

func (c Config) checkKeys() error {
	for _, id := range slices.Sorted(maps.Keys(c.AccessKeys)) {
		if id == "" {
			return config.Invalid("AccessKeys", id, "an access key ID that is not empty")
		}
		if c.AccessKeys[id] == "" {
			return config.Invalid("AccessKeys", id, "an access key with a secret")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.SecurityTokens)) {
		if c.AccessKeys[id] == "" || c.SecurityTokens[id] == "" {
			return config.Invalid("SecurityTokens", id, "the ID of one of the AccessKeys, with a token")
		}
	}
	if c.InstanceKeyLife < 0 {
		return config.Invalid("InstanceKeyLife", c.InstanceKeyLife.String(), "a duration above zero, or zero for 6h")
	}
	return c.checkRoles()
}

var roleNameForm = regexp.MustCompile(`^[A-Za-z0-9.-]{1,64}$`)

func (c Config) checkRoles() error {
	for i, r := range c.Roles {
		switch {
		case !roleNameForm.MatchString(r.Name):
			return config.Invalid("Roles", r.Name, "a name of 1 to 64 letters, digits, periods and hyphens")
		case slices.ContainsFunc(c.Roles[:i], func(o Role) bool { return o.Name == r.Name }):
			return config.Invalid("Roles", r.Name, "each role once")
		case r.MaxSession != 0 && (r.MaxSession < time.Hour || r.MaxSession > 12*time.Hour):
			return config.Invalid("Roles", r.MaxSession.String(), "a MaxSession of 1h to 12h")
		}
	}
	for _, i := range c.Instances {
		if i.Role != "" && !slices.ContainsFunc(c.Roles, func(r Role) bool { return r.Name == i.Role }) {
			return config.Invalid("Instances", i.Role, "a Role among the Roles")
		}
	}
	return nil
}

func (c Config) checkLimits() error {
	if c.TokenLife < 0 {
		return config.Invalid("TokenLife", c.TokenLife.String(), "a duration above zero, or zero for 24h")
	}
	if c.PageTokenLife < 0 {
		return config.Invalid("PageTokenLife", c.PageTokenLife.String(), "a duration above zero, or zero for ever")
	}
	if c.LedgerSize < 0 {
		return config.Invalid("LedgerSize", fmt.Sprint(c.LedgerSize), "a number above zero, or zero for 10000")
	}
	return nil
}
