package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
)

// scale is how much of everything there is.
type scale struct{ claims, runs, rounds, nodes, volumes, hugeNodes, hugeVolumes, deletions, seconds int }

func (s *scale) flags() {
	flag.IntVar(&s.claims, "claims", 1000, "provisioner: claims at once")
	flag.IntVar(&s.runs, "runs", 5, "provisioner: runs of each program with many claims at once, of which the median counts")
	flag.IntVar(&s.rounds, "rounds", 3, "provisioner: the same for the rows that take long")
	flag.IntVar(&s.nodes, "nodes", 5000, "provisioner: nodes of the large cluster")
	flag.IntVar(&s.volumes, "volumes", 20000, "provisioner: volumes of the large cluster")
	flag.IntVar(&s.hugeNodes, "huge-nodes", 15000, "provisioner: nodes of the huge cluster")
	flag.IntVar(&s.hugeVolumes, "huge-volumes", 100000, "provisioner: volumes of the huge cluster")
	flag.IntVar(&s.deletions, "deletions", 200, "provisioner: volumes deleted at once")
	flag.IntVar(&s.seconds, "seconds", 20, "provisioner: how long claims come at an even rate")
}

const (
	late   = storagev1.VolumeBindingWaitForFirstConsumer
	atOnce = storagev1.VolumeBindingImmediate
)

// patience bounds every wait.
const patience = 10 * time.Minute

// act measures a group of rows.
type act struct {
	name    string
	of      func(*arena, context.Context, scale, *duel) error
	unbound bool // on a control plane of its own that binds no claims
}

// acts are all of them, in the order of the page. The large cluster comes after those on the same control plane, for it stays.
func acts() []act {
	return []act{
		{name: "crowds", of: (*arena).crowds}, {name: "alone", of: (*arena).alone}, {name: "deletion", of: (*arena).deleting},
		{name: "defaults", of: (*arena).defaults}, {name: "steady", of: (*arena).steady}, {name: "takeover", of: (*arena).takeovers},
		{name: "requirement", of: (*arena).requirement}, {name: "large", of: (*arena).large}, {name: "huge", of: (*arena).huge, unbound: true},
	}
}

func actNames() []string {
	var names []string
	for _, a := range acts() {
		names = append(names, a.name)
	}
	return names
}

// chosen are the acts of a list of names, all for an empty one.
func chosen(list string) ([]act, error) {
	if list == "" {
		return acts(), nil
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.Contains(actNames(), name) {
			return nil, fmt.Errorf("-rows has %q; allowed are %s", name, strings.Join(actNames(), ","))
		}
	}
	return slices.DeleteFunc(acts(), func(a act) bool { return !slices.Contains(names, a.name) }), nil
}

// benchProvisioner runs both provisioners, in turn, on one control plane. What it measures is kept, and the page is
// written once every row was measured.
func benchProvisioner(s scale, rows, write string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	wanted, err := chosen(rows)
	if err != nil {
		return err
	}
	root, err := programs.FindRoot()
	if err != nil {
		return err
	}
	var a *arena
	defer func() { err = errors.Join(err, a.close()) }()
	notes := notebook{path: filepath.Join(root, ".build", "bench", "provisioner.json")}
	for _, act := range wanted {
		if a == nil || act.unbound {
			if err := a.close(); err != nil {
				return err
			}
			if a, err = openArena(ctx, root, act.unbound); err != nil {
				return err
			}
		}
		var d duel
		begin := time.Now()
		if err := act.of(a, ctx, s, &d); err != nil {
			return fmt.Errorf("%s: %w", act.name, err)
		}
		fmt.Printf("  (%s took %s)\n", act.name, time.Since(begin).Round(time.Second))
		if err := notes.keep(act.name, d.rows); err != nil {
			return err
		}
	}
	if write == "" {
		return nil
	}
	return notes.publish(s, write)
}

// quickClient is the bench's own: it is not to take the CPU from those who are measured.
func quickClient(kubeconfig string) (kubernetes.Interface, error) {
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

// openArena starts a control plane with three nodes, and the driver that answers at once.
func openArena(ctx context.Context, root string, unbound bool) (*arena, error) {
	dirs, err := programs.Build(ctx, root, os.Stdout)
	if err != nil {
		return nil, err
	}
	sidecars, err := programs.BuildUpstream(ctx, root, os.Stdout)
	if err != nil {
		return nil, err
	}
	l, err := lab.Start(ctx, lab.Options{Root: root, Programs: dirs, Bare: true, Audit: true, Controllers: slices.DeleteFunc(slices.Clone(controllers), func(name string) bool { return unbound && name == binder })})
	if err != nil {
		return nil, err
	}
	a := &arena{
		Lab: l, socket: socketIn(l.Dir),
		ours:     contender{name: "disk-provisioner", path: filepath.Join(dirs.Topodisk, "disk-provisioner")},
		upstream: contender{name: "csi-provisioner", path: filepath.Join(sidecars, "csi-provisioner")},
		decision: filepath.Join(sidecars, "requirement"),
	}
	err = serveInstant(a.socket)
	if err == nil {
		l.Client, err = quickClient(l.Kubeconfig)
	}
	if err == nil {
		a.audit, err = lab.OpenAudit(l.AuditLog())
	}
	if err == nil {
		err = errors.Join(l.MakeNamespace(ctx, benchNamespace), a.addNodes(ctx, 0, 3))
	}
	if err != nil {
		return nil, errors.Join(err, l.Stop())
	}
	return a, nil
}

// close ends what openArena has started, if that was called.
func (a *arena) close() error {
	if a == nil {
		return nil
	}
	return a.Stop()
}

// collect reads the audit log until all that it has read is enough.
func (a *arena) collect(ctx context.Context, enough func(all []lab.Request) bool) ([]lab.Request, error) {
	var all []lab.Request
	return a.collectMore(ctx, func(more []lab.Request) bool {
		all = append(all, more...)
		return enough(all)
	})
}

// collectMore reads the audit log, and asks after each time it has looked whether that is enough.
func (a *arena) collectMore(ctx context.Context, enough func(more []lab.Request) bool) ([]lab.Request, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var all []lab.Request
	for {
		more, err := a.audit.Read()
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
