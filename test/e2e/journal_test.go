//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/topodisk/topodisk/provisioner/journal"
)

// journalOf is a journal of its own on the lab's API server, and what it sends there.
type journalOf struct {
	*scene
	*journal.Store
	prefix   string
	sent     atomic.Int64 // bytes of writes
	received atomic.Int64 // bytes of the answers
	lost     chan error   // that somebody else writes
}

func (s *scene) openJournal(prefix string) *journalOf {
	s.Helper()
	j := &journalOf{scene: s, prefix: prefix, lost: make(chan error, 1)}
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	s.Must(err)
	config.ContentType, config.QPS = "application/vnd.kubernetes.protobuf", -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counted{j, next} })
	client, err := kubernetes.NewForConfig(rest.CopyConfig(config))
	s.Must(err)
	objects, err := metadata.NewForConfig(config)
	s.Must(err)
	j.Store = journal.New(client, objects, s.Namespace, prefix, func() {})
	_, err = j.Load(s.Context())
	s.Must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.Run(ctx, func(err error) { j.lost <- err })
	}()
	s.Cleanup(func() { cancel(); <-done })
	return j
}

// counted counts the bytes of writes and of their answers.
type counted struct {
	j    *journalOf
	next http.RoundTripper
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	if err == nil && r.Method != http.MethodGet {
		c.j.sent.Add(r.ContentLength)
		response.Body = &countedBody{response.Body, &c.j.received}
	}
	return response, err
}

type countedBody struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(int64(n))
	return n, err
}

// record is as long as that of a claim is.
func (j *journalOf) put(n int) {
	j.Must(j.Put(j.Context(), fmt.Sprintf("key-%d", n), fmt.Appendf(nil, `{"record":%d,"request":%q}`, n, strings.Repeat("x", 800))))
}

func (j *journalOf) putAll(records int) {
	var all sync.WaitGroup
	for n := range records {
		all.Go(func() { j.put(n) })
	}
	all.Wait()
}

// shard returns the journal's first ConfigMap.
func (j *journalOf) shard() *corev1.ConfigMap {
	j.Helper()
	shard, err := j.Client.CoreV1().ConfigMaps(j.Namespace).Get(j.Context(), j.prefix+"-0", metav1.GetOptions{})
	j.Must(err)
	return shard
}

// TestJournalBytesPerRecord writes records one by one, while so many others are under way.
func TestJournalBytesPerRecord(t *testing.T) {
	s := newScene(t)
	for _, others := range []int{1, 100, 4000} {
		j := s.openJournal(fmt.Sprintf("journal-%d", others))
		j.put(0) // the shard is there, and small: it gets some of the others
		j.putAll(others)
		const records = 30
		sent, received, begin := j.sent.Load(), j.received.Load(), time.Now()
		for n := others; n < others+records; n++ {
			j.put(n)
			j.Delete(fmt.Sprintf("key-%d", n))
		}
		took := time.Since(begin)
		for n := others; n < others+records; n++ {
			s.Must(j.Flush(s.Context(), fmt.Sprintf("key-%d", n)))
		}
		each := (j.sent.Load() - sent) / records
		t.Logf("%d under way: %d bytes sent and %d received for a record, %s", others, each, (j.received.Load()-received)/records, took/records)
		if each > 2<<10 {
			t.Errorf("with %d under way %d bytes are written for a record, want 2 KiB at most", others, each)
		}
		if shard := j.shard(); len(shard.ManagedFields) > 0 || shard.Labels["csi.storage.k8s.io/managed-by"] != "disk-provisioner" {
			t.Errorf("with %d under way the shard has %d managed fields and labels %v", others, len(shard.ManagedFields), shard.Labels)
		}
		kept, err := s.openJournal(j.prefix).Load(s.Context())
		if s.Must(err); len(kept) != others {
			t.Errorf("%d records are left, want %d", len(kept), others)
		}
	}
}

// TestJournalNoticesAnotherWriter has somebody else write a shard, and then delete it, between two patches.
func TestJournalNoticesAnotherWriter(t *testing.T) {
	s := newScene(t)
	j := s.openJournal("journal")
	j.putAll(5)
	s.Must(s.Client.CoreV1().ConfigMaps(s.Namespace).Delete(s.Context(), "journal-0", metav1.DeleteOptions{}))
	j.put(5)
	if n := len(j.shard().Data); n != 6 {
		t.Errorf("a shard that was deleted has %d records again, want 6", n)
	}
	other := j.shard()
	other.Data["key-other"] = "{}"
	_, err := s.Client.CoreV1().ConfigMaps(s.Namespace).Update(s.Context(), other, metav1.UpdateOptions{})
	s.Must(err)
	if err := j.Put(s.Context(), "key-6", []byte("{}")); err == nil {
		t.Error("a record was written over another writer's version")
	}
	if err := j.Put(s.Context(), "key-6", []byte("{}")); !errors.Is(err, journal.ErrTakenOver) {
		t.Errorf("the next Put returns %v", err)
	}
	if err := <-j.lost; !errors.Is(err, journal.ErrTakenOver) {
		t.Error(err)
	}
	if data := j.shard().Data; len(data) != 7 || data["key-other"] != "{}" {
		t.Errorf("the shard has %d records, want those of both", len(data))
	}
}
