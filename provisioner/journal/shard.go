package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// shard is one ConfigMap.
type shard struct {
	name    string
	entries map[string]string // by key
	bytes   int               // of the entries
	added   int               // of those that came since the last commit
	version string            // as last read or written; empty if the ConfigMap isn't there
	dirty   bool              // is to be written
	stale   time.Time         // since when the ConfigMap has deleted records; zero if it has none
	failed  error             // why the last commit has failed; nil if it hasn't
	avoided time.Time         // until when new records go elsewhere, for a write has failed

	committing   bool         // from begin to endCommit
	waiters      []chan error // for the next write
	writeWaiters []chan error // for the one under way
	checked      time.Time    // when the ConfigMap was made, or its annotations were last read

	saved   map[string]string // what the version holds
	writing map[string]string // what is being written; nil for nothing
	began   time.Time         // when that began
	tried   map[string]string // what a write of unknown outcome would have made it hold; nil for none

	endRequests map[string]*endRequest // that the version has, by key
}

// room is how much more the shard may hold; negative if it holds too much.
func (sh *shard) room() int { return shardBytes - sh.bytes }

// isAvoided says whether new records go elsewhere: a write has failed, or takes long.
func (sh *shard) isAvoided(now time.Time) bool {
	return now.Before(sh.avoided) || sh.writing != nil && now.Sub(sh.began) >= longWrite
}

// size is what the shard's record of the key takes; 0 if it has none.
func (sh *shard) size(key string) int {
	if record, ok := sh.entries[key]; ok {
		return len(key) + len(record)
	}
	return 0
}

// managedByLabel is a label by which the ConfigMaps are found.
const managedByLabel, managedBy = "csi.storage.k8s.io/managed-by", "disk-provisioner"

// excludeLabel is a label by which Velero leaves an object out of a backup: a record is of no use after a restore.
const excludeLabel = "velero.io/exclude-from-backup"

// ErrTakenOver says that another process, which must hold the Lease, writes the journal.
var ErrTakenOver = errors.New("another process writes the journal")

// holds says whether the ConfigMap has the record, and will whatever becomes of
// a write that is under way or whose outcome is unknown.
func (sh *shard) holds(key, record string) bool {
	in := func(entries map[string]string) bool { return entries[key] == record }
	return in(sh.saved) && (sh.writing == nil || in(sh.writing)) && (sh.tried == nil || in(sh.tried))
}

// save writes one shard, and notes if that has failed.
func (s *Store) save(ctx context.Context, sh *shard) {
	ctx, cancel := context.WithTimeout(ctx, CommitTimeout)
	defer cancel()
	err := s.isLost()
	if err == nil {
		err = s.resolve(ctx, sh)
	}
	if err == nil {
		err = s.put(ctx, sh, sh.writing)
	}
	switch {
	case sh.version != "" && apierrors.IsNotFound(err):
		s.noteDeleted(sh)
		err = s.put(ctx, sh, sh.writing)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		// The records are the same if only metadata was written, or if the reply of the write before was lost.
		if err = s.resolve(ctx, sh); err == nil {
			err = s.put(ctx, sh, sh.writing)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sh.failed = nil
	if err != nil {
		sh.dirty, sh.avoided = true, time.Now().Add(avoidTime) // the next commit retries
		sh.failed = fmt.Errorf("the journal can't be written to ConfigMap %s/%s: %w", s.namespace, sh.name, err)
		return
	}
	s.forgetDeleted(sh)
}

// isLost returns an error once another process has written a shard: this one must not
// write any shard then.
func (s *Store) isLost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// forgetDeleted forgets what was deleted from a shard, as far as its ConfigMap
// doesn't hold it, nor will by what is being written. s.mu is held.
func (s *Store) forgetDeleted(sh *shard) {
	maps.DeleteFunc(s.deleted, func(key string, at *shard) bool {
		_, saved := sh.saved[key]
		_, writing := sh.writing[key]
		return at == sh && !saved && !writing
	})
}

// put makes the ConfigMap hold the entries.
func (s *Store) put(ctx context.Context, sh *shard, entries map[string]string) error {
	d := differenceOf(sh.saved, entries)
	s.set(func() { d.annotations = sh.answered(entries) })
	if len(d.changes) == 0 && len(d.annotations) == 0 {
		return nil
	}
	s.commits()
	s.set(func() { sh.tried = entries })
	version, err := s.send(ctx, sh, entries, d)
	if err != nil {
		return err
	}
	s.set(func() {
		if sh.version == "" { // it is new
			sh.checked = time.Now()
		}
		sh.version, sh.saved, sh.tried, sh.avoided = version, entries, nil, time.Time{}
		sh.forgetAnswered(d.annotations)
	})
	return nil
}

// send writes the entries whole, or what differs from the version that the shard
// has, whichever is shorter, and returns the new version. The API server refuses
// it if the ConfigMap has another version by now. Managed fields, which list every
// entry once more, are not kept, for server-side apply is not used: the API server
// notes those of a creation all the same, and the next write drops them.
func (s *Store) send(ctx context.Context, sh *shard, entries map[string]string, d difference) (version string, err error) {
	if sh.version != "" && d.bytes < d.whole {
		version, err = s.patch(ctx, sh, d)
		if !apierrors.IsForbidden(err) { // by the Role of an earlier version, after a rollback
			return version, err
		}
	}
	configMap := &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: sh.name, Namespace: s.namespace, ResourceVersion: sh.version, Labels: map[string]string{managedByLabel: managedBy, excludeLabel: "true"},
			ManagedFields: []metav1.ManagedFieldsEntry{{}},
		},
		Data: entries,
	}
	s.set(func() { configMap.Annotations = sh.openRequests(d.annotations) })
	configMaps := s.client.CoreV1().ConfigMaps(s.namespace)
	if sh.version == "" {
		configMap, err = configMaps.Create(ctx, configMap, metav1.CreateOptions{})
	} else {
		configMap, err = configMaps.Update(ctx, configMap, metav1.UpdateOptions{})
	}
	if err != nil {
		return "", err
	}
	return configMap.ResourceVersion, nil
}

