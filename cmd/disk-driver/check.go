package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/topodisk/topodisk/cmd/internal/cli"
	"github.com/topodisk/topodisk/diskdriver"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
	"github.com/topodisk/topodisk/topology"
)

// What `disk-driver check` ends with.
const (
	checkClean    = 0
	checkFindings = 1
	checkFailed   = 2
)

// mainOfCheck reads the cluster's classes and volumes, prints those that the
// driver would refuse or take otherwise than another driver of its name, and
// changes nothing.
func mainOfCheck(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	found, err := parseAndCheck(ctx, args, os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return checkClean
	case err != nil:
		fmt.Fprintf(os.Stderr, "disk-driver check: %v\n", err)
		return checkFailed
	case found > 0:
		return checkFindings
	}
	return checkClean
}

// parseAndCheck returns how many objects would be refused.
func parseAndCheck(ctx context.Context, args []string, out, help io.Writer) (refused int, err error) {
	var driver string
	var cluster cli.Cluster
	var log cli.Log
	flags := pflag.NewFlagSet("disk-driver check", pflag.ContinueOnError)
	cli.SetUsage(flags, help, "disk-driver check prints the classes and volumes of a cluster that disk-driver would refuse, and changes nothing.\nIt ends with 0 if there are none, with 1 if there are, and with 2 if it failed.")
	flags.SortFlags = false
	flags.StringVar(&driver, "driver-name", diskdriver.DefaultName, "CSI driver name whose classes and volumes are read")
	cluster.AddFlags(flags)
	log.AddFlags(flags)
	if err := cli.Parse(flags, args); err != nil {
		return 0, err
	}
	if err := log.Validate(); err != nil {
		return 0, err
	}
	log.Start(os.Stderr)
	return runCheck(ctx, driver, &cluster, out)
}

func runCheck(ctx context.Context, driver string, cluster *cli.Cluster, out io.Writer) (refused int, err error) {
	config, err := cluster.RESTConfig()
	if err != nil {
		return 0, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, fmt.Errorf("--kubeconfig=%s: %w", cluster.Kubeconfig, err)
	}
	kinds, err := dynamic.NewForConfig(config)
	if err != nil {
		return 0, fmt.Errorf("--kubeconfig=%s: %w", cluster.Kubeconfig, err)
	}
	c := &check{driver: driver, client: client, kinds: kinds, out: out}
	return c.run(ctx)
}

// check compares a cluster's objects with what the driver takes.
type check struct {
	driver  string
	client  kubernetes.Interface
	kinds   dynamic.Interface
	out     io.Writer
	read    int
	refused int
}

// run returns how many objects would be refused.
func (c *check) run(ctx context.Context) (int, error) {
	for _, look := range []func(context.Context) error{c.storageClasses, c.attributesClasses, c.snapshotClasses, c.volumes} {
		if err := look(ctx); err != nil {
			return 0, err
		}
	}
	fmt.Fprintf(c.out, "check: %d classes and volumes of %s read, %d would be refused\n", c.read, c.driver, c.refused)
	return c.refused, nil
}

// say prints what was found of one object: an error, or else notes.
func (c *check) say(kind, name string, err error, notes []string) {
	c.read++
	if err != nil {
		c.refused++
		fmt.Fprintf(c.out, "REFUSED  %s %s: %v\n", kind, name, err)
	}
	for _, note := range notes {
		fmt.Fprintf(c.out, "note     %s %s: %s\n", kind, name, note)
	}
}

func (c *check) storageClasses(ctx context.Context) error {
	list, err := c.client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list StorageClasses: %w", err)
	}
	for _, class := range list.Items {
		if class.Provisioner == c.driver {
			p, err := params.Parse(withoutProvisioners(class.Parameters), nil, params.Refuse)
			c.say("StorageClass", class.Name, err, p.Warnings)
		}
	}
	return nil
}

// withoutProvisioners leaves out what provisioners take for themselves: names
// of Secrets, and topodisk's own parameters.
func withoutProvisioners(parameters map[string]string) map[string]string {
	rest := map[string]string{}
	for key, value := range parameters {
		own := strings.HasPrefix(key, "topodisk.io/") ||
			strings.HasPrefix(key, "csi.storage.k8s.io/") && (strings.HasSuffix(key, "-secret-name") || strings.HasSuffix(key, "-secret-namespace") || strings.HasSuffix(key, "/secret-name") || strings.HasSuffix(key, "/secret-namespace"))
		if !own {
			rest[key] = value
		}
	}
	return rest
}

