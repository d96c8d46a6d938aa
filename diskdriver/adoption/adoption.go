// Package adoption tags the disks that were made for a cluster before there was a tag for it, once after an upgrade.
package adoption

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// ECS lists disks and tags them. Every error has a disk.Kind.
type ECS interface {
	// List returns every data disk of the region, each once.
	List(ctx context.Context) ([]disk.Disk, error)

	// TagAll sets tags of disks, over others of the same keys.
	TagAll(ctx context.Context, ids []disk.ID, tags disk.Tags) error
}

// provisionedBy is the annotation that provisioners put on a PersistentVolume: the driver's name. One that an operator made has none.
const provisionedBy = "pv.kubernetes.io/provisioned-by"

// pageSize is how many PersistentVolumes one answer of the API server has.
const pageSize = 500

// Run gives OwnerTag to the disks that PersistentVolumes of the driver stand for and that are the owner's without it (disk.Owner.Lacks). A disk
// that has no room for a tag is left, and logged. Denied: RAM doesn't let the driver tag disks that have no such tag, as its policy should.
func Run(ctx context.Context, client kubernetes.Interface, driver string, owner disk.Owner, ecs ECS) error {
	handles, err := handlesOf(ctx, client, driver)
	if err != nil || len(handles) == 0 {
		return err
	}
	disks, err := ecs.List(ctx)
	if err != nil {
		return err
	}
	var lack []disk.ID
	for _, d := range disks {
		switch {
		case !handles[d.ID] || !owner.Lacks(d.Tags):
		case d.Tags.Room() == 0:
			klog.InfoS("A disk has no room for the tag that says whose it is: remove one of its tags", "disk", d.ID, "tag", disk.OwnerTag)
		default:
			lack = append(lack, d.ID)
		}
	}
	if len(lack) == 0 {
		return nil
	}
	slices.Sort(lack)
	if err := ecs.TagAll(ctx, lack, owner.Tag()); err != nil {
		return fmt.Errorf("%d disks of PersistentVolumes have no tag %s, and tagging them failed; `kubectl topodisk audit` names them, with the command: %w",
			len(lack), disk.OwnerTag, err)
	}
	klog.InfoS("Tagged the disks of PersistentVolumes that had no tag for their cluster", "disks", len(lack), "tag", disk.OwnerTag, "cluster", owner.Cluster)
	return nil
}

// handlesOf returns the disks of the PersistentVolumes that a provisioner made for the driver.
func handlesOf(ctx context.Context, client kubernetes.Interface, driver string) (map[disk.ID]bool, error) {
	handles, options := map[disk.ID]bool{}, metav1.ListOptions{Limit: pageSize}
	for {
		page, err := client.CoreV1().PersistentVolumes().List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			pv := &page.Items[i]
			if csi := pv.Spec.CSI; csi != nil && csi.Driver == driver && pv.Annotations[provisionedBy] == driver {
				handles[disk.ID(csi.VolumeHandle)] = true
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return handles, nil
		}
	}
}
