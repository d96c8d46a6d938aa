package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/topodisk/topodisk/cmd/internal/cli"
	"github.com/topodisk/topodisk/ecssim"
)

// options is what the flags say.
type options struct {
	listen   string
	metadata []metadataListen
	bodies   string            // directory of the disks' bodies; empty: they have none
	links    map[string]string // by instance: where the links to its devices are
	config   ecssim.Config
	log      cli.Log

	showVersion bool
	settings    settingFlags
}

// metadataListen is an address that the metadata service of an instance has.
type metadataListen struct {
	address  string
	instance string
}

// flagOf names the flag that sets a field of ecssim.Config.
var flagOf = map[string]string{
	"Region": "--region", "Zones": "--zone", "Instances": "--instance", "InstanceTypes": "--instance-type", "AccessKeys": "--access-key",
	"Latency": "--latency", "Queues": "--queues", "SoldOutCode": "--sold-out-code", "LedgerSize": "--calls-kept",
	"Roles": "--role", "Throttle": "--throttle", "Throttle.Code": "--throttle-code",
	"Latency.Spread": "--spread", "Throttle.Phase": "--throttle-phase", "TokenLife": "--client-token-life", "PageTokenLife": "--page-token-life",
	"InstanceKeyLife": "--instance-key-life", "Offers": "--offer", "disks": "--quota-disks", "gib": "--quota-gib", "zoneGib": "--quota-zone-gib",
	"Limits.SnapshotsPerDisk": "--snapshots-per-disk", "Limits.SnapshotsAtOnce": "--snapshots-at-once", "Limits.CategoryChanges": "--category-changes",
}

// inFlags turns an error about a field of the Config into one about its flag.
func inFlags(err error) error {
	var wrong *ecssim.ConfigError
	if errors.As(err, &wrong) && flagOf[wrong.Field] != "" {
		return badFlag(flagOf[wrong.Field], wrong.Value, wrong.Allowed)
	}
	return err
}

func badFlag(flag, value, allowed string) error {
	return fmt.Errorf("%s %q: allowed is %s", flag, value, allowed)
}

// forms are the flags whose values have a form of their own; those that are lists may be repeated.
type forms struct {
	instances, types, keys, roles, metadata, links, offers, quotaGiB, quotaZoneGiB []string

	latency, queues, throttle, spread, seed string
}

// parse reads the flags.
func parse(args []string, errOut io.Writer) (options, error) {
	var o options
	var in forms
	flags := pflag.NewFlagSet("ecs-simulator", pflag.ContinueOnError)
	setUsage(flags, errOut)
	flags.SortFlags = false
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address to listen on; port 0 takes any free port")
	flags.StringVar(&o.config.Region, "region", "", "region that is simulated, such as cn-hangzhou (required)")
	flags.StringArrayVar(&o.config.Zones, "zone", nil, "zone of the region, such as cn-hangzhou-h; repeat for more (one is required)")
	flags.StringArrayVar(&in.instances, "instance", nil, "instance as ID=zone/type[,role=NAME][,tokens=required], such as i-1=cn-hangzhou-h/ecs.g7.large; repeat for more")
	flags.StringArrayVar(&in.types, "instance-type", nil, "instance type that is not in the table of docs/simulator.md, as TYPE,disks=N[,nvme=required][,categories=A+B][,family=F], such as ecs.g9i.large,disks=9,nvme=required,categories=cloud_essd+cloud_auto; repeat for more")
	flags.StringArrayVar(&in.metadata, "metadata-listen", nil, "metadata service of an instance as HOST:PORT=INSTANCE; repeat for more (--listen serves all, by header X-Sim-Instance)")
	flags.StringArrayVar(&in.keys, "access-key", nil, "access key as ID=SECRET; repeat for more; with neither keys nor roles, signatures are not checked")
	flags.StringArrayVar(&in.roles, "role", nil, "RAM role as NAME[,oidc-provider=NAME][,subject=SUB][,audience=AUD][,max-session=2h]; repeat for more")
	flags.StringVar(&in.latency, "latency", "fast", "how long things take: "+strings.Join(ecssim.Profiles, ", "))
	flags.StringVar(&in.queues, "queues", "serial", "how many disks an instance attaches and detaches at a time: "+strings.Join(ecssim.QueueProfiles, ", ")+" (one of either, or 32 and 5)")
	flags.StringVar(&in.throttle, "throttle", "off", "limits of calls a minute: "+strings.Join(ecssim.ThrottleProfiles, ", "))
	flags.StringVar(&o.config.Throttle.Code, "throttle-code", ecssim.ThrottleCodes[0],
		"what a call beyond its limit is answered: "+strings.Join(ecssim.ThrottleCodes, ", "))
	flags.StringVar(&o.config.SoldOutCode, "sold-out-code", ecssim.SoldOutCodes[0], "what CreateDisk answers when a category is sold out: "+strings.Join(ecssim.SoldOutCodes, ", "))
	o.settings.add(flags)
	addLimits(flags, &o.config, &in)
	flags.StringVar(&o.bodies, "bodies", "", "directory for files that disks keep their bytes in, as loop devices of the instances that have --links (Linux, root)")
	flags.StringArrayVar(&in.links, "links", nil, "directory that stands for /dev/disk/by-id of an instance as INSTANCE=DIR, with --bodies; repeat for more")
	flags.IntVar(&o.config.LedgerSize, "calls-kept", 10000, "how many of the last calls are kept")
	o.log.AddFlags(flags)
	flags.BoolVar(&o.showVersion, "version", false, "print the version and exit")
	if err := cli.ParseFlags(flags, args); err != nil {
		return o, err
	}
	if rest := flags.Args(); len(rest) > 0 {
		return o, fmt.Errorf("argument %q: allowed are flags only", rest[0])
	}
	if o.showVersion {
		return o, nil
	}
	err := o.read(in, flags, errOut)
	return o, err
}

