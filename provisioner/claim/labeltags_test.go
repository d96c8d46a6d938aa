package claim

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/provisioner/request"
)

// labelBench is a bench whose claims and namespaces have labels that become tags.
func labelBench(t *testing.T, creates []answer) *bench {
	b := newBench(t, creates)
	b.ClaimLabelTags, b.NamespaceLabelTags = []string{"team", "example.com/stage"}, []string{"team", "cost-center"}
	return b
}

func testNamespace(labels map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: labels},
	}
}

// tagsAsked are the tags that a call to the driver asked for.
func tagsAsked(parameters map[string]string) map[string]string {
	tags := maps.Clone(parameters)
	maps.DeleteFunc(tags, func(key, _ string) bool { return !strings.HasPrefix(key, "diskTags") })
	return tags
}

// A call of unknown outcome is repeated with the tags that it had, whatever has become of the labels; also by the process that takes the
// journal up.
func TestARetryHasTheTagsOfTheFirstCall(t *testing.T) {
	lost := status.Error(codes.Unavailable, "the reply was lost")
	b := labelBench(t, []answer{{Err: lost}, {Err: lost}, made("d-1", 20*gib, "zone-a")})
	must(t, b.Namespaces.Add(testNamespace(map[string]string{"cost-center": "4711"})))
	labelled := func(team string) *v1.PersistentVolumeClaim {
		return testClaim(func(c *v1.PersistentVolumeClaim) { c.Labels = map[string]string{"team": team} })
	}
	_, meaning, err := b.provision(t.Context(), labelled("web"), testClass(nil), "node-1")
	if meaning != maybeVolume || !errors.Is(err, lost) {
		t.Fatalf("%v %v", meaning, err)
	}
	must(t, b.Namespaces.Update(testNamespace(map[string]string{"cost-center": "1"})))
	_, _, _ = b.provision(t.Context(), labelled("db"), testClass(nil), "node-1")
	data, err := b.Requests()[0].Encode()
	must(t, err)
	taken, err := request.Decode(data)
	must(t, err)
	next := labelBench(t, []answer{made("d-1", 20*gib, "zone-a")})
	must(t, next.Namespaces.Add(testNamespace(map[string]string{"cost-center": "1"})))
	must(t, next.Classes.Add(testClass(nil)))
	must(t, next.Claims.Add(labelled("db")))
	next.Recover(taken)
	_, _, err = next.attempt(t.Context(), taken.Claim.UID)
	must(t, err)
	first := tagsAsked(b.driver.Created[0].Parameters)
	again, other := tagsAsked(b.driver.Created[1].Parameters), tagsAsked(next.driver.Created[0].Parameters)
	if len(first) != 2 || !maps.Equal(again, first) || !maps.Equal(tagsAsked(taken.Create.Parameters), first) || !maps.Equal(other, first) {
		t.Errorf("asked for %v, then %v; the journal has %v, its reader asked for %v", first, again, tagsAsked(taken.Create.Parameters), other)
	}
}

// A namespace that the cache doesn't show yet is asked for, and a disk never goes without its tags because that failed.
func TestLabelsOfANewNamespaceAreRead(t *testing.T) {
	b := labelBench(t, []answer{made("d-1", 20*gib, "zone-a")})
	broken := true
	b.metadata.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		if broken {
			return true, nil, errors.New("the API server is away")
		}
		return true, testNamespace(map[string]string{"cost-center": "4711"}), nil
	})
	_, meaning, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	if meaning != notSent || err == nil || !strings.Contains(err.Error(), "--namespace-label-tags") || len(b.driver.Created) > 0 {
		t.Fatalf("%v %v, and %d calls; want none before the labels are read", meaning, err, len(b.driver.Created))
	}
	broken = false
	if _, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); err != nil {
		t.Fatal(err)
	}
	if got := tagsAsked(b.driver.Created[0].Parameters); got["diskTags/cost-center"] != "4711" {
		t.Errorf("the driver was asked for %v", got)
	}
}
