//go:build e2e

package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

// leak is a way in which csi-provisioner is known to forget a disk, whatever the driver does.
type leak struct{ name, source, reason string }

// restartLeak is the only one that has been seen here. Others, such as kubernetes-csi/external-provisioner#1469, get an
// entry of their own when they are: until then their disks count as the driver's.
var restartLeak = leak{
	"claim deleted across a restart", "kubernetes-csi/external-provisioner#486",
	"csi-provisioner ended while CreateVolume was under way or before the PersistentVolume was made, the claim was deleted, and the next process has no record of it",
}

// unknown is no known leak.
var unknown = leak{}

// namePrefix is the --volume-name-prefix of the chart, with its hyphen.
const namePrefix = "disk-"

// leaks are the disks that csi-provisioner has forgotten, and that were deleted in its place.
type leaks struct {
	seen  map[string]time.Time // by disk ID: since when it looks forgotten
	found map[leak]int
}

// leakSettles is for how long a disk must look forgotten, until it counts as such.
const leakSettles = 2 * time.Second

// leakOf says by which known leak csi-provisioner has forgotten the disk of a volume name whose claim and PersistentVolume
// don't exist, judged by the calls for the name and by which process runs now. There is none as long as that process may
// still ask for the name, or if the driver's answer is to blame.
func leakOf(creates []exchange, process int) leak {
	if len(creates) == 0 {
		return unknown // somebody else made the disk
	}
	for _, e := range creates {
		if e.provisioner == process || !e.over {
			return unknown
		}
	}
	if creates[len(creates)-1].final() {
		return unknown
	}
	return restartLeak
}

func TestLeaksAreUpstreamsOnlyIfTheDriverIsNotToBlame(t *testing.T) {
	const old, now = 1, 2
	over := func(provisioner int, answered bool, code codes.Code) exchange {
		return exchange{provisioner: provisioner, over: true, answered: answered, code: code}
	}
	for name, test := range map[string]struct {
		creates []exchange
		want    leak
	}{
		"never asked for":                      {nil, unknown},
		"an answer that nobody heard":          {[]exchange{over(old, true, codes.OK)}, restartLeak},
		"a call that was cut off":              {[]exchange{over(old, false, 0)}, restartLeak},
		"not known, then the process ended":    {[]exchange{over(old, true, codes.Aborted)}, restartLeak},
		"a final answer":                       {[]exchange{over(old, true, codes.PermissionDenied)}, unknown},
		"Unknown, which is final to upstream":  {[]exchange{over(old, true, codes.Unknown)}, unknown},
		"final, asked again, cut off":          {[]exchange{over(old, true, codes.ResourceExhausted), over(old, false, 0)}, restartLeak},
		"the process that asked runs":          {[]exchange{over(now, true, codes.Aborted)}, unknown},
		"the process that runs asked too":      {[]exchange{over(old, false, 0), over(now, true, codes.OK)}, unknown},
		"a call of the old process under way":  {[]exchange{{provisioner: old}}, unknown},
		"the last answer counts, not an early": {[]exchange{over(old, true, codes.OK), over(old, true, codes.Internal)}, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := leakOf(test.creates, now); got != test.want {
				t.Errorf("it is %q, want %q", got.name, test.want.name)
			}
		})
	}
}

// writeOff deletes the disks that csi-provisioner has forgotten, counts them, and returns the others. claims and handles
// are the UIDs of the claims and the disks of the PersistentVolumes that exist.
func (s *stage) writeOff(ctx context.Context, disks []ecssim.DiskState, claims, handles []string) ([]ecssim.DiskState, error) {
	if *which == ours {
		return disks, nil
	}
	forgotten := map[string]time.Time{}
	var left []ecssim.DiskState
	for _, d := range disks {
		known := unknown
		if !isOwned(d, claims, handles) {
			known = leakOf(s.csi.ledger.creates(d.Tags[disk.VolumeNameTag]), s.csi.ledger.running())
		}
		if known == unknown {
			left = append(left, d)
			continue
		}
		since, ok := s.leaks.seen[d.ID]
		if !ok {
			since = time.Now()
		}
		if time.Since(since) < leakSettles {
			forgotten[d.ID] = since
			left = append(left, d)
			continue
		}
		if err := s.deleteVolume(ctx, d.ID); err != nil {
			return nil, fmt.Errorf("delete disk %s, which %s has forgotten: %w", d.ID, upstreams, err)
		}
		s.leaks.count(known)
	}
	s.leaks.seen = forgotten
	return left, nil
}

// deleteStrays deletes the disks without a PersistentVolume once there are no claims. No provisioner may run meanwhile.
func (s *stage) deleteStrays(ctx context.Context) error {
	claims, err := s.Client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(claims.Items) > 0 {
		return fmt.Errorf("%d claims are there", len(claims.Items))
	}
	volumes, err := s.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	disks, err := s.Simulator.Disks(ctx, namespace)
	if err != nil {
		return err
	}
	for _, d := range disks {
		if !isOwned(d, nil, handlesOf(volumes.Items)) {
			err = errors.Join(err, s.deleteVolume(ctx, d.ID))
		}
	}
	return err
}

// isOwned says whether a disk has a claim or a PersistentVolume.
func isOwned(d ecssim.DiskState, claims, handles []string) bool {
	return slices.Contains(handles, d.ID) || slices.ContainsFunc(claims, func(uid string) bool { return d.Tags[disk.VolumeNameTag] == namePrefix+uid })
}

// deleteVolume asks the driver in the provisioner's place.
func (s *stage) deleteVolume(ctx context.Context, id string) error {
	conn, err := grpc.NewClient("unix://"+s.Topodisk.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	_, err = csi.NewControllerClient(conn).DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
	return errors.Join(err, conn.Close())
}

func (l *leaks) count(known leak) {
	if l.found == nil {
		l.found = map[leak]int{}
	}
	l.found[known]++
}

// report says which known leaks there were.
func (l *leaks) report(w io.Writer) {
	for known, n := range l.found {
		fmt.Fprintf(w, "%s forgot %d disks, %s (%s): %s\n", upstreams, n, known.name, known.source, known.reason)
	}
}
