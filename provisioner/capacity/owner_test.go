package capacity

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

func TestOwner(t *testing.T) {
	owned := func(version, kind, name string, by ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, UID: types.UID("uid-" + name), OwnerReferences: by},
		}
	}
	by := func(kind, name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: ptr.To(true)}
	}
	client := provisionertest.MetadataClient(
		owned("v1", "Pod", "p", by("ReplicaSet", "rs")), owned("apps/v1", "ReplicaSet", "rs", by("Deployment", "d")), owned("v1", "Pod", "lone"))
	for _, test := range []struct {
		pod   string
		level int
		want  string // kind and name, or the error
	}{
		{"p", 0, "Pod p"}, {"p", 1, "ReplicaSet rs"}, {"p", 2, "Deployment d"},
		{"lone", 1, "Pod kube-system/lone has no owner; set --capacity-ownerref-level=0 or less"},
		{"gone", 0, "Pod kube-system/gone: "},
	} {
		got, err := Owner(t.Context(), client, "kube-system", test.pod, test.level)
		switch {
		case err != nil:
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, %d: %v", test.pod, test.level, err)
			}
		case got.Kind+" "+got.Name != test.want || got.UID != types.UID("uid-"+got.Name):
			t.Errorf("%s, %d: got %v", test.pod, test.level, got)
		}
	}
}

// An API server that restarts while this program begins doesn't end it.
func TestOwnerWaitsForTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := provisionertest.MetadataClient(&metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "p", UID: "uid-p"},
		})
		var answers []error
		client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if len(answers) == 0 {
				return false, nil, nil
			}
			err := answers[0]
			answers = answers[1:]
			return true, nil, err
		})
		timeout := &url.Error{Op: "Get", URL: "https://10.96.0.1/api", Err: errors.New("net/http: TLS handshake timeout")}
		answers = []error{timeout, apierrors.NewServiceUnavailable("it starts"), apierrors.NewTooManyRequests("later", 1), apierrors.NewInternalError(errors.New("etcd"))}
		begin := time.Now()
		got, err := Owner(t.Context(), client, "kube-system", "p", 0)
		if err != nil || got.UID != "uid-p" || time.Since(begin) != 4*ownerEvery {
			t.Errorf("after %s: %v, %v", time.Since(begin), got, err)
		}

		answers = []error{timeout, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("no role"))}
		if _, err := Owner(t.Context(), client, "kube-system", "p", 0); !apierrors.IsForbidden(err) {
			t.Errorf("not allowed: %v", err)
		}

		answers = slices.Repeat([]error{timeout}, 9)
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
		defer stop()
		if _, err := Owner(ctx, client, "kube-system", "p", 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("at the end of the context: %v", err)
		}
	})
}
