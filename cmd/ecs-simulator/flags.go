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
	limits   limitFlags
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

// parse reads the flags. A flag that stands for a list may be repeated.
func parse(args []string, errOut io.Writer) (options, error) {
	var o options
	var instances, types, keys, roles, metadata, links []string
	var latency, queues, throttle, throttleCode string
	flags := pflag.NewFlagSet("ecs-simulator", pflag.ContinueOnError)
	setUsage(flags, errOut)
	flags.SortFlags = false
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address to listen on; port 0 takes any free port")
	flags.StringVar(&o.config.Region, "region", "", "region that is simulated, such as cn-hangzhou (required)")
	flags.StringArrayVar(&o.config.Zones, "zone", nil, "zone of the region, such as cn-hangzhou-h; repeat for more (one is required)")
	flags.StringArrayVar(&instances, "instance", nil, "instance as ID=zone/type[,role=NAME][,tokens=required], such as i-1=cn-hangzhou-h/ecs.g7.large; repeat for more")
	flags.StringArrayVar(&types, "instance-type", nil, "instance type that is not in the table of docs/simulator.md, as TYPE,disks=N[,nvme=required][,categories=A+B][,family=F], such as ecs.g9i.large,disks=9,nvme=required,categories=cloud_essd+cloud_auto; repeat for more")
	flags.StringArrayVar(&metadata, "metadata-listen", nil, "metadata service of an instance as HOST:PORT=INSTANCE; repeat for more (--listen serves all, by header X-Sim-Instance)")
	flags.StringArrayVar(&keys, "access-key", nil, "access key as ID=SECRET; repeat for more; with neither keys nor roles, signatures are not checked")
	flags.StringArrayVar(&roles, "role", nil, "RAM role as NAME[,oidc-provider=NAME][,subject=SUB][,audience=AUD][,max-session=2h]; repeat for more")
	flags.StringVar(&latency, "latency", "fast", "how long things take: "+strings.Join(ecssim.Profiles, ", "))
	flags.StringVar(&queues, "queues", "serial", "how many disks an instance attaches and detaches at a time: "+strings.Join(ecssim.QueueProfiles, ", ")+" (one of either, or 32 and 5)")
	flags.StringVar(&throttle, "throttle", "off", "limits of calls a minute: "+strings.Join(ecssim.ThrottleProfiles, ", "))
	flags.StringVar(&throttleCode, "throttle-code", ecssim.ThrottleCodes[0],
		"what a call beyond its limit is answered: "+strings.Join(ecssim.ThrottleCodes, ", "))
	flags.StringVar(&o.config.SoldOutCode, "sold-out-code", ecssim.SoldOutCodes[0], "what CreateDisk answers when a category is sold out: "+strings.Join(ecssim.SoldOutCodes, ", "))
	o.settings.add(flags)
	o.limits.add(flags)
	flags.StringVar(&o.bodies, "bodies", "", "directory for files that disks keep their bytes in, as loop devices of the instances that have --links (Linux, root)")
	flags.StringArrayVar(&links, "links", nil, "directory that stands for /dev/disk/by-id of an instance as INSTANCE=DIR, with --bodies; repeat for more")
	flags.IntVar(&o.config.LedgerSize, "calls-kept", 10000, "how many of the last calls are kept")
	o.log.AddFlags(flags)
	flags.BoolVar(&o.showVersion, "version", false, "print the version and exit")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if rest := flags.Args(); len(rest) > 0 {
		return o, fmt.Errorf("argument %q: allowed are flags only", rest[0])
	}
	if o.showVersion {
		return o, nil
	}
	if err := o.log.Validate(); err != nil {
		return o, err
	}
	var err error
	if o.config.Queues, err = ecssim.QueueProfile(queues); err != nil {
		return o, inFlags(err)
	}
	if o.config.Throttle, err = ecssim.ThrottleProfile(throttle); err != nil {
		return o, inFlags(err)
	}
	o.config.Throttle.Code = throttleCode
	if err := o.settings.apply(&o.config, errOut); err != nil {
		return o, err
	}
	if err := o.finish(lists{instances, types, keys, roles, metadata, links}, latency); err != nil {
		return o, err
	}
	return o, o.limits.apply(&o.config)
}

// lists are the flags that may be repeated.
type lists struct{ instances, types, keys, roles, metadata, links []string }