// read reads the flags that have a form of their own.
func (o *options) read(in forms, flags *pflag.FlagSet, warnings io.Writer) error {
	if err := o.log.Validate(); err != nil {
		return err
	}
	throttle, err := ecssim.ThrottleProfile(in.throttle)
	if err != nil {
		return inFlags(err)
	}
	o.config.Throttle.Limits = throttle.Limits
	if o.config.Queues, err = ecssim.QueueProfile(in.queues); err != nil {
		return inFlags(err)
	}
	if err := o.settings.apply(&o.config, warnings); err != nil {
		return err
	}
	if !isAddress(o.listen) {
		return badFlag("--listen", o.listen, "HOST:PORT, such as 127.0.0.1:8080")
	}
	o.links, o.config.AccessKeys = map[string]string{}, map[string]string{}
	quotas := &o.config.Quotas
	quotas.GiB, quotas.ZoneGiB, o.config.Offers = map[string]int{}, map[string]int{}, map[string][]string{}
	for _, list := range []struct {
		texts []string
		read  func(text string) error
	}{
		{in.types, o.readType}, {in.instances, o.readInstance}, {in.metadata, o.readMetadata}, {in.keys, o.readKey}, {in.roles, o.readRole},
		{in.links, o.readLink}, {in.offers, o.readOffer},
		{in.quotaGiB, readCapacity("--quota-gib", quotas.GiB)}, {in.quotaZoneGiB, readCapacity("--quota-zone-gib", quotas.ZoneGiB)},
	} {
		for _, text := range list.texts {
			if err := list.read(text); err != nil {
				return err
			}
		}
	}
	if o.config.Latency, err = ecssim.Profile(in.latency); err != nil {
		return inFlags(err)
	}
	return o.readNumbers(in, flags)
}

func isAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	_, notPort := strconv.ParseUint(port, 10, 16)
	return err == nil && notPort == nil && !strings.ContainsAny(host, "/ ")
}

func (o *options) readInstance(text string) error {
	first, settings, _ := strings.Cut(text, ",")
	id, rest, ok := strings.Cut(first, "=")
	zone, kind, ok2 := strings.Cut(rest, "/")
	i := ecssim.Instance{ID: id, Zone: zone, Type: kind}
	if !ok || !ok2 || !readSettings(settings, func(name, value string) bool {
		switch {
		case name == "role" && value != "":
			i.Role = value
		case name == "tokens" && (value == "required" || value == "optional"):
			i.TokensRequired = value == "required"
		default:
			return false
		}
		return true
	}) {
		return badFlag("--instance", text, "ID=zone/type, such as i-1=cn-hangzhou-h/ecs.g7.large, then any of ,role=NAME ,tokens=optional ,tokens=required")
	}
	o.config.Instances = append(o.config.Instances, i)
	return nil
}

