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
	stale   time.Time         // since when the ConfigMap has lazily deleted records; zero if it has none
	failed  error             // why the last commit has failed; nil if it hasn't
	avoided time.Time         // until when new records go elsewhere, for a write has failed

	saved   map[string]string // what the version holds
	writing map[string]string // what is being written; nil for nothing
	tried   map[string]string // what a write of unknown outcome would have made it hold; nil for none

	endRequests map[string]string // that the version has: reasons by key
	reported    map[string]bool   // keys of those passed to OnEndRequest
	rejected    []string          // keys of those that are to be removed
}

// shardWaiter waits for a commit of one shard.
type shardWaiter struct {
	shard *shard
	done  chan error
}

// managedByLabel is a label by which the ConfigMaps are found.
const managedByLabel, managedBy = "csi.storage.k8s.io/managed-by", "disk-provisioner"

// ErrTakenOver says that another process, which must hold the Lease, writes the journal.
var ErrTakenOver = errors.New("another process writes the journal")

// holds says whether the ConfigMap has the record, and will whatever becomes of
// a write that is under way or whose outcome is unknown.
func (h *shard) holds(key, record string) bool {
	in := func(entries map[string]string) bool { return entries[key] == record }
	return in(h.saved) && (h.writing == nil || in(h.writing)) && (h.tried == nil || in(h.tried))
}

// save writes one shard, and notes if that has failed.
func (s *Store) save(ctx context.Context, h *shard) {
	ctx, cancel := context.WithTimeout(ctx, CommitTimeout)
	defer cancel()
	err := s.isLost()
	if err == nil {
		err = s.resolve(ctx, h)
	}
	if err == nil {
		err = s.put(ctx, h, h.writing)
	}
	switch {
	case h.version != "" && apierrors.IsNotFound(err):
		s.noteDeleted(h)
		err = s.put(ctx, h, h.writing)
	case apierrors.IsConflict(err): // the records are the same if only metadata was written
		if err = s.resolve(ctx, h); err == nil {
			err = s.put(ctx, h, h.writing)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.failed = nil
	if err != nil {
		h.dirty, h.avoided = true, time.Now().Add(avoidTime) // the next commit retries
		h.failed = fmt.Errorf("the journal can't be written to ConfigMap %s/%s: %w", s.namespace, h.name, err)
		return
	}
	s.forgetDeleted(h)
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
func (s *Store) forgetDeleted(h *shard) {
	maps.DeleteFunc(s.deleted, func(key string, at *shard) bool {
		_, saved := h.saved[key]
		_, writing := h.writing[key]
		return at == h && !saved && !writing
	})
}

// put makes the ConfigMap hold the entries.
func (s *Store) put(ctx context.Context, h *shard, entries map[string]string) error {
	d := differenceOf(h.saved, entries)
	s.set(func() { d.annotations = h.answered(entries) })
	if len(d.changes) == 0 && len(d.annotations) == 0 {
		return nil
	}
	s.commits()
	s.set(func() { h.tried = entries })
	version, err := s.send(ctx, h, entries, d)
	if err != nil {
		return err
	}
	s.set(func() {
		h.version, h.saved, h.tried, h.avoided = version, entries, nil, time.Time{}
		h.forgetAnswered(d.annotations)
	})
	return nil
}

// send writes the entries whole, or what differs from the version that the shard
// has, whichever is shorter, and returns the new version. The API server refuses
// it if the ConfigMap has another version by now. Managed fields, which list every
// entry once more, are not kept, for server-side apply is not used: the API server
// notes those of a creation all the same, and the next write drops them.
func (s *Store) send(ctx context.Context, h *shard, entries map[string]string, d difference) (version string, err error) {
	if h.version != "" && d.bytes < d.whole {
		version, err = s.patch(ctx, h, d)
		if !apierrors.IsForbidden(err) { // by the Role of an earlier version, after a rollback
			return version, err
		}
	}
	configMap := &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: h.name, Namespace: s.namespace, ResourceVersion: h.version, Labels: map[string]string{managedByLabel: managedBy},
			ManagedFields: []metav1.ManagedFieldsEntry{{}},
		},
		Data: entries,
	}
	s.set(func() { configMap.Annotations = h.openRequests(d.annotations) })
	configMaps := s.client.CoreV1().ConfigMaps(s.namespace)
	if h.version == "" {
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
func (s *Store) patch(ctx context.Context, h *shard, d difference) (version string, err error) {
	body, err := d.patch(h.version)
	if err != nil {
		return "", err
	}
	written, err := s.metadata.Resource(configMaps).Namespace(s.namespace).Patch(ctx, h.name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
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
// all the same. A shard that has neither the old nor the new records was written by
// another process, which must hold the Lease.
func (s *Store) resolve(ctx context.Context, h *shard) error {
	if h.tried == nil {
		return nil
	}
	live := &shard{name: h.name, entries: map[string]string{}}
	if err := s.read(ctx, live); err != nil {
		return err
	}
	switch {
	case live.version == "" && h.version != "":
		s.noteDeleted(h)
		return nil
	case !maps.Equal(live.entries, h.tried) && !maps.Equal(live.entries, h.saved):
		err := fmt.Errorf("%w: it has changed ConfigMap %s/%s", ErrTakenOver, s.namespace, h.name)
		s.set(func() { s.lost = err })
		s.notify(err)
		return err
	}
	s.set(func() {
		h.version, h.saved, h.tried = live.version, live.entries, nil
		h.noteEndRequests(live.endRequests)
		s.forgetDeleted(h)
	})
	return nil
}

// noteDeleted notes that the shard's ConfigMap isn't there any more. As long as the
// Lease is held no other process writes one, so the whole shard is written again.
func (s *Store) noteDeleted(h *shard) {
	klog.InfoS("The journal's ConfigMap was deleted; it is written again", "configMap", s.namespace+"/"+h.name)
	s.set(func() {
		h.version, h.saved, h.tried, h.dirty = "", nil, nil, true
		h.noteEndRequests(nil)
	})
}
