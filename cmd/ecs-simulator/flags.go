package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/topodisk/topodisk/ecssim"
)

// options is what the flags say.
type options struct {
	listen string
	config ecssim.Config
}

// flagOf names the flag that sets a field of ecssim.Config.
var flagOf = map[string]string{
	"Region": "--region", "Zones": "--zone", "Instances": "--instance", "AccessKeys": "--access-key",
	"Latency": "--latency", "SoldOutCode": "--sold-out-code", "LedgerSize": "--calls-kept",
	"Throttle": "--throttle", "Throttle.Code": "--throttle-code",
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
	var instances, keys []string
	var latency, throttle, throttleCode string
	flags := pflag.NewFlagSet("ecs-simulator", pflag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.SortFlags = false
	flags.Usage = func() {
		_, _ = fmt.Fprintf(errOut, "ecs-simulator serves a simulated Alibaba Cloud ECS over HTTP.\n\nFlags:\n%s", flags.FlagUsages())
	}
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address to listen on; port 0 takes any free port")
	flags.StringVar(&o.config.Region, "region", "", "region that is simulated, such as cn-hangzhou (required)")
	flags.StringArrayVar(&o.config.Zones, "zone", nil, "zone of the region, such as cn-hangzhou-h; repeat for more (one is required)")
	flags.StringArrayVar(&instances, "instance", nil, "instance as ID=zone/type, such as i-1=cn-hangzhou-h/ecs.g7.large; repeat for more")
	flags.StringArrayVar(&keys, "access-key", nil, "access key as ID=SECRET; repeat for more; with none, signatures are not checked")
	flags.StringVar(&latency, "latency", "fast", "how long things take: "+strings.Join(ecssim.Profiles, ", "))
	flags.StringVar(&throttle, "throttle", "off", "limits of calls a minute: "+strings.Join(ecssim.ThrottleProfiles, ", "))
	flags.StringVar(&throttleCode, "throttle-code", ecssim.ThrottleCodes[0], "what a call beyond its limit is answered: "+strings.Join(ecssim.ThrottleCodes, ", "))
	flags.StringVar(&o.config.SoldOutCode, "sold-out-code", ecssim.SoldOutCodes[0], "what CreateDisk answers when a category is sold out: "+strings.Join(ecssim.SoldOutCodes, ", "))
	flags.IntVar(&o.config.LedgerSize, "calls-kept", 10000, "how many of the last calls are kept")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if rest := flags.Args(); len(rest) > 0 {
		return o, fmt.Errorf("argument %q: allowed are flags only", rest[0])
	}
	o.config.Seed = uint32(time.Now().Unix()) // IDs of an earlier run don't come back
	var err error
	if o.config.Throttle, err = ecssim.ThrottleProfile(throttle); err != nil {
		return o, inFlags(err)
	}
	o.config.Throttle.Code = throttleCode
	return o, o.finish(instances, keys, latency)
}

// finish reads the flags that have a form of their own.
func (o *options) finish(instances, keys []string, latency string) error {
	host, port, err := net.SplitHostPort(o.listen)
	if _, notPort := strconv.ParseUint(port, 10, 16); err != nil || notPort != nil || strings.ContainsAny(host, "/ ") {
		return badFlag("--listen", o.listen, "HOST:PORT, such as 127.0.0.1:8080")
	}
	for _, text := range instances {
		id, rest, ok := strings.Cut(text, "=")
		zone, kind, ok2 := strings.Cut(rest, "/")
		if !ok || !ok2 {
			return badFlag("--instance", text, "ID=zone/type, such as i-1=cn-hangzhou-h/ecs.g7.large")
		}
		o.config.Instances = append(o.config.Instances, ecssim.Instance{ID: id, Zone: zone, Type: kind})
	}
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
	o.config.Latency, err = ecssim.Profile(latency)
	return inFlags(err)
}
