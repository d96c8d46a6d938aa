// Package labtest has what tests on labs share: scenes, whose steps end the test when they fail.
package labtest

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/test/lab"
)

// Main has run run the tests of a package, and ends the process with its exit code, which is not 0 after an error.
func Main(m *testing.M, run func(*testing.M) (code int, err error)) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// T is a test.
type T struct{ *testing.T }

// Must ends the test if there is an error.
func (t T) Must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Scene is a test with a namespace of its own in a lab.
type Scene struct {
	T
	*lab.Lab
	Namespace string
}

var scenes atomic.Int64

// New makes a namespace, whose name begins with a word.
func New(t *testing.T, l *lab.Lab, word string) *Scene {
	t.Helper()
	s := &Scene{T: T{t}, Lab: l, Namespace: fmt.Sprintf("%s-%d", word, scenes.Add(1))}
	s.Must(s.MakeNamespace(s.Context(), s.Namespace))
	return s
}

// In is the scene in a part of the test.
func (s *Scene) In(t *testing.T) *Scene { return &Scene{T: T{t}, Lab: s.Lab, Namespace: s.Namespace} }

// WaitFor waits until check reports true, as lab.Lab.Await does.
func (s *Scene) WaitFor(what string, limit time.Duration, check func(context.Context) (bool, error)) {
	s.Helper()
	s.Must(s.Await(s.Context(), what, limit, check))
}

// Check has the test fail, and go on, if there is an error.
func (s *Scene) Check(what string, err error) {
	s.Helper()
	if err != nil {
		s.Errorf("%s: %v", what, err)
	}
}

// Afterwards has something undone when the test is over, within a limit.
func (s *Scene) Afterwards(what string, limit time.Duration, undo func(context.Context) error) {
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		s.Check(what, undo(ctx))
	})
}

// Class makes a StorageClass that goes with the test, and returns its name.
func (s *Scene) Class(mode storagev1.VolumeBindingMode, parameters map[string]string, change ...func(*storagev1.StorageClass)) string {
	s.Helper()
	class := lab.Class(fmt.Sprintf("%s-%d", s.Namespace, scenes.Add(1)), mode, parameters)
	for _, f := range change {
		f(class)
	}
	s.Must(s.MakeClass(s.Context(), class))
	s.Afterwards("delete class "+class.Name, time.Minute, func(ctx context.Context) error {
		return s.Client.StorageV1().StorageClasses().Delete(ctx, class.Name, metav1.DeleteOptions{})
	})
	return class.Name
}

// Grows lets the volumes of a class grow.
func Grows(class *storagev1.StorageClass) {
	grows := true
	class.AllowVolumeExpansion = &grows
}

// Claim makes a claim.
func (s *Scene) Claim(name, class, size string, change ...func(*corev1.PersistentVolumeClaim)) {
	s.Helper()
	s.Must(s.MakeClaim(s.Context(), lab.Claim(s.Namespace, name, class, size), change...))
}

// PatchClaim changes a claim.
func (s *Scene) PatchClaim(name, patch string) {
	s.Helper()
	_, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Patch(s.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.Must(err)
}

// Pod makes a Pod that waits in a shell, with a claim at /data.
func (s *Scene) Pod(name, claim string, change ...func(*corev1.Pod)) {
	s.Helper()
	s.Must(s.MakePod(s.Context(), lab.Pod(s.Namespace, name, claim), change...))
}

// OnNode has a Pod go to the node of that name and to no other.
func OnNode(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: name} }
}
