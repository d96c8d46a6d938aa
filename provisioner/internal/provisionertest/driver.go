package provisionertest

import (
	"context"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/tools/record"
)

// DeletingDriver answers DeleteVolume calls in turn, in the end with success, and
// records every request.
type DeletingDriver struct {
	OnDelete func()

	mu      sync.Mutex
	Answers []error
	Deleted []*csi.DeleteVolumeRequest
}

// DeleteVolume gives the next answer.
func (d *DeletingDriver) DeleteVolume(_ context.Context, in *csi.DeleteVolumeRequest, _ ...grpc.CallOption) (*csi.DeleteVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Deleted = append(d.Deleted, proto.Clone(in).(*csi.DeleteVolumeRequest))
	if d.OnDelete != nil {
		d.OnDelete()
	}
	if len(d.Answers) > 0 {
		err := d.Answers[0]
		d.Answers = d.Answers[1:]
		if err != nil {
			return nil, err
		}
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// Deletes returns the number of DeleteVolume calls.
func (d *DeletingDriver) Deletes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.Deleted)
}

// Events returns the events that were recorded since the last call.
func Events(recorder *record.FakeRecorder) []string {
	var events []string
	for {
		select {
		case event := <-recorder.Events:
			events = append(events, event)
		default:
			return events
		}
	}
}

// Must fails the test at an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
