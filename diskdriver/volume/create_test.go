package volume

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/metadata"

	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
	"github.com/topodisk/topodisk/topology"
)

// scripted answers creates one after the other from a list, and reads by name
// with what there is. It serves tables of cases that ECS can't be brought to.
type scripted struct {
	others
	answers []error
	made    disk.Disk
	named   []disk.Disk
	unread  error
	tries   []string
}

func (s *scripted) Create(_ context.Context, _ disk.Spec, try disk.Attempt, token disk.Token) (disk.Disk, error) {
	s.tries = append(s.tries, string(token)+" "+string(try.Zone)+" "+string(try.Category))
	if len(s.tries) > len(s.answers) {
		return s.made, nil
	}
	return disk.Disk{}, s.answers[len(s.tries)-1]
}

func (s *scripted) Named(context.Context, string, bool) ([]disk.Disk, error) {
	return s.named, s.unread
}

const cluster = "c1"

// others are the calls that a test doesn't make.
type others struct{ ECS }

func newTestController(ecs ECS) *Controller {
	config := Config{Owner: disk.Owner{Region: "cn-hangzhou", Cluster: cluster}, TopologyKey: topology.WellKnownZoneKey, Unknown: params.Refuse, IsFinal: func(_ context.Context, err error) bool {
		switch disk.KindOf(err) {
		case disk.Pending, disk.Throttled, disk.Unreachable, disk.UnknownOutcome:
			return false
		}
		return true
	}}
	return NewController(config, ecs, nil)
}

func scriptedController(s *scripted) *Controller {
	return newTestController(s)
}

// firstCall is the context of a caller that can prove that there is no disk.
func firstCall(t *testing.T) context.Context {
	return metadata.NewIncomingContext(t.Context(), metadata.Pairs(creation.FirstCallKey, "true"))
}

// inZones asks for 20 GiB of cloud_ssd or cloud_auto.
func inZones(zones ...string) *csi.CreateVolumeRequest {
	terms := zoneTerms(zones, []string{topology.WellKnownZoneKey})
	return &csi.CreateVolumeRequest{
		Name: "disk-1", Parameters: map[string]string{"type": "cloud_ssd,cloud_auto"},
		CapacityRange: &csi.CapacityRange{RequiredBytes: 20 << 30},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: terms, Preferred: terms},
	}
}

func TestOnlyOutOfStockAndUnfitLeadOn(t *testing.T) {
	for kind := disk.Kind(0); !strings.HasPrefix(kind.String(), "kind "); kind++ {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{answers: []error{disk.Errorf(kind, "ECS says no")}, made: disk.Disk{ID: "d-1", Zone: "cn-hangzhou-a", Category: "cloud_auto", Size: 20}}
			_, err := scriptedController(s).CreateVolume(firstCall(t), inZones("a", "b"))
			tries, want := 1, kind
			switch kind {
			case disk.OutOfStock, disk.Unfit: // of the first type
				tries = 2
			case disk.Mismatch, disk.NotFound:
				want = disk.Pending // the token is used up, and there is no disk of the name
			}
			if len(s.tries) != tries {
				t.Errorf("%v: attempts %q, want %d", kind, s.tries, tries)
			}
			if tries == 2 && err != nil || tries == 1 && disk.KindOf(err) != want {
				t.Errorf("%v became %v", kind, err)
			}
		})
	}
}

func TestUnknownOutcomeMakesTheNextCallLookByName(t *testing.T) {
	for kind := disk.Kind(0); !strings.HasPrefix(kind.String(), "kind "); kind++ {
		if kind == disk.OutOfStock || kind == disk.Unfit { // the next type is made
			continue
		}
		s := &scripted{answers: []error{disk.Errorf(kind, "ECS says no")}}
		c := scriptedController(s)
		_, _ = c.CreateVolume(firstCall(t), inZones("a"))
		s.unread = errors.New("looked")
		_, err := c.CreateVolume(t.Context(), inZones("a"))
		looked := err != nil && strings.Contains(err.Error(), "looked")
		if looked != (creation.AnswerOf(disk.Errorf(kind, "")) != creation.Refused) {
			t.Errorf("%v: the next call looked by name: %v (%v)", kind, looked, err)
		}
		if looked && disk.KindOf(err) != disk.UnknownOutcome {
			t.Errorf("%v: a failed look is %v, want an unknown outcome", kind, disk.KindOf(err))
		}
	}
}

