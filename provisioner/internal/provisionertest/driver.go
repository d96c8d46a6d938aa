package provisionertest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/topodisk/topodisk/topology"
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

// ScriptedDriver answers CreateVolume calls in turn, the last answer again and again, and records every request.
type ScriptedDriver struct {
	DeletingDriver

	mu      sync.Mutex
	Creates []Answer
	Created []*csi.CreateVolumeRequest
	First   []bool // of Created, whether it was said to be the first call
}

// Answer is what a CreateVolume call returns.
type Answer struct {
	Volume *csi.Volume
	Err    error
}

// Made answers with a volume.
func Made(id string, bytes int64, zone string) Answer {
	return Answer{Volume: &csi.Volume{
		VolumeId: id, CapacityBytes: bytes,
		VolumeContext:      map[string]string{"type": "cloud_essd"},
		AccessibleTopology: []*csi.Topology{{Segments: map[string]string{topology.WellKnownZoneKey: zone}}},
	}}
}

// Refused answers with an error of the code.
func Refused(code codes.Code) Answer { return Answer{Err: status.Error(code, "no")} }

// Unavailable leaves open whether a volume was made.
func Unavailable() Answer { return Answer{Err: status.Error(codes.Unavailable, "lost")} }

// SoldOut answers that zone-a is out of stock.
func SoldOut() Answer {
	return Answer{Err: status.Error(codes.ResourceExhausted, "zone-a is sold out")}
}

// CreateVolume gives the next answer.
func (d *ScriptedDriver) CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest, _ ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sent, _ := metadata.FromOutgoingContext(ctx)
	d.First = append(d.First, slices.Equal(sent.Get("topodisk-first-call"), []string{"true"}))
	d.Created = append(d.Created, proto.Clone(in).(*csi.CreateVolumeRequest))
	if len(d.Creates) == 0 {
		return nil, errors.New("no answer is scripted")
	}
	next := d.Creates[0]
	if len(d.Creates) > 1 {
		d.Creates = d.Creates[1:]
	}
	if next.Err != nil {
		return nil, next.Err
	}
	return &csi.CreateVolumeResponse{Volume: next.Volume}, nil
}

// SetCreates replaces the answers while calls may be under way.
func (d *ScriptedDriver) SetCreates(answers ...Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Creates = answers
}

// LastCreated returns the last request while calls may be under way.
func (d *ScriptedDriver) LastCreated() *csi.CreateVolumeRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Created[len(d.Created)-1]
}

// Calls returns the numbers of CreateVolume and DeleteVolume calls.
func (d *ScriptedDriver) Calls() (creates, deletes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.Created), d.Deletes()
}