// readType reads an instance type that is declared.
func (o *options) readType(text string) error {
	const form = "TYPE,disks=N, then any of ,nvme=unsupported ,nvme=supported ,nvme=required ,categories=A+B ,family=F ,no-pl0=true ,io-optimized=false, such as ecs.g9i.large,disks=9,nvme=required,categories=cloud_essd+cloud_auto"
	id, settings, _ := strings.Cut(text, ",")
	t := ecssim.InstanceType{ID: id, NVMe: "unsupported"}
	if !readSettings(settings, func(name, value string) bool {
		var err error
		switch name {
		case "disks":
			t.DiskQuantity, err = strconv.Atoi(value)
		case "nvme":
			t.NVMe = value
		case "categories":
			t.Categories = strings.Split(value, "+")
		case "family":
			t.Family = value
		case "no-pl0":
			t.NoPL0, err = strconv.ParseBool(value)
		case "io-optimized":
			var is bool
			is, err = strconv.ParseBool(value)
			t.NotIOOptimized = !is
		default:
			return false
		}
		return err == nil && value != ""
	}) {
		return badFlag("--instance-type", text, form)
	}
	o.config.InstanceTypes = append(o.config.InstanceTypes, t)
	return nil
}

// readSettings gives the settings name=value,name=value to take, and says whether it could use each.
func readSettings(text string, take func(name, value string) bool) bool {
	if text == "" {
		return true
	}
	for setting := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(setting, "=")
		if !ok || !take(name, value) {
			return false
		}
	}
	return true
}

func (o *options) hasInstance(id string) bool {
	return slices.ContainsFunc(o.config.Instances, func(i ecssim.Instance) bool { return i.ID == id })
}

func (o *options) readMetadata(text string) error {
	address, instance, ok := strings.Cut(text, "=")
	if !ok || !isAddress(address) || !o.hasInstance(instance) {
		return badFlag("--metadata-listen", text, "HOST:PORT=INSTANCE with the ID of an --instance, such as 127.0.0.1:8081=i-1")
	}
	o.metadata = append(o.metadata, metadataListen{address, instance})
	return nil
}

func (o *options) readRole(text string) error {
	name, settings, _ := strings.Cut(text, ",")
	r := ecssim.Role{Name: name}
	if !readSettings(settings, func(name, value string) bool {
		var err error
		switch name {
		case "oidc-provider":
			r.OIDCProvider = value
		case "subject":
			r.Subject = value
		case "audience":
			r.Audience = value
		case "max-session":
			r.MaxSession, err = time.ParseDuration(value)
		default:
			return false
		}
		return err == nil && value != ""
	}) {
		return badFlag("--role", text, "NAME, then any of ,oidc-provider=NAME ,subject=SUB ,audience=AUD ,max-session=DURATION (1h to 12h)")
	}
	o.config.Roles = append(o.config.Roles, r)
	return nil
}

func (o *options) readKey(text string) error {
	id, secret, ok := strings.Cut(text, "=")
	if !ok {
		id = "" // it may be the secret, which stays out of messages
	}
	if id == "" || secret == "" {
		return badFlag("--access-key", id, "ID=SECRET, neither of them empty")
	}
	if _, twice := o.config.AccessKeys[id]; twice {
		return badFlag("--access-key", id, "each ID once")
	}
	o.config.AccessKeys[id] = secret
	return nil
}

// readLink reads where the links to an instance's devices are.
func (o *options) readLink(text string) error {
	instance, dir, ok := strings.Cut(text, "=")
	if !ok || !o.hasInstance(instance) || !filepath.IsAbs(dir) || o.bodies == "" {
		return badFlag("--links", text, "INSTANCE=DIR of a known instance and an absolute directory, with --bodies")
	}
	o.links[instance] = dir
	return nil
}