func TestUsedTokenIsReplacedAtOnceOnlyAfterSoldOut(t *testing.T) {
	sold, used := disk.Errorf(disk.OutOfStock, "sold out"), disk.Errorf(disk.Mismatch, "token used")
	lost := disk.Errorf(disk.UnknownOutcome, "lost")
	for _, row := range []struct {
		name    string
		answers []error
		calls   int
		want    string
		kind    disk.Kind
	}{
		{"out of stock, used up", []error{sold, used}, 1, "n:disk-1 cn-hangzhou-a cloud_ssd; n:disk-1 cn-hangzhou-a cloud_auto; disk-1#2 cn-hangzhou-a cloud_auto", 0},
		{"used up", []error{used}, 1, "n:disk-1 cn-hangzhou-a cloud_ssd", disk.Pending},
		{"used up twice", []error{sold, used, used}, 1, "n:disk-1 cn-hangzhou-a cloud_ssd; n:disk-1 cn-hangzhou-a cloud_auto; disk-1#2 cn-hangzhou-a cloud_auto", disk.Pending},
		{"out of stock, lost, used up", []error{sold, lost, used}, 2, "n:disk-1 cn-hangzhou-a cloud_ssd; n:disk-1 cn-hangzhou-a cloud_auto; n:disk-1 cn-hangzhou-a cloud_ssd", disk.Pending},
		{"out of stock, throttled, used up", []error{sold, disk.Errorf(disk.Throttled, "slow down"), used}, 2, "n:disk-1 cn-hangzhou-a cloud_ssd; n:disk-1 cn-hangzhou-a cloud_auto; n:disk-1 cn-hangzhou-a cloud_ssd; disk-1#2 cn-hangzhou-a cloud_ssd", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := &scripted{answers: row.answers, made: disk.Disk{ID: "d-1", Zone: "cn-hangzhou-a", Category: "cloud_auto", Size: 20}}
			c := scriptedController(s)
			var err error
			for range row.calls {
				_, err = c.CreateVolume(firstCall(t), inZones("a"))
			}
			if got := strings.Join(s.tries, "; "); got != row.want {
				t.Errorf("attempts %s, want %s", got, row.want)
			}
			if row.kind == 0 && err != nil || row.kind != 0 && disk.KindOf(err) != row.kind {
				t.Errorf("got %v, want %v", err, row.kind)
			}
		})
	}
}

func TestTwoDisksOfOneNameAreNamedAndNotChosenFrom(t *testing.T) {
	s := &scripted{answers: []error{disk.Errorf(disk.Mismatch, "token used")}, named: []disk.Disk{{ID: "d-1"}, {ID: "d-2"}}}
	_, err := scriptedController(s).CreateVolume(t.Context(), inZones("a"))
	if disk.KindOf(err) != disk.Mismatch || !strings.Contains(err.Error(), "2 disks carry the name of this volume: d-1, d-2") {
		t.Errorf("got %v", err)
	}
}

func TestADiskThatIsNotTheOneAskedForIsNoSuccess(t *testing.T) {
	s := &scripted{made: disk.Disk{ID: "d-1", Zone: "cn-hangzhou-c", Category: "cloud_ssd", Size: 20}}
	_, err := scriptedController(s).CreateVolume(t.Context(), inZones("a"))
	if disk.KindOf(err) != disk.Mismatch || !strings.Contains(err.Error(), "d-1: the disk has zone cn-hangzhou-c; asked for is cn-hangzhou-a") {
		t.Errorf("got %v", err)
	}
}

