package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestWithoutAClusterTheClusterIDIsRequired(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	o := parsed(t, "--cluster-id=")
	if err := o.completeClusterID(t.Context()); err == nil || !strings.Contains(err.Error(), "--cluster-id is missing") || !strings.Contains(err.Error(), "for example --cluster-id=") {
		t.Errorf("got %v", err)
	}
}

func TestAClusterIDThatIsGivenStays(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	o := parsed(t)
	if err := o.completeClusterID(t.Context()); err != nil || o.clusterID != "c1" {
		t.Errorf("got %q, %v", o.clusterID, err)
	}
}

func TestClusterIDIsTheUIDOfKubeSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "3f2a"}})
		failures := 5
		client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			failures--
			return failures >= 0, nil, errors.New("connection refused")
		})
		start := time.Now()
		uid, err := kubeSystemUID(t.Context(), client)
		if err != nil || uid != "3f2a" || time.Since(start) != 5*clusterIDEvery {
			t.Errorf("got %q, %v after %s", uid, err, time.Since(start))
		}
	})
}

func TestAServerThatNeverAnswersEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := kubeSystemUID(context.Background(), fake.NewClientset())
		if err == nil || !strings.Contains(err.Error(), "--cluster-id is missing") || time.Since(start) != clusterIDLimit {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
	})
}
