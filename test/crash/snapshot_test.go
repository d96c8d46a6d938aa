//go:build e2e

package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/topodisk/topodisk/test/lab"
)

const snapshotFinalizer = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"

// driver returns the driver's own socket, past the gates.
func (s *scene) driver() csi.ControllerClient {
	s.Helper()
	conn, err := grpc.NewClient("unix://"+s.Topodisk.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.Must(err)
	s.Cleanup(func() { conn.Close() })
	return csi.NewControllerClient(conn)
}

// snapshot takes a snapshot of a claim's disk. It is not ready until somebody says so.
func (s *scene) snapshot(name, claim string) *lab.Snapshot {
	s.Helper()
	state, err := s.Simulator.State(s.Context())
	s.Must(err)
	doubts := state.Doubts
	doubts.SnapshotUnattached = []string{"cloud_essd", "cloud_auto"} // no Pod has had the disk
	s.Must(s.Simulator.SetDoubts(s.Context(), doubts))
	s.Cleanup(func() { s.Must(s.Simulator.SetDoubts(context.Background(), state.Doubts)) })
	driver, source, handle := s.driver(), s.onlyDisk(claim).ID, ""
	s.Must(s.await(s.Context(), "the snapshot is taken", limit, func(ctx context.Context) error {
		taken, err := driver.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: source})
		handle = taken.GetSnapshot().GetSnapshotId()
		if err == nil && !taken.GetSnapshot().GetReadyToUse() {
			err = errors.New("it is not ready")
		}
		return err
	}))
	made, err := s.MakeSnapshot(s.Context(), namespace, name, claim, source, handle)
	s.Must(err)
	s.Cleanup(func() { s.Must(made.Remove(context.Background())) })
	s.Must(made.Taken(s.Context()))
	return made
}

// claimFrom makes a claim that is to be filled from a VolumeSnapshot.
func (s *scene) claimFrom(claim string, snapshot *lab.Snapshot) error {
	object := lab.Claim(namespace, claim, atOnce, "20Gi")
	object.Spec.DataSource = snapshot.Source()
	return s.MakeClaim(s.Context(), object)
}

func TestSnapshotDeletedDuringUnknownRestoreNoDisk(t *testing.T) {
	for n, c := range []struct {
		what   string
		forced bool
	}{{"and is kept until then", false}, {"and somebody takes its finalizers off", true}} {
		t.Run(c.what, func(t *testing.T) {
			s := newScene(t)
			claim := fmt.Sprintf("restored-%d", n)
			s.claimBound(claim + "-original")
			snap := s.snapshot(claim+"-snapshot", claim+"-original")
			s.Must(snap.Ready(s.Context()))
			h := s.hold(moment{call: "CreateVolume", after: true}, func() error { return s.claimFrom(claim, snap) })
			s.onlyDisk(claim)
			s.Must(snap.Delete(s.Context()))
			finalizers, there, err := snap.Finalizers(s.Context())
			if err != nil || !there || !slices.Contains(finalizers, snapshotFinalizer) {
				t.Errorf("the snapshot is not kept while a volume is made of it: %v, there %v, %v", finalizers, there, err)
			}
			if c.forced {
				s.Must(snap.Unprotect(s.Context()))
			}
			h.release(lose)
			s.Must(s.deleteClaim(s.Context(), claim))
			s.Must(s.await(s.Context(), "the snapshot is let go", limit, func(ctx context.Context) error {
				finalizers, there, err := snap.Finalizers(ctx)
				if err == nil && there {
					err = fmt.Errorf("it has finalizers %v", finalizers)
				}
				return err
			}))
		})
	}
}