func TestWantOfStockAfterADoubtfulCallIsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sold := disk.Errorf(disk.OutOfStock, "sold out")
		s := &scripted{answers: []error{disk.Errorf(disk.UnknownOutcome, "lost"), sold, sold, sold, sold, sold, sold}}
		c := scriptedController(s)
		create := func() disk.Kind {
			_, err := c.CreateVolume(t.Context(), inZones("a"))
			return disk.KindOf(err)
		}
		if got := create(); got != disk.UnknownOutcome {
			t.Fatalf("the doubtful call: %v", got)
		}
		if got := create(); got != disk.Pending {
			t.Errorf("right after it: %v, want %v", got, disk.Pending)
		}
		time.Sleep(creation.Visible + creation.Travel)
		if got := create(); got != disk.OutOfStock {
			t.Errorf("when a disk would have shown: %v, want %v", got, disk.OutOfStock)
		}
	})
}

func TestWantOfStockAfterAnAnswerThatMayBeLostIsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := disk.Disk{ID: "d-1", Zone: "cn-hangzhou-a", Category: "cloud_ssd", Size: 20, Tags: disk.Tags{disk.OwnerTag: cluster}}
		sold := disk.Errorf(disk.OutOfStock, "sold out")
		s := &scripted{made: made}
		c := scriptedController(s)
		create := func() (string, disk.Kind) {
			response, err := c.CreateVolume(t.Context(), inZones("a"))
			return response.GetVolume().GetVolumeId(), disk.KindOf(err)
		}
		if id, _ := create(); id != "d-1" {
			t.Fatalf("got %s", id)
		}
		s.answers, s.tries = []error{sold, sold, sold, sold, sold, sold}, nil // ECS looks at its stock first
		if _, kind := create(); kind != disk.Pending {
			t.Errorf("while the disk may not show yet: %v, want %v", kind, disk.Pending)
		}
		s.named = []disk.Disk{made}
		if id, kind := create(); id != "d-1" {
			t.Errorf("when it shows: %s, %v", id, kind)
		}
		s.named, s.answers, s.tries = nil, []error{sold, sold, sold, sold}, nil
		time.Sleep(creation.Visible + creation.Travel)
		if _, kind := create(); kind != disk.OutOfStock {
			t.Errorf("when it has been deleted long since: %v, want %v", kind, disk.OutOfStock)
		}
	})
}

func TestADoubtfulCallsDiskThatShowsUpIsTheVolume(t *testing.T) {
	sold := disk.Errorf(disk.OutOfStock, "sold out")
	s := &scripted{answers: []error{disk.Errorf(disk.UnknownOutcome, "lost"), sold, sold}}
	c := scriptedController(s)
	_, _ = c.CreateVolume(t.Context(), inZones("a"))
	_, err := c.CreateVolume(t.Context(), inZones("a"))
	if disk.KindOf(err) != disk.Pending {
		t.Fatalf("before it shows: %v", err)
	}
	s.named = []disk.Disk{{ID: "d-1", Zone: "cn-hangzhou-a", Category: "cloud_ssd", Size: 20, Tags: disk.Tags{disk.OwnerTag: cluster}}}
	response, err := c.CreateVolume(t.Context(), inZones("a"))
	if err != nil || response.Volume.VolumeId != "d-1" {
		t.Errorf("got %v, %v", response, err)
	}
}

// zoneTerms returns a term for each zone, under all the keys.
func zoneTerms(zones, keys []string) []*csi.Topology {
	var terms []*csi.Topology
	for _, zone := range zones {
		segments := map[string]string{}
		for _, key := range keys {
			segments[key] = "cn-hangzhou-" + zone
		}
		terms = append(terms, &csi.Topology{Segments: segments})
	}
	return terms
}
