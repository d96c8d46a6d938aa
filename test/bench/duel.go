package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
)

// scale is how much of everything there is.
type scale struct{ claims, runs, nodes, volumes, deletions, seconds int }

func (s *scale) flags() {
	flag.IntVar(&s.claims, "claims", 1000, "provisioner: claims at once")
	flag.IntVar(&s.runs, "runs", 5, "provisioner: runs of each program, of which the median counts")
	flag.IntVar(&s.nodes, "nodes", 5000, "provisioner: nodes of the large cluster")
	flag.IntVar(&s.volumes, "volumes", 20000, "provisioner: volumes of the large cluster")
	flag.IntVar(&s.deletions, "deletions", 200, "provisioner: volumes deleted at once")
	flag.IntVar(&s.seconds, "seconds", 20, "provisioner: how long claims come at an even rate")
}

const (
	late   = storagev1.VolumeBindingWaitForFirstConsumer
	atOnce = storagev1.VolumeBindingImmediate
)

// patience bounds every wait.
const patience = 10 * time.Minute

// benchProvisioner runs both provisioners, in turn, on one control plane.
func benchProvisioner(s scale, write string) (err error) {
	ctx := context.Background()
	root, err := programs.FindRoot()
	if err != nil {
		return err
	}
	dirs, err := programs.Build(ctx, root, os.Stdout)
	if err != nil {
		return err
	}
	sidecars, err := programs.BuildUpstream(ctx, root, os.Stdout)
	if err != nil {
		return err
	}
	l, err := lab.Start(ctx, lab.Options{Root: root, Programs: dirs, Bare: true, Audit: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Stop()) }()
	a := &arena{
		Lab: l, socket: socketIn(l.Dir),
		ours:     contender{name: "disk-provisioner", path: filepath.Join(dirs.Topodisk, "disk-provisioner")},
		upstream: contender{name: "csi-provisioner", path: filepath.Join(sidecars, "csi-provisioner")},
	}
	if err := serveInstant(a.socket); err != nil {
		return err
	}
	if a.audit, err = openAudit(l.AuditLog()); err != nil {
		return err
	}
	if err := l.MakeNamespace(ctx, benchNamespace); err != nil {
		return err
	}
	if err := a.addNodes(ctx, 0, 3); err != nil {
		return err
	}
	var d duel
	for _, act := range []func(context.Context, scale, *duel) error{a.crowds, a.alone, a.steady, a.deleting, a.takeovers, a.large} {
		if err := act(ctx, s, &d); err != nil {
			return err
		}
	}
	if write == "" {
		return nil
	}
	return writeSection(write, "provisioner", d.markdown(s))
}

// collect reads the audit log until it is enough.
func (a *arena) collect(ctx context.Context, enough func([]request) bool) ([]request, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var all []request
	for {
		more, err := a.audit.read()
		if err != nil {
			return all, err
		}
		if all = append(all, more...); enough(all) {
			return all, nil
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
