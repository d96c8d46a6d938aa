//go:build e2e

package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

// calmDown is how long everything may take to settle. The longest wait is the minute for which a disk may stay out of
// the cloud's sight after a call that nobody heard the answer of.
const calmDown = 150 * time.Second

// settle waits until nothing is under way and everything adds up.
func (s *stage) settle(ctx context.Context) error {
	return s.await(ctx, "claims, volumes and disks add up, and the journal is empty", calmDown, func(ctx context.Context) error {
		if err := errors.Join(s.balance(ctx), s.csi.ledger.idle()); err != nil {
			return err
		}
		return s.journalIsEmpty(ctx)
	})
}

// balance is nil if every claim has its volume, every volume its disk, and every disk its volume.
func (s *stage) balance(ctx context.Context) error {
	claims, err := s.Client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	list, err := s.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	disks, err := s.Simulator.Disks(ctx, namespace)
	if err != nil {
		return err
	}
	if disks, err = s.writeOff(ctx, disks, uidsOf(claims.Items), handlesOf(list.Items)); err != nil {
		return err
	}
	handles := map[string]string{} // of the volumes, by the UID of their claim
	for _, pv := range list.Items {
		handle := pv.Spec.CSI.VolumeHandle
		switch uid := string(pv.Spec.ClaimRef.UID); {
		case handles[uid] != "":
			return fmt.Errorf("a claim has two volumes, %s and %s", handles[uid], handle)
		case !slices.ContainsFunc(disks, func(d ecssim.DiskState) bool { return d.ID == handle }):
			return fmt.Errorf("PersistentVolume %s (%s) has no disk", pv.Name, pv.Status.Phase)
		default:
			handles[uid] = handle
		}
	}
	for _, claim := range claims.Items {
		if claim.DeletionTimestamp != nil {
			return fmt.Errorf("claim %s is not gone yet", claim.Name)
		}
		if claim.Status.Phase != corev1.ClaimBound || handles[string(claim.UID)] == "" {
			return fmt.Errorf("claim %s is %s and has volume %q", claim.Name, claim.Status.Phase, handles[string(claim.UID)])
		}
	}
	if len(disks) != len(handles) || len(claims.Items) != len(handles) {
		return fmt.Errorf("there are %d claims, %d volumes and %d disks", len(claims.Items), len(handles), len(disks))
	}
	return nil
}

func uidsOf(claims []corev1.PersistentVolumeClaim) (uids []string) {
	for _, claim := range claims {
		uids = append(uids, string(claim.UID))
	}
	return uids
}

func handlesOf(volumes []corev1.PersistentVolume) (ids []string) {
	for _, pv := range volumes {
		ids = append(ids, pv.Spec.CSI.VolumeHandle)
	}
	return ids
}

// journalIsEmpty is nil if no volume is under way according to the journal: what is left there has its PersistentVolume,
// which can't go without the provisioner.
func (s *stage) journalIsEmpty(ctx context.Context) error {
	volumes, err := s.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	standing := map[string]bool{} // claim UID
	for _, pv := range volumes.Items {
		standing[string(pv.Spec.ClaimRef.UID)] = slices.Contains(pv.Finalizers, "external-provisioner.volume.kubernetes.io/finalizer")
	}
	list, err := s.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).List(ctx,
		metav1.ListOptions{LabelSelector: "csi.storage.k8s.io/managed-by=disk-provisioner"})
	if err != nil {
		return err
	}
	for _, page := range list.Items {
		for claim := range page.Data {
			if !standing[claim] {
				return fmt.Errorf("the journal has claim %s, one of %d, which has no volume", claim, len(page.Data))
			}
		}
	}
	return nil
}

// nothingTwice is an error if more than one disk was ever made for a volume name, or if the simulator has found itself
// in a state that ECS is never in.
func (s *stage) nothingTwice(ctx context.Context) error {
	calls, err := s.Simulator.Calls(ctx, "")
	if err != nil {
		return err
	}
	if *which == upstreams {
		if err := s.csi.ledger.kept(calls); err != nil {
			return err
		}
	}
	made := map[string]string{}
	for _, c := range calls {
		if c.Action == "DeleteDisk" && c.Code == "" {
			maps.DeleteFunc(made, func(name, id string) bool {
				return id == c.Disk && (*which == upstreams || s.moved[name]) // external-provisioner#1469: the same name again
			})
		}
		if c.Action != "CreateDisk" {
			continue
		}
		name := tagOf(c, disk.VolumeNameTag)
		if c.Code != "" || c.Disk == "" || name == "" {
			continue
		}
		if other := made[name]; other != "" && other != c.Disk {
			return fmt.Errorf("two disks were made for volume %s: %s and %s", name, other, c.Disk)
		}
		made[name] = c.Disk
	}
	state, err := s.Simulator.State(ctx)
	if err == nil && state.Broken != "" {
		err = fmt.Errorf("the simulator is in a state that can't be: %s", state.Broken)
	}
	return err
}

func tagOf(c ecssim.Call, key string) string {
	for n := 1; c.Params["Tag."+strconv.Itoa(n)+".Key"] != ""; n++ {
		if c.Params["Tag."+strconv.Itoa(n)+".Key"] == key {
			return c.Params["Tag."+strconv.Itoa(n)+".Value"]
		}
	}
	return ""
}
