package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/audit"
	"github.com/topodisk/topodisk/test/lab/programs"
)

// Names of where Pods have their volumes from.
const (
	sourceNone    = "emptyDir"
	sourceInstant = "a driver that answers at once"
	sourcePaced   = "a driver that only waits, as long as ECS took"
	sourceOurs    = "topodisk"
)

// volumeSource is where Pods have their volumes from: a class of a driver, or the node itself.
type volumeSource struct {
	name  string
	class string // empty for emptyDir
	paced bool   // each volume takes as long as ECS took for topodisk's before it
}

func (s volumeSource) has() bool { return s.class != "" }

// podsNodeType takes 64 disks, as many as any type does, and attaches them in parallel.
const podsNodeType = "ecs.g6se.26xlarge"

// podsNodes are one that is drained, and four that its Pods go to.
const podsNodes = 5

// podsBench is a lab with every source of volumes in it.
type podsBench struct {
	*lab.Lab
	sizes   podsSizes
	where   podsPlace
	sources []volumeSource
	audit   *audit.Log
	pods    *podWatch
	mounts  *mountLogs
	round   int
	names   int // of objects that were made
	paces   []pace
}

// podsPlace is a kind of lab.
type podsPlace int

const (
	onQuickNodes podsPlace = iota // real nodes, whose kubelets tell of their status every second
	onUsualNodes                  // real nodes, whose kubelets have their default periods
	onKWOK                        // nodes that are objects only
)

func (b *podsBench) kwok() bool { return b.where == onKWOK }

// pacesDir is where the driver that waits is told for how long.
func (b *podsBench) pacesDir() string { return filepath.Join(b.Dir, "paces") }

// openPods starts a lab with topodisk, the driver that answers at once, and the other driver that is given.
func openPods(ctx context.Context, root, dir string, where podsPlace, sizes podsSizes, o podsOptions) (b *podsBench, err error) {
	options := lab.Options{
		Root: root, Programs: programs.Default.BuiltNodes(root), StateDir: dir, RealNodes: true, Audit: true,
		Nodes:         lab.NodesInOneZone(podsNodes, podsNodeType),
		SimulatorArgs: []string{"--latency=real", "--queues=parallel", "--calls-kept=1000000"},
		Say:           func(step string, took time.Duration) { fmt.Printf("%5.1f s  %s\n", took.Seconds(), step) },
	}
	options.UsualPeriods = where == onUsualNodes
	if where == onKWOK {
		options.RealNodes, options.Attach = false, true
		options.Nodes = lab.ManyNodes(sizes.nodes)
	}
	l, err := lab.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	b = &podsBench{Lab: l, sizes: sizes, where: where}
	for _, step := range []func(context.Context) error{b.openRecords, b.addOurs, b.addInstant, func(ctx context.Context) error { return b.addOther(ctx, o) }} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, l.Stop())
		}
	}
	return b, nil
}

// openRecords makes the namespace and opens what tells when something has happened.
func (b *podsBench) openRecords(ctx context.Context) (err error) {
	if b.Client, err = unlimitedClient(b.Kubeconfig); err != nil {
		return err
	}
	if err := b.MakeNamespace(ctx, benchNamespace); err != nil {
		return err
	}
	if b.audit, err = audit.Open(b.AuditLog()); err != nil {
		return err
	}
	b.mounts = openMountLogs(b.Lab)
	b.pods, err = watchPods(ctx, b.Client)
	return err
}

// addOurs makes the sources that are there already. A Pod without a volume of a driver comes first.
func (b *podsBench) addOurs(ctx context.Context) error {
	b.sources = []volumeSource{{name: sourceNone}}
	return b.addSource(ctx, sourceOurs, lab.DriverName)
}

// addInstant starts the driver that answers at once: this program in another role.
func (b *podsBench) addInstant(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	play := func(s instantSettings) []string {
		text, _ := json.Marshal(s) // it never fails
		return []string{"/usr/bin/env", instantVariable + "=" + string(text), self}
	}
	name, err := b.AddDriver(ctx, lab.AnotherDriver{
		Controller: play(instantSettings{Socket: "{socket}", Paces: b.pacesDir()}),
		Node:       play(instantSettings{Socket: "{socket}", Node: "{instance}", Zone: "{zone}"}),
	})
	if err != nil {
		return err
	}
	if err := b.addSource(ctx, sourceInstant, name); err != nil {
		return err
	}
	paced := b.sources[len(b.sources)-1]
	paced.name, paced.paced = sourcePaced, true
	b.sources = append(b.sources, paced)
	return nil
}

// addOther starts the driver that the command line gives, if it does.
func (b *podsBench) addOther(ctx context.Context, o podsOptions) error {
	if o.driver == "" {
		return nil
	}
	another := lab.AnotherDriver{Controller: strings.Fields(o.driver), Node: strings.Fields(o.node)}
	if len(another.Node) == 0 && !b.kwok() {
		return errors.New("-driver is given without -node-driver, the plugin of a node")
	}
	name, err := b.AddDriver(ctx, another)
	if err != nil {
		return err
	}
	return b.addSource(ctx, name, name)
}

// addSource makes a class of a driver.
func (b *podsBench) addSource(ctx context.Context, name, driver string) error {
	class := lab.Class(fmt.Sprintf("bench-%d", len(b.sources)), storagev1.VolumeBindingWaitForFirstConsumer, nil)
	class.Provisioner = driver
	if driver != podsDriver {
		class.Parameters = map[string]string{"type": "cloud_essd", "performanceLevel": "PL1"}
	}
	b.sources = append(b.sources, volumeSource{name: name, class: class.Name})
	return b.MakeClass(ctx, class)
}
