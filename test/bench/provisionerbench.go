package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/audit"
	"github.com/topodisk/topodisk/test/lab/programs"
)

// scale is how much of everything there is.
type scale struct {
	claims                 int // at once
	runs, hugeRuns, rounds int // of each program, of which the median counts: in the small cluster, in the huge one, of rows that take long
	steady                 int // claims of each program that come at an even rate
	crowd                  int // claims of one namespace beside a few of another
	nodes, volumes         int // of the large cluster
	hugeNodes, hugeVolumes int
}

var (
	scaleAll = scale{claims: 1000, runs: 5, hugeRuns: 2, rounds: 3, steady: 300, crowd: 10000,
		nodes: 5000, volumes: 20000, hugeNodes: 15000, hugeVolumes: 100000}
	scaleFew = scale{claims: 20, runs: 1, hugeRuns: 1, rounds: 1, steady: 20, crowd: 100, nodes: 30, volumes: 50, hugeNodes: 60, hugeVolumes: 100}
)

const (
	waitForConsumer = storagev1.VolumeBindingWaitForFirstConsumer
	immediate       = storagev1.VolumeBindingImmediate
)

// waitLimit bounds every wait.
const waitLimit = 10 * time.Minute

// group is a group of rows that are measured together.
type group struct {
	name    string
	of      func(*environment, context.Context, scale, *table) error
	unbound bool // on a control plane of its own that binds no claims
}

// groups are all of them, in the order of the page. The large cluster comes after those on the same control plane, for it stays.
func groups() []group {
	return []group{
		{name: "bursts", of: (*environment).bursts}, {name: "defaults", of: (*environment).defaults}, {name: "steady", of: (*environment).steady},
		{name: "namespaces", of: (*environment).namespaces}, {name: "takeover", of: (*environment).takeovers},
		{name: "large", of: (*environment).large}, {name: "huge", of: (*environment).huge, unbound: true},
	}
}

func (g group) named() string { return g.name }

// benchProvisioner runs both provisioners, in turn, on one control plane. What it measures is kept, and the page is
// written from what is kept.
func benchProvisioner(ctx context.Context, root string, s scale, rows, write string) (err error) {
	wanted, err := chooseRows(rows, groups(), group.named)
	if err != nil {
		return err
	}
	var e *environment
	defer func() { err = errors.Join(err, e.close()) }()
	results := resultFile[row]{path: filepath.Join(root, "test", "bench", "provisioner.json"), commit: commit()}
	for _, group := range wanted {
		if e == nil || group.unbound {
			if err := e.close(); err != nil {
				return err
			}
			if e, err = openEnvironment(ctx, root, group.unbound); err != nil {
				return err
			}
		}
		var t table
		begin := time.Now()
		if err := group.of(e, ctx, s, &t); err != nil {
			return fmt.Errorf("%s: %w", group.name, err)
		}
		fmt.Printf("  (%s took %s)\n", group.name, time.Since(begin).Round(time.Second))
		if write == "" {
			continue
		}
		if err := results.save(group.name, t.rows); err != nil {
			return err
		}
	}
	if write == "" {
		return nil
	}
	return results.publish(write, "provisioner", rowKeys(groups(), group.named), func(rows []row, commits []string) string {
		return (&table{rows: rows}).markdown(s, commits)
	})
}

// unlimitedClient returns the benchmark's own client. It uses protobuf, so that it takes little of the CPU time.
func unlimitedClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.ContentType = -1, "application/vnd.kubernetes.protobuf"
	return kubernetes.NewForConfig(config)
}

// binder is the controller that binds claims and volumes.
const binder = "persistentvolume-binder-controller"

// controllers are those that have to do with volumes. Nobody runs on the nodes: they would be found lost.
var controllers = []string{
	binder, "persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller",
	"serviceaccount-controller", "serviceaccount-token-controller", "namespace-controller",
}

// openEnvironment starts a control plane with three nodes, and for each provisioner a driver that answers at once.
func openEnvironment(ctx context.Context, root string, unbound bool) (*environment, error) {
	dirs, err := programs.Default.Build(ctx, root, os.Stdout)
	if err != nil {
		return nil, err
	}
	sidecars, err := programs.BuildUpstream(ctx, root, os.Stdout)
	if err != nil {
		return nil, err
	}
	l, err := lab.Start(ctx, lab.Options{Root: root, Programs: dirs, Bare: true, Audit: true,
		Controllers: slices.DeleteFunc(slices.Clone(controllers), func(name string) bool { return unbound && name == binder })})
	if err != nil {
		return nil, err
	}
	e := &environment{
		Lab: l, driverOf: map[string]string{},
		ours:     provisioner{name: "disk-provisioner", path: filepath.Join(dirs.Topodisk, "disk-provisioner")},
		upstream: provisioner{name: "csi-provisioner", path: filepath.Join(sidecars, "csi-provisioner")},
	}
	err = serveInstant(l.Dir, benchDriver, 0)
	if err == nil {
		l.Client, err = unlimitedClient(l.Kubeconfig)
	}
	if err == nil {
		e.audit, err = audit.Open(l.AuditLog())
	}
	if err == nil {
		err = errors.Join(l.MakeNamespace(ctx, benchNamespace), l.MakeNamespace(ctx, otherNamespace), e.addNodes(ctx, 0, 3))
	}
	for _, name := range []string{ecsDriver, upstreamECSDriver} {
		if err == nil {
			err = e.addDriver(ctx, name, ecsTime)
		}
	}
	if err != nil {
		return nil, errors.Join(err, l.Stop())
	}
	return e, nil
}

// close ends what openEnvironment has started, if that was called.
func (e *environment) close() error {
	if e == nil {
		return nil
	}
	return e.Stop()
}

// collect reads the audit log until all that it has read is enough.
func (e *environment) collect(ctx context.Context, enough func(all []audit.Request) bool) ([]audit.Request, error) {
	var all []audit.Request
	return e.collectMore(ctx, func(more []audit.Request) bool {
		all = append(all, more...)
		return enough(all)
	})
}

// collectMore reads the audit log, and asks after each time it has looked whether that is enough.
func (e *environment) collectMore(ctx context.Context, enough func(more []audit.Request) bool) ([]audit.Request, error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	var all []audit.Request
	for {
		more, err := e.audit.Read()
		if all = append(all, more...); err != nil || enough(more) {
			return all, err
		}
		if err := sleepFor(ctx, 100*time.Millisecond); err != nil {
			return all, err
		}
	}
}

func ignoreMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
