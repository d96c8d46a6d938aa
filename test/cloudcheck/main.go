// Cloudcheck asks an ECS what it does, fact by fact, and says where that is
// not what the simulator does. It makes disks, which cost money, removes them
// again, and starts only with -yes. `make cloud-check` runs it.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/topodisk/topodisk/ecssim/facts"
)

func main() {
	yes := flag.Bool("yes", false, "go on: make disks, and remove them")
	clean := flag.Bool("clean", false, "remove what earlier runs have left, and ask nothing")
	report := flag.String("report", filepath.Join(".build", "cloud-check.json"), "file that the report is written to")
	flag.Parse()
	if err := run(*yes, *clean, *report); err != nil {
		fmt.Fprintln(os.Stderr, "cloud-check:", err)
		os.Exit(1)
	}
}

func run(yes, clean bool, report string) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("argument %q: allowed are flags only", flag.Arg(0))
	}
	client, err := fromEnvironment(os.Getenv)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() {
		stop() // another signal ends the program at once
		fmt.Fprintln(os.Stderr, "\ncloud-check: ends after what it made is removed; if it is ended before, say CLEAN=1")
	})
	if clean {
		return sweep(ctx, client)
	}
	return ask(ctx, client, yes, report)
}

// The variables of the environment.
const (
	keyVariable      = "ALIBABA_CLOUD_ACCESS_KEY_ID"
	secretVariable   = "ALIBABA_CLOUD_ACCESS_KEY_SECRET"
	tokenVariable    = "ALIBABA_CLOUD_SECURITY_TOKEN"
	regionVariable   = "CLOUD_CHECK_REGION"
	zoneVariable     = "CLOUD_CHECK_ZONE"
	instanceVariable = "CLOUD_CHECK_INSTANCE"
	endpointVariable = "CLOUD_CHECK_ENDPOINT"
)

// fromEnvironment makes a client of the environment. Its error names every
// variable that is missing.
func fromEnvironment(get func(string) string) (*facts.Client, error) {
	var missing []string
	need := func(name, means string) string {
		if get(name) == "" {
			missing = append(missing, "  "+name+"  "+means)
		}
		return get(name)
	}
	c := &facts.Client{
		Next: &http.Transport{Proxy: http.ProxyFromEnvironment}, Token: get(tokenVariable), Instance: get(instanceVariable), Endpoint: get(endpointVariable),
		KeyID:  need(keyVariable, "ID of an access key of the account that is asked"),
		Secret: need(secretVariable, "its secret ("+tokenVariable+" for a temporary key)"),
		Region: need(regionVariable, "region, such as cn-hangzhou"),
		Zone:   need(zoneVariable, "zone that disks are made in, such as cn-hangzhou-h"),
		Run:    time.Now().UTC().Format("20060102t150405z-") + strings.ToLower(rand.Text()[:8]),
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("the environment lacks\n%s\noptional are %s (a running instance in the zone, that disks are attached to) and %s", strings.Join(missing, "\n"), instanceVariable, endpointVariable)
	}
	if !strings.HasPrefix(c.Zone, c.Region) {
		return nil, fmt.Errorf("%s %q: allowed is a zone of %s %s", zoneVariable, c.Zone, regionVariable, c.Region)
	}
	if c.Endpoint == "" {
		c.Endpoint = "https://ecs." + c.Region + ".aliyuncs.com"
	}
	c.Endpoint = strings.TrimSuffix(c.Endpoint, "/")
	if !strings.HasPrefix(c.Endpoint, "https://") && !strings.HasPrefix(c.Endpoint, "http://127.0.0.1:") {
		return nil, fmt.Errorf("%s %q: allowed is https://HOST, or http://127.0.0.1:PORT of a simulator", endpointVariable, c.Endpoint)
	}
	return c, nil
}

