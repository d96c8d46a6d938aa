package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/topodisk/topodisk/test/lab"
)

// batch is a number of VolumeAttachments that are made at once.
type batch struct {
	label string
	names []string
	node  func(i int) string
	first int // volume
}

func (q *attachQueue) batch(node string, first, n int) batch {
	q.batches++
	b := batch{label: fmt.Sprintf("batch-%d", q.batches), first: first, node: func(i int) string { return fmt.Sprintf("node-%s%d", node, i/disksPerInstance) }}
	for i := range n {
		b.names = append(b.names, fmt.Sprintf("va-%s-%d", b.label, i))
	}
	return b
}

const batchLabel = "batch"

func (b batch) attachment(i int) *storagev1.VolumeAttachment {
	volume := queueVolume(b.first + i)
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: b.names[i], Labels: map[string]string{batchLabel: b.label}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: lab.DriverName, NodeName: b.node(i),
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}
}

// attach makes the VolumeAttachments and returns how long each took to be attached.
func (q *attachQueue) attach(ctx context.Context, b batch) (waits, error) {
	return q.timed(ctx, b, func(i int) error {
		_, err := q.Client.StorageV1().VolumeAttachments().Create(ctx, b.attachment(i), metav1.CreateOptions{})
		return err
	}, func(va *storagev1.VolumeAttachment) bool { return va != nil && va.Status.Attached })
}

// detach deletes the VolumeAttachments and returns how long each took to be gone.
func (q *attachQueue) detach(ctx context.Context, b batch) (waits, error) {
	return q.timed(ctx, b, func(i int) error { return q.remove(ctx, b, i) }, func(va *storagev1.VolumeAttachment) bool { return va == nil })
}

func (q *attachQueue) remove(ctx context.Context, b batch, i int) error {
	return q.Client.StorageV1().VolumeAttachments().Delete(ctx, b.names[i], metav1.DeleteOptions{})
}

// timed asks for something of all VolumeAttachments of a batch, and watches until all are so; one that is gone is nil.
func (q *attachQueue) timed(ctx context.Context, b batch, ask func(i int) error, is func(*storagev1.VolumeAttachment) bool) (waits, error) {
	ctx, cancel := context.WithTimeout(ctx, q.scale.limit)
	defer cancel()
	done := map[string]time.Time{}
	note := func(name string, va *storagev1.VolumeAttachment) {
		if _, before := done[name]; !before && is(va) {
			done[name] = time.Now()
		}
	}
	version, err := q.list(ctx, b, note)
	if err != nil {
		return nil, err
	}
	asked, asking := make([]time.Time, len(b.names)), make(chan error, 1)
	go func() {
		asking <- each(len(b.names), func(i int) error {
			asked[i] = time.Now()
			return ask(i)
		})
	}()
	for len(done) < len(b.names) {
		if err := q.watch(ctx, b, version, func(name string, va *storagev1.VolumeAttachment) bool {
			note(name, va)
			return len(done) == len(b.names)
		}); err != nil && ctx.Err() != nil {
			return nil, fmt.Errorf("%d of %d after %s: %w", len(done), len(b.names), q.scale.limit, err)
		}
		if version, err = q.list(ctx, b, note); err != nil {
			return nil, err
		}
	}
	if err := <-asking; err != nil {
		return nil, err
	}
	var w waits
	for i, name := range b.names {
		w = append(w, done[name].Sub(asked[i]))
	}
	return w, nil
}

// list tells of each VolumeAttachment of a batch how it is, and returns the version of the list.
func (q *attachQueue) list(ctx context.Context, b batch, tell func(name string, va *storagev1.VolumeAttachment)) (version string, err error) {
	list, err := q.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{LabelSelector: batchLabel + "=" + b.label})
	if err != nil {
		return "", err
	}
	there := map[string]*storagev1.VolumeAttachment{}
	for i := range list.Items {
		there[list.Items[i].Name] = &list.Items[i]
	}
	for _, name := range b.names {
		tell(name, there[name])
	}
	return list.ResourceVersion, nil
}

// watch tells of changes of a batch until that is enough, or until the connection is lost, which a busy machine may lead to.
func (q *attachQueue) watch(ctx context.Context, b batch, version string, tell func(name string, va *storagev1.VolumeAttachment) (enough bool)) error {
	w, err := q.Client.StorageV1().VolumeAttachments().Watch(ctx, metav1.ListOptions{LabelSelector: batchLabel + "=" + b.label, ResourceVersion: version})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		va, ok := e.Object.(*storagev1.VolumeAttachment)
		if !ok {
			return fmt.Errorf("watch: %v", e.Object)
		}
		name := va.Name
		if e.Type == watch.Deleted {
			va = nil
		}
		if tell(name, va) {
			return nil
		}
	}
	return errors.New("the watch ended")
}
