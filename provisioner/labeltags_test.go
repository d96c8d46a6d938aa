package provisioner

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

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/request"
)

// labelBench is a bench whose claims and namespaces have labels that become tags.
func labelBench(t *testing.T, creates []answer) *bench {
	b := newBench(t, creates)
	b.resolver.config.ClaimLabelTags, b.resolver.config.NamespaceLabelTags = []string{"team", "example.com/stage"}, []string{"team", "cost-center"}
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

// A call of unknown outcome is repeated with the tags that it had, whatever has
// become of the labels; also by the process that takes the journal up.
func TestARetryHasTheTagsOfTheFirstCall(t *testing.T) {
	lost := status.Error(codes.Unavailable, "the reply was lost")
	b := labelBench(t, []answer{{err: lost}, {err: lost}, made("d-1", 20*gib, "zone-a")})
	if err := b.resolver.namespaces.Add(testNamespace(map[string]string{"cost-center": "4711"})); err != nil {
		t.Fatal(err)
	}
	labelled := func(team string) *v1.PersistentVolumeClaim {
		return testClaim(func(c *v1.PersistentVolumeClaim) { c.Labels = map[string]string{"team": team} })
	}
	_, outcome, err := b.provision(t.Context(), labelled("web"), testClass(nil), "node-1")
	if outcome != attempt.Background || !errors.Is(err, lost) {
		t.Fatalf("%v %v", outcome, err)
	}
	if err := b.resolver.namespaces.Update(testNamespace(map[string]string{"cost-center": "1"})); err != nil {
		t.Fatal(err)
	}
	_, _, _ = b.provision(t.Context(), labelled("db"), testClass(nil), "node-1")
	data, err := b.attempts.Request("0f1e").Encode()
	if err != nil {
		t.Fatal(err)
	}
	taken, err := request.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	first := tagsAsked(b.driver.created[0].Parameters)
	if len(first) != 2 || !maps.Equal(tagsAsked(b.driver.created[1].Parameters), first) || !maps.Equal(tagsAsked(taken.Create.Parameters), first) {
		t.Errorf("asked for %v, then %v; the journal has %v", first, tagsAsked(b.driver.created[1].Parameters), tagsAsked(taken.Create.Parameters))
	}
}

// A namespace that the cache doesn't show yet is asked for, and a disk never goes
// without its tags because that failed.
func TestLabelsOfANewNamespaceAreRead(t *testing.T) {
	b := labelBench(t, []answer{made("d-1", 20*gib, "zone-a")})
	broken := true
	b.metadata.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		if broken {
			return true, nil, errors.New("the API server is away")
		}
		return true, testNamespace(map[string]string{"cost-center": "4711"}), nil
	})
	_, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	if outcome != attempt.Unchanged || err == nil || !strings.Contains(err.Error(), "--namespace-label-tags") || len(b.driver.created) > 0 {
		t.Fatalf("%v %v, and %d calls; want none before the labels are read", outcome, err, len(b.driver.created))
	}
	broken = false
	if _, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); err != nil {
		t.Fatal(err)
	}
	if got := tagsAsked(b.driver.created[0].Parameters); got["diskTags/cost-center"] != "4711" {
		t.Errorf("the driver was asked for %v", got)
	}
}