// ask asks all facts and writes the report.
func ask(ctx context.Context, c *facts.Client, yes bool, file string) error {
	all, limits := facts.Facts(), facts.DefaultLimits()
	state(c, all, limits)
	if !yes {
		fmt.Println("\nNothing was asked and nothing made. Go on with YES=1.")
		return nil
	}
	if err := c.Verify(ctx); err != nil {
		return err
	}
	n := 0
	report, left := facts.Run(ctx, c, all, limits, func(r facts.Result) {
		if n++; r.Outcome != facts.NotAsked {
			fmt.Fprintf(os.Stderr, "%d of %d: %s: %s\n", n, len(all), r.Fact, r.Outcome)
		}
	})
	err := errors.Join(write(file, report), left)
	table(report)
	fmt.Printf("\nThe report is in %s: ecs-simulator --facts=%s behaves so.\n", file, file)
	if ctx.Err() != nil {
		err = errors.Join(errors.New("it was interrupted"), err)
	}
	return err
}

// state says what a run would make, and what that is at most.
func state(c *facts.Client, all []facts.Fact, limits facts.Limits) {
	count := map[facts.Need]int{}
	for _, f := range all {
		count[f.Needs]++
	}
	b := limits.Budget
	fmt.Printf(`cloud-check asks %s, region %s, what it does: %d facts.
  %d need nothing but the key, %d make disks, %d attach disks to an instance, %d only a simulator can be asked.
In zone %s, with the tag %s=%s, it makes
  at most %d disks, nearly all of 20 GiB, and at most %d at a time,
  at most %d snapshots, of disks that nothing was written to.
`, c.Endpoint, c.Region, len(all), count[facts.Nothing], count[facts.Disks], count[facts.Instance], count[facts.Simulator], c.Zone, facts.RunTag, c.Run, b.Disks, b.AtATime, b.Snapshots)
	if c.Instance != "" {
		fmt.Printf("It attaches these disks to the instance %s and detaches them; it writes nothing to them.\n", c.Instance)
	} else {
		fmt.Printf("It attaches none, for %s is not set.\n", instanceVariable)
	}
	fmt.Printf(`It never uses more than %.0f GiB-minutes of disks (%.0f GiB-hours), most of it for the chance that ECS makes what it ought to refuse;
against a simulator with ECS's latencies a run uses 190 of them in seven minutes. Your price of a GiB-hour times that number
bounds the cost. After %v it asks nothing more.
Everything is removed at the end, also after Ctrl-C; what a killed run leaves is removed by make cloud-check CLEAN=1.
`, b.GiBMinutes, b.GiBMinutes/60, limits.Total)
}

// sweep removes what earlier runs have left.
func sweep(ctx context.Context, c *facts.Client) error {
	found, err := c.Find(ctx, "")
	if err != nil {
		return err
	}
	for _, f := range found {
		fmt.Printf("%s of run %s", f.ID, f.Run)
		if len(f.Elsewhere) > 0 {
			fmt.Printf(", attached to %s: it is left alone", strings.Join(f.Elsewhere, ", "))
		}
		fmt.Println()
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	removed, err := c.Sweep(ctx, "")
	fmt.Printf("%d disks and snapshots removed\n", len(removed))
	return err
}

// write writes the report as JSON.
func write(file string, report facts.Report) error {
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// table prints the report for people: what differs first.
func table(report facts.Report) {
	count := map[facts.Outcome]int{}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, outcome := range []facts.Outcome{facts.Differs, facts.NotAsked, facts.Agrees} {
		for _, r := range report.Facts {
			if r.Outcome == outcome {
				count[outcome]++
				said := slices.DeleteFunc([]string{r.Observed, r.Why}, func(s string) bool { return s == "" })
				fmt.Fprintf(w, "%s\t%s\t%s\n", r.Outcome, r.Fact, strings.Join(said, " "))
			}
		}
	}
	fmt.Println()
	_ = w.Flush()
	fmt.Printf("\n%d agree, %d differ, %d not asked. %d disks and %d snapshots were made: %.1f GiB-minutes of %.0f, in %.0f s.\n",
		count[facts.Agrees], count[facts.Differs], count[facts.NotAsked],
		report.Disks, report.Snapshots, report.GiBMinutes, report.BoundGiBMinutes, report.Seconds)
}
