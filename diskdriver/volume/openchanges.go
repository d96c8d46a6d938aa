package volume

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/internal/deadline"
	"github.com/topodisk/topodisk/internal/sleep"
)

// openChanges are the changes of disks that ECS may yet get, for a call of this process has no answer: one that arrives after another change
// was answered would undo that.
type openChanges struct {
	mu     sync.Mutex
	byDisk map[disk.ID]openChange
}

// openChange is one of them. Parameters is what was asked for, as text.
type openChange struct {
	parameters string
	until      time.Time
}

// note notes how a change has ended.
func (o *openChanges) note(id disk.ID, parameters string, err error) {
	if disk.KindOf(err) != disk.UnknownOutcome {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for other, open := range o.byDisk {
		if !now.Before(open.until) {
			delete(o.byDisk, other)
		}
	}
	o.byDisk[id] = openChange{parameters, now.Add(disk.RequestLifetime)}
}

// await waits until no other change of the disk can arrive any more. Pending: the caller's time is over before.
func (o *openChanges) await(ctx context.Context, id disk.ID, parameters string) error {
	o.mu.Lock()
	open := o.byDisk[id]
	o.mu.Unlock()
	wait := time.Until(open.until)
	if wait <= 0 || open.parameters == parameters {
		return nil
	}
	limited, cancel := deadline.BeforeAnswer(ctx)
	defer cancel()
	if sleep.For(limited, wait) != nil {
		return &disk.Error{Disk: id, Kind: disk.Pending, Err: fmt.Errorf("another change of the disk has no answer, and may yet reach ECS for %s", wait.Round(time.Second))}
	}
	return nil
}