// finish reads the flags that have a form of their own.
func (o *options) finish(l lists, latency string) error {
	if !isAddress(o.listen) {
		return badFlag("--listen", o.listen, "HOST:PORT, such as 127.0.0.1:8080")
	}
	for _, step := range []func() error{
		func() error { return o.readTypes(l.types) },
		func() error { return o.readInstances(l.instances) },
		func() error { return o.readMetadata(l.metadata) },
		func() error { return o.readKeys(l.keys) },
		func() error { return o.readRoles(l.roles) },
		func() error { return o.readLinks(l.links) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	var err error
	o.config.Latency, err = ecssim.Profile(latency)
	return inFlags(err)
}

func isAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	_, notPort := strconv.ParseUint(port, 10, 16)
	return err == nil && notPort == nil && !strings.ContainsAny(host, "/ ")
}

func (o *options) readInstances(texts []string) error {
	const form = "ID=zone/type, such as i-1=cn-hangzhou-h/ecs.g7.large, then any of ,role=NAME ,tokens=optional ,tokens=required"
	for _, text := range texts {
		first, settings, _ := strings.Cut(text, ",")
		id, rest, ok := strings.Cut(first, "=")
		zone, kind, ok2 := strings.Cut(rest, "/")
		if !ok || !ok2 {
			return badFlag("--instance", text, form)
		}
		i := ecssim.Instance{ID: id, Zone: zone, Type: kind}
		if err := readSettings(settings, func(name, value string) bool {
			switch {
			case name == "role" && value != "":
				i.Role = value
			case name == "tokens" && (value == "required" || value == "optional"):
				i.TokensRequired = value == "required"
			default:
				return false
			}
			return true
		}); err != nil {
			return badFlag("--instance", text, form)
		}
		o.config.Instances = append(o.config.Instances, i)
	}
	return nil
}

// readTypes reads the instance types that are declared.
func (o *options) readTypes(texts []string) error {
	const form = "TYPE,disks=N, then any of ,nvme=unsupported ,nvme=supported ,nvme=required ,categories=A+B ,family=F ,no-pl0=true ,io-optimized=false, such as ecs.g9i.large,disks=9,nvme=required,categories=cloud_essd+cloud_auto"
	for _, text := range texts {
		id, settings, _ := strings.Cut(text, ",")
		t := ecssim.InstanceType{ID: id, NVMe: "unsupported"}
		if err := readSettings(settings, func(name, value string) bool {
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
		}); err != nil {
			return badFlag("--instance-type", text, form)
		}
		o.config.InstanceTypes = append(o.config.InstanceTypes, t)
	}
	return nil
}

// readSettings gives the settings name=value,name=value to take, which says
// whether it could use each.
func readSettings(text string, take func(name, value string) bool) error {
	if text == "" {
		return nil
	}
	for setting := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(setting, "=")
		if !ok || !take(name, value) {
			return fmt.Errorf("setting %q", setting)
		}
	}
	return nil
}

func (o *options) readMetadata(texts []string) error {
	for _, text := range texts {
		address, instance, ok := strings.Cut(text, "=")
		known := slices.ContainsFunc(o.config.Instances, func(i ecssim.Instance) bool { return i.ID == instance })
		if !ok || !isAddress(address) || !known {
			return badFlag("--metadata-listen", text, "HOST:PORT=INSTANCE with the ID of an --instance, such as 127.0.0.1:8081=i-1")
		}
		o.metadata = append(o.metadata, metadataListen{address, instance})
	}
	return nil
}

func (o *options) readRoles(texts []string) error {
	const form = "NAME, then any of ,oidc-provider=NAME ,subject=SUB ,audience=AUD ,max-session=DURATION (1h to 12h)"
	for _, text := range texts {
		name, settings, _ := strings.Cut(text, ",")
		r := ecssim.Role{Name: name}
		if err := readSettings(settings, func(name, value string) (ok bool) {
			switch name {
			case "oidc-provider":
				r.OIDCProvider = value
			case "subject":
				r.Subject = value
			case "audience":
				r.Audience = value
			case "max-session":
				var err error
				r.MaxSession, err = time.ParseDuration(value)
				return err == nil
			default:
				return false
			}
			return value != ""
		}); err != nil {
			return badFlag("--role", text, form)
		}
		o.config.Roles = append(o.config.Roles, r)
	}
	return nil
}

func (o *options) readKeys(keys []string) error {
	o.config.AccessKeys = map[string]string{}
	for _, text := range keys {
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
	}
	return nil
}

// readLinks reads where the links to instances' devices are.
func (o *options) readLinks(words []string) error {
	o.links = map[string]string{}
	for _, word := range words {
		instance, dir, ok := strings.Cut(word, "=")
		known := slices.ContainsFunc(o.config.Instances, func(i ecssim.Instance) bool { return i.ID == instance })
		if !ok || !known || !filepath.IsAbs(dir) || o.bodies == "" {
			return badFlag("--links", word, "INSTANCE=DIR of a known instance and an absolute directory, with --bodies")
		}
		o.links[instance] = dir
	}
	return nil
}