// patch has the answer in metadata alone: the ConfigMap may be large.
func (s *Store) patch(ctx context.Context, sh *shard, d difference) (version string, err error) {
	body, err := d.patch(sh.version)
	if err != nil {
		return "", err
	}
	written, err := s.metadata.Resource(configMaps).Namespace(s.namespace).Patch(ctx, sh.name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return "", err
	}
	return written.ResourceVersion, nil
}

// configMaps is the resource.
var configMaps = v1.SchemeGroupVersion.WithResource("configmaps")

// difference is what makes one set of entries into another.
type difference struct {
	changes map[string]*string // by key; nil for an entry to be deleted
	bytes   int                // of the changes
	whole   int                // of the resulting entries

	annotations []string // to be removed
}

func differenceOf(from, to map[string]string) difference {
	d := difference{changes: map[string]*string{}}
	for key, record := range to {
		d.whole += len(key) + len(record)
		if old, ok := from[key]; !ok || old != record {
			d.changes[key] = &record
			d.bytes += len(key) + len(record)
		}
	}
	for key := range from {
		if _, ok := to[key]; !ok {
			d.changes[key] = nil
			d.bytes += len(key)
		}
	}
	return d
}

// patch returns the difference as a strategic merge patch of that version.
func (d difference) patch(version string) ([]byte, error) {
	meta := map[string]any{"resourceVersion": version, "managedFields": []any{struct{}{}}}
	if len(d.annotations) > 0 {
		gone := map[string]any{}
		for _, name := range d.annotations {
			gone[name] = nil
		}
		meta["annotations"] = gone
	}
	return json.Marshal(map[string]any{"metadata": meta, "data": d.changes})
}

func (s *Store) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// resolve finds out what became of a write that failed: it may have taken effect
// all the same.
func (s *Store) resolve(ctx context.Context, sh *shard) error {
	if sh.tried == nil {
		return nil
	}
	return s.compare(ctx, sh)
}

// compare reads a shard. One that has neither the old nor the new records was written by
// another process: if that holds the Lease, this one must not write any more; if it doesn't,
// what it has changed is mended.
func (s *Store) compare(ctx context.Context, sh *shard) error {
	live := &shard{name: sh.name, entries: map[string]string{}}
	if err := s.read(ctx, live); err != nil {
		return err
	}
	var change Change
	switch {
	case live.version == "" && sh.version != "":
		s.noteDeleted(sh)
		return nil
	case maps.Equal(live.entries, sh.saved), sh.tried != nil && maps.Equal(live.entries, sh.tried):
	default:
		switch err := s.alone(ctx); {
		case errors.Is(err, ErrTakenOver):
			err = fmt.Errorf("%w: it has changed ConfigMap %s/%s", err, s.namespace, sh.name)
			s.set(func() { s.lost = err })
			s.notify(err)
			return err
		case err != nil:
			return fmt.Errorf("somebody has changed ConfigMap %s/%s, and whether another process leads can't be told: %w", s.namespace, sh.name, err)
		}
		s.set(func() { change = s.mend(sh, live.entries) })
	}
	s.set(func() {
		sh.version, sh.saved, sh.tried, sh.checked = live.version, live.entries, nil, live.checked
		sh.noteEndRequests(live.endRequests)
		s.forgetDeleted(sh)
	})
	if change.ConfigMap != "" {
		s.changed(change)
	}
	return nil
}

// mend has the next write of a shard undo what somebody has changed in its ConfigMap, but for records that appeared: what they were
// put for may be needed. s.mu is held.
func (s *Store) mend(sh *shard, live map[string]string) Change {
	change := Change{ConfigMap: sh.name, Appeared: map[string][]byte{}}
	for key, record := range sh.entries {
		switch is, there := live[key]; {
		case there && is != record:
			change.Altered++
		case !there && sh.saved[key] != "":
			change.Removed++
		}
	}
	for key, record := range live {
		_, saved := sh.saved[key]
		_, tried := sh.tried[key]
		if saved || tried || s.shardOf(key) != nil || s.kept[key] != nil {
			continue
		}
		change.Appeared[key] = []byte(record)
		sh.entries[key] = record
		sh.bytes += len(key) + len(record)
		if sh.writing != nil {
			sh.writing[key] = record
		}
	}
	sh.dirty = true
	klog.InfoS("Somebody has changed the journal's ConfigMap; its records are written again",
		"configMap", s.namespace+"/"+sh.name, "removed", change.Removed, "altered", change.Altered, "appeared", len(change.Appeared))
	return change
}

// noteDeleted notes that the shard's ConfigMap isn't there any more. As long as the
// Lease is held no other process writes one, so the whole shard is written again.
func (s *Store) noteDeleted(sh *shard) {
	klog.InfoS("The journal's ConfigMap was deleted; it is written again", "configMap", s.namespace+"/"+sh.name)
	s.set(func() {
		sh.version, sh.saved, sh.tried, sh.dirty = "", nil, nil, true
		sh.noteEndRequests(nil)
	})
}
