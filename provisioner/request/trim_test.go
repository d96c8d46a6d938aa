package request

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

// hugeClaim is a claim whose owner fills whatever Kubernetes does not bound.
func hugeClaim(change func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	return provisionertest.Claim(func(c *v1.PersistentVolumeClaim) {
		c.Labels = map[string]string{"team": "x"}
		for n := range 1_000 {
			c.Annotations[fmt.Sprint("note-", n)] = strings.Repeat("n", 200)
			c.Annotations[fmt.Sprint("diskTags/", n)] = strings.Repeat("n", 50)
			c.Labels[fmt.Sprint("example.com/", n)] = "y"
			c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{Name: fmt.Sprint(n)})
			c.Finalizers = append(c.Finalizers, fmt.Sprint("example.com/", n))
			c.Spec.AccessModes = append(c.Spec.AccessModes, v1.ReadWriteOnce)
			c.Status.Conditions = append(c.Status.Conditions, v1.PersistentVolumeClaimCondition{Message: "z"})
		}
		if change != nil {
			change(c)
		}
	})
}

func TestATrimmedClaimIsBounded(t *testing.T) {
	options := testOptions()
	options.ClaimLabelTags = []string{"team"}
	long := strings.Repeat("x", 200<<10)
	for name, change := range map[string]func(*v1.PersistentVolumeClaim){
		"notes":              nil,
		"the node":           func(c *v1.PersistentVolumeClaim) { c.Annotations[AnnSelectedNode] = long },
		"the class":          func(c *v1.PersistentVolumeClaim) { c.Annotations[v1.BetaStorageClassAnnotation] = long },
		"one that is passed": func(c *v1.PersistentVolumeClaim) { c.Annotations["alibabacloud.com/kms-key-id"] = long },
		"the source": func(c *v1.PersistentVolumeClaim) {
			c.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: long, Name: long, APIGroup: ptr.To("snapshot.storage.k8s.io")}
			c.Spec.DataSourceRef = &v1.TypedObjectReference{Kind: long, Name: long}
		},
		"a selector": func(c *v1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"x": long}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			claim := hugeClaim(change)
			options.TrimClaim(claim)
			kept, err := json.Marshal(claim)
			if err != nil || len(kept) > maxEntry+4<<10 {
				t.Errorf("%d bytes are kept, %v", len(kept), err)
			}
		})
	}
}

// A part of a text keeps all of it in memory.
func TestATrimmedClaimHoldsNoLongText(t *testing.T) {
	options := testOptions()
	options.ClaimLabelTags = []string{"team"}
	const claims, long = 100, 200 << 10
	text := func() string { return strings.Repeat("x", long) }
	var kept []*v1.PersistentVolumeClaim
	before := heap()
	for range claims {
		claim := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) {
			c.Annotations[AnnSelectedNode], c.Annotations["alibabacloud.com/kms-key-id"] = text(), text()
			c.Spec.DataSourceRef = &v1.TypedObjectReference{Kind: text(), Name: text()}
		})
		options.TrimClaim(claim)
		kept = append(kept, claim)
	}
	if each := (heap() - before) / claims; each > maxEntry+8<<10 {
		t.Errorf("each of %d claims takes %d bytes", len(kept), each)
	}
	runtime.KeepAlive(kept)
}

// heap returns how many bytes are in use.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// What is made from a trimmed claim, and what is refused, is the same as before.
func TestATrimmedClaimIsAskedForAlike(t *testing.T) {
	options := testOptions()
	options.ClaimLabelTags = []string{"team"}
	for name, change := range map[string]func(*v1.PersistentVolumeClaim){
		"a claim": nil,
		"with annotations, labels and a source": func(c *v1.PersistentVolumeClaim) {
			c.Annotations["alibabacloud.com/kms-key-id"], c.Annotations["note"] = "k-1", "x"
			c.Labels = map[string]string{"team": "web", "tier": "db"}
			c.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "from"}
		},
		"with a selector":              func(c *v1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} },
		"with an annotation of effect": func(c *v1.PersistentVolumeClaim) { c.Annotations["encrypted"] = "true" },
		"with a tag":                   func(c *v1.PersistentVolumeClaim) { c.Annotations["diskTags/team"] = "x" },
		"with a label of effect":       func(c *v1.PersistentVolumeClaim) { c.Labels = map[string]string{"kmsKeyId": "x"} },
		"of an old class":              func(c *v1.PersistentVolumeClaim) { c.Annotations[v1.BetaStorageClassAnnotation] = "old" },
		"too long a key": func(c *v1.PersistentVolumeClaim) {
			c.Annotations["alibabacloud.com/kms-key-id"] = strings.Repeat("k", 100<<10)
		},
		"too long a key in Chinese": func(c *v1.PersistentVolumeClaim) {
			c.Annotations["alibabacloud.com/kms-key-id"] = strings.Repeat("密", 100<<10)
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := func(trim bool) string {
				claim := provisionertest.Claim()
				if change != nil {
					change(claim)
				}
				if trim {
					options.TrimClaim(claim)
				}
				plan, err := NewPlan(options, claim, provisionertest.Class(nil), claim.Annotations[AnnSelectedNode])
				if err != nil {
					return err.Error()
				}
				record, err := plan.Request(Inputs{}).Encode()
				if err != nil {
					text, _, _ := strings.Cut(err.Error(), " bytes")
					return strings.TrimRight(text, "0123456789")
				}
				return string(record)
			}
			if diff := cmp.Diff(asked(false), asked(true)); diff != "" {
				t.Errorf("(-whole +trimmed):\n%s", diff)
			}
		})
	}
}
