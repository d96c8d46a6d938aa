package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// endAnnotation is the prefix of the annotation of a shard by which a process that does
// not hold the Lease requests the end of a record. The record's key follows; the value
// is the reason. Other metadata of a shard is ignored.
const endAnnotation = "journal.topodisk.io/end."

// ErrNoRecord says that the journal has no record of the key.
var ErrNoRecord = errors.New("the journal has no such record")

// endRequest is a request to end a record.
type endRequest struct {
	reason   string
	reported bool // to OnEndRequest
	rejected bool // it is to be removed, and its record stays
}

// endRequestsOf returns a ConfigMap's requests, by key.
func endRequestsOf(annotations map[string]string) map[string]*endRequest {
	requests := map[string]*endRequest{}
	for name, reason := range annotations {
		if key, ok := strings.CutPrefix(name, endAnnotation); ok {
			requests[key] = &endRequest{reason: reason}
		}
	}
	return requests
}

// OnEndRequest sets what Run calls for each request to end a record, which is answered by
// Delete or RejectEnd, at once or later. It must be called before Run.
func (s *Store) OnEndRequest(f func(key, reason string)) { s.endRequested = f }

// EndRequest returns the reason of a request to end a record, nothing if there is none.
func (s *Store) EndRequest(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh := s.find(key); sh != nil {
		if request := sh.endRequests[key]; request != nil && !request.rejected {
			return request.reason
		}
	}
	return ""
}

// RejectEnd removes a request; its record stays.
func (s *Store) RejectEnd(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.shards {
		if request := sh.endRequests[key]; request != nil {
			request.rejected, sh.dirty = true, true
		}
	}
}

// noteEndRequests records the requests of a shard's ConfigMap. s.mu is held.
func (sh *shard) noteEndRequests(requests map[string]*endRequest) {
	for key, request := range requests {
		if known := sh.endRequests[key]; known != nil {
			request.reported, request.rejected = known.reported, known.rejected
		}
		if _, ok := sh.entries[key]; !ok {
			sh.dirty = true // the request is to be removed
		}
	}
	sh.endRequests = requests
}

// answered returns the annotations of requests that were answered, once the shard
// has these entries. s.mu is held.
func (sh *shard) answered(entries map[string]string) (annotations []string) {
	for key, request := range sh.endRequests {
		if _, ok := entries[key]; !ok || request.rejected {
			annotations = append(annotations, endAnnotation+key)
		}
	}
	return annotations
}

// openRequests are the annotations of the others.
func (sh *shard) openRequests(answered []string) map[string]string {
	open := map[string]string{}
	for key, request := range sh.endRequests {
		open[endAnnotation+key] = request.reason
	}
	for _, name := range answered {
		delete(open, name)
	}
	return open
}

// forgetAnswered forgets requests whose annotations are gone. s.mu is held.
func (sh *shard) forgetAnswered(annotations []string) {
	for _, name := range annotations {
		delete(sh.endRequests, strings.TrimPrefix(name, endAnnotation))
	}
}

// notifyEndRequests passes each request to OnEndRequest once.
func (s *Store) notifyEndRequests() {
	for key, reason := range s.newEndRequests() {
		s.endRequested(key, reason)
	}
}

func (s *Store) newEndRequests() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending := map[string]string{}
	for _, sh := range s.shards {
		for key, request := range sh.endRequests {
			if _, ok := sh.entries[key]; ok && !request.reported {
				request.reported, pending[key] = true, request.reason
			}
		}
	}
	return pending
}

// Record returns the ConfigMap of a record that Load has read, and the reason of a request
// to end it, if there is one.
func (s *Store) Record(key string) (configMap, endReason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.shards {
		if _, ok := sh.entries[key]; !ok {
			continue
		}
		if request := sh.endRequests[key]; request != nil {
			endReason = request.reason
		}
		return sh.name, endReason
	}
	return "", ""
}

// RequestEnd asks the holder of the Lease to end a record that Load has read.
func (s *Store) RequestEnd(ctx context.Context, key, reason string) error {
	name, _ := s.Record(key)
	if name == "" {
		return ErrNoRecord
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{endAnnotation + key: reason}}})
	if err != nil {
		return err
	}
	if _, err := s.client.CoreV1().ConfigMaps(s.namespace).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("the request can't be written to ConfigMap %s/%s: %w", s.namespace, name, err)
	}
	return nil
}