func (c *check) attributesClasses(ctx context.Context) error {
	list, err := c.client.StorageV1().VolumeAttributesClasses().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) { // the server is older than the kind
		return nil
	}
	if err != nil {
		return fmt.Errorf("list VolumeAttributesClasses: %w", err)
	}
	for _, class := range list.Items {
		if class.DriverName == c.driver {
			_, err := params.ParseChange(class.Parameters)
			c.say("VolumeAttributesClass", class.Name, err, nil)
		}
	}
	return nil
}

func (c *check) snapshotClasses(ctx context.Context) error {
	for _, kind := range []struct {
		group, resource, name string
		parse                 func(map[string]string, params.Unknown) (params.SnapshotClass, error)
	}{
		{"snapshot.storage.k8s.io", "volumesnapshotclasses", "VolumeSnapshotClass", params.ParseSnapshotClass},
		{"groupsnapshot.storage.k8s.io", "volumegroupsnapshotclasses", "VolumeGroupSnapshotClass", params.ParseGroupClass},
	} {
		list, err := c.kinds.Resource(schema.GroupVersionResource{Group: kind.group, Version: "v1", Resource: kind.resource}).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) { // the cluster has no such snapshots
			continue
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", kind.resource, err)
		}
		for _, class := range list.Items {
			if driver, _, _ := unstructured.NestedString(class.Object, "driver"); driver != c.driver {
				continue
			}
			parameters, _, err := unstructured.NestedStringMap(class.Object, "parameters")
			if err != nil {
				c.say(kind.name, class.GetName(), err, nil)
				continue
			}
			p, err := kind.parse(withoutProvisioners(parameters), params.Refuse)
			c.say(kind.name, class.GetName(), err, p.Warnings)
		}
	}
	return nil
}

func (c *check) volumes(ctx context.Context) error {
	for page := (metav1.ListOptions{Limit: 500}); ; {
		list, err := c.client.CoreV1().PersistentVolumes().List(ctx, page)
		if err != nil {
			return fmt.Errorf("list PersistentVolumes: %w", err)
		}
		for _, volume := range list.Items {
			if source := volume.Spec.CSI; source != nil && source.Driver == c.driver {
				c.say("PersistentVolume", volume.Name, refusedVolume(&volume), notesOn(&volume))
			}
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return nil
		}
	}
}

var diskForm = regexp.MustCompile(`^d-[0-9a-z]+$`)

// refusedVolume returns why a volume couldn't be used; nil if nothing is known
// to speak against it. What a volume's attributes say beyond what the driver
// knows is passed over, so nothing in them is refused.
func refusedVolume(volume *corev1.PersistentVolume) error {
	source := volume.Spec.CSI
	if !diskForm.MatchString(source.VolumeHandle) {
		return fmt.Errorf("spec.csi.volumeHandle %q is no disk ID; allowed is d- and letters and digits", source.VolumeHandle)
	}
	mounted := volume.Spec.VolumeMode == nil || *volume.Spec.VolumeMode == corev1.PersistentVolumeFilesystem
	if mounted && source.FSType != "" && !slices.Contains(disk.Filesystems(), source.FSType) {
		return fmt.Errorf("spec.csi.fsType %q is not allowed: allowed are %s", source.FSType, strings.Join(disk.Filesystems(), ", "))
	}
	if mounted && slices.Contains(volume.Spec.AccessModes, corev1.ReadWriteMany) {
		return fmt.Errorf("spec.accessModes has ReadWriteMany for a file system, which two nodes that write would destroy; allowed are ReadWriteOnce, ReadWriteOncePod and ReadOnlyMany")
	}
	return nil
}

// notesOn says what of a volume stays as it is and may surprise.
func notesOn(volume *corev1.PersistentVolume) []string {
	affinity := volume.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil {
		return []string{"no node affinity: Pods may come to a node of another zone, where the disk can't be attached"}
	}
	known := []string{topology.ZoneKey, topology.WellKnownZoneKey, topology.RegionKey}
	var notes []string
	for _, term := range affinity.Required.NodeSelectorTerms {
		for _, rule := range term.MatchExpressions {
			switch {
			case rule.Key == topology.ZoneKey:
				notes = append(notes, "node affinity by "+topology.ZoneKey+": nodes keep that label; autoscalers that don't know it make no node for the volume")
			case !slices.Contains(known, rule.Key) && !strings.HasPrefix(rule.Key, disk.NodeTypeLabel):
				notes = append(notes, fmt.Sprintf("node affinity by %s, which no part of topodisk keeps on nodes", rule.Key))
			}
		}
	}
	return notes
}
