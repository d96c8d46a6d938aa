//go:build e2e

package crash

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

// exchange is a call to the driver that changes something, with its answer.
type exchange struct {
	provisioner int    // who called, in the order of their starts
	call        string // CreateVolume or DeleteVolume
	volume      string // the name, or of a deletion the ID
	begun       time.Time
	over        bool // the provisioner has its answer, or never will
	answered    bool // by the driver, whether or not the provisioner heard of it
	at          time.Time
	code        codes.Code
}

// final says whether csi-provisioner takes an answer to CreateVolume for the end of the matter: checkError in its
// pkg/controller/controller.go.
func (e *exchange) final() bool {
	return e.answered && !slices.Contains([]codes.Code{codes.OK, codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Aborted}, e.code)
}

// brokenPromise is what the driver has said and what is not so.
type brokenPromise []string

func (b brokenPromise) Error() string {
	return fmt.Sprintf("the driver has broken a promise: %q", []string(b))
}

// ledger has all exchanges.
type ledger struct {
	simulator *simulator.Client // what the driver says is held against; nil: it isn't

	mu           sync.Mutex
	provisioners int // that were started
	exchanges    []*exchange
	broken       brokenPromise
}

// nextProvisioner has the exchanges from now on be those of another provisioner.
func (l *ledger) nextProvisioner() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.provisioners++
}

// running is the provisioner that was started last.
func (l *ledger) running() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.provisioners
}

// begin notes a call by its request's wire form; nil for one that changes nothing.
func (l *ledger) begin(call string, request []byte) (*exchange, error) {
	var volume string
	switch call {
	case "CreateVolume":
		var r csi.CreateVolumeRequest
		if err := proto.Unmarshal(request, &r); err != nil {
			return nil, err
		}
		volume = r.Name
	case "DeleteVolume":
		var r csi.DeleteVolumeRequest
		if err := proto.Unmarshal(request, &r); err != nil {
			return nil, err
		}
		volume = r.VolumeId
	default:
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &exchange{provisioner: l.provisioners, call: call, volume: volume, begun: time.Now()}
	l.exchanges = append(l.exchanges, e)
	return e, nil
}

// end notes that a call is over for the provisioner.
func (l *ledger) end(e *exchange) {
	if e == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.over = true
}

// answer notes what the driver says, and holds it against what is so in ECS at this moment: after a final code to
// CreateVolume there is no disk of that name, and after the OK to DeleteVolume the disk is gone.
func (l *ledger) answer(e *exchange, code codes.Code) {
	if e == nil {
		return
	}
	var state ecssim.State
	var err error
	if l.simulator != nil {
		state, err = l.simulator.State(context.Background())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.answered, e.at, e.code = true, time.Now(), code
	if err != nil {
		l.broken = append(l.broken, fmt.Sprintf("ECS can't be asked: %v", err))
	}
	for _, d := range state.Disks {
		switch {
		case e.call == "CreateVolume" && e.final() && d.Tags[disk.VolumeNameTag] == e.volume:
			l.broken = append(l.broken, fmt.Sprintf("CreateVolume of %s was answered %s, which is final, and disk %s of that name exists", e.volume, code, d.ID))
		case e.call == "DeleteVolume" && code == codes.OK && d.ID == e.volume:
			l.broken = append(l.broken, fmt.Sprintf("DeleteVolume of %s was answered OK, and the disk is %s", d.ID, d.Status))
		}
	}
}

// isKept says whether the driver has kept its promises since the last call of kept.
func (l *ledger) isKept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.broken) == 0
}

// idle is an error while a call is under way.
func (l *ledger) idle() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.exchanges {
		if !e.over {
			return fmt.Errorf("%s of %s is under way", e.call, e.volume)
		}
	}
	return nil
}

// since counts the calls of CreateVolume from then on, and those of them that the driver has answered with a volume.
func (l *ledger) since(then time.Time) (asked, ok int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.exchanges {
		if e.call != "CreateVolume" || e.begun.Before(then) {
			continue
		}
		asked++
		if e.answered && e.code == codes.OK {
			ok++
		}
	}
	return asked, ok
}

// kept is a brokenPromise if the driver has broken one since the last call of it. calls are ECS's: no disk comes to be
// after a final code, but for a later call of its name.
func (l *ledger) kept(calls []ecssim.Call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	broken := l.broken
	l.broken = nil
	for _, c := range calls {
		name := tagOf(c, disk.VolumeNameTag)
		if c.Action != "CreateDisk" || c.Code != "" || c.Disk == "" || name == "" {
			continue
		}
		var last *exchange // that had begun by then
		for _, e := range l.exchanges {
			if e.call == "CreateVolume" && e.volume == name && e.begun.Before(c.Time) {
				last = e
			}
		}
		if last != nil && last.final() && last.at.Before(c.Time) {
			broken = append(broken, fmt.Sprintf("CreateVolume of %s was answered %s, which is final, and %s later disk %s of that name was made", name, last.code, c.Time.Sub(last.at), c.Disk))
		}
	}
	if len(broken) > 0 {
		return broken
	}
	return nil
}

// creates are the calls for a volume of that name.
func (l *ledger) creates(name string) []exchange {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []exchange
	for _, e := range l.exchanges {
		if e.call == "CreateVolume" && e.volume == name {
			all = append(all, *e)
		}
	}
	return all
}
