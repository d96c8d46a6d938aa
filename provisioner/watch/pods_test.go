package watch

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// podWith returns Pod shop/NAME with the claims, the last of them as a generic ephemeral volume if it is named so.
func podWith(name string, claims ...string) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "app", Env: []v1.EnvVar{{Name: "PASSWORD", Value: "secret"}}}}},
	}
	for _, claim := range claims {
		source := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
		if claim == "ephemeral" {
			source = v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: claim, VolumeSource: source})
	}
	return pod
}

func TestPodsAreFoundByTheirClaims(t *testing.T) {
	api := fake.NewClientset(podWith("web-0", "data", "logs", "data", "ephemeral"), podWith("web-1", "data"), podWith("web-2", "logs", "cache"))
	var gone []string
	deleted := make(chan struct{}, 2)
	pods, err := NewPods(api, func(pod *Pod) { gone = append(gone, pod.Name); deleted <- struct{}{} })
	must(t, err)
	pods.Fill(t.Context())
	for claim, want := range map[string][]string{
		"data": {"web-0", "web-1"}, "logs": {"web-0", "web-2"}, "web-0-ephemeral": {"web-0"}, "cache": {"web-2"}, "other": nil,
	} {
		var got []string
		for _, pod := range pods.OfClaim("shop", claim) {
			got = append(got, pod.Name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("claim %s: got %v, want %v", claim, got, want)
		}
	}
	if len(pods.OfClaim("other", "data")) > 0 {
		t.Error("a Pod of another namespace has the claim")
	}
	pod := pods.OfClaim("shop", "cache")[0]
	if !slices.Equal(pod.Claims, []string{"logs", "cache"}) || pod.Labels != nil {
		t.Errorf("kept is %+v", pod)
	}
	for _, name := range []string{"web-1", "web-2"} {
		must(t, api.CoreV1().Pods("shop").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	if <-deleted; !slices.Equal(gone, []string{"web-2"}) {
		t.Errorf("gone are %v", gone)
	}
}

func TestAPodThatHasEndedHasNoClaims(t *testing.T) {
	api := fake.NewClientset(podWith("web-0", "data", "logs"))
	gone := make(chan string, 1)
	pods, err := NewPods(api, func(pod *Pod) { gone <- pod.Name })
	must(t, err)
	pods.Fill(t.Context())
	ended := podWith("web-0", "data", "logs")
	ended.Status.Phase = v1.PodFailed
	_, err = api.CoreV1().Pods("shop").Update(t.Context(), ended, metav1.UpdateOptions{})
	must(t, err)
	if name := <-gone; name != "web-0" || len(pods.OfClaim("shop", "data")) > 0 {
		t.Errorf("%s is gone, of the claim are %v", name, pods.OfClaim("shop", "data"))
	}
}

// What a Pod costs others grows with the square of its claims, and a tenant chooses how many it has.
func TestTheClaimsOfAPodThatNoNodeTakesAreNotKept(t *testing.T) {
	var names []string
	for i := range mostClaims + 1 {
		names = append(names, fmt.Sprint("data-", i))
	}
	for want, claims := range map[int][]string{mostClaims: append(names[:mostClaims:mostClaims], names[0]), 0: names} {
		trimmed, err := trimPod(podWith("web-0", claims...))
		must(t, err)
		if got := len(trimmed.(*Pod).Claims); got != want {
			t.Errorf("of %d claims %d are kept, want %d", len(claims), got, want)
		}
	}
}

// Each step of a claim looks at the Pods that wait for it and their claims, and a tenant chooses how many Pods name it.
func TestTheManyPodsOfAClaimAreNotLookedAt(t *testing.T) {
	for want, number := range map[int]int{mostPods: mostPods, 0: mostPods + 1} {
		api := fake.NewClientset()
		for n := range number {
			must(t, api.Tracker().Add(podWith(fmt.Sprint("web-", n), "data", "logs")))
		}
		pods, err := NewPods(api, func(*Pod) {})
		must(t, err)
		pods.Fill(t.Context())
		if got := len(pods.OfClaim("shop", "data")); got != want {
			t.Errorf("of %d Pods %d are looked at, want %d", number, got, want)
		}
	}
}

// Kubernetes doesn't bound the name of a claim in a Pod, but no claim has such a name.
func TestAClaimsNameThatNoClaimHasIsNotKept(t *testing.T) {
	trimmed, err := trimPod(podWith("web-0", "data", strings.Repeat("x", 1<<20), "logs"))
	must(t, err)
	if got := trimmed.(*Pod).Claims; !slices.Equal(got, []string{"data", "logs"}) {
		t.Errorf("%d claims are kept", len(got))
	}
}

// Many short labels take more memory than their characters.
func TestANodeSelectorOfManyLabelsIsNotKept(t *testing.T) {
	for labels, kept := range map[int]bool{50: true, 1500: false} {
		pod := podWith("web-0", "data")
		pod.Spec.NodeSelector = map[string]string{}
		for n := range labels {
			pod.Spec.NodeSelector[strconv.FormatInt(int64(n), 36)] = ""
		}
		trimmed, err := trimPod(pod)
		must(t, err)
		if got := trimmed.(*Pod).NodeSelector != nil; got != kept {
			t.Errorf("one of %d labels is kept: %v", labels, got)
		}
	}
}

func TestWhichNodesAPodMayHaveIsKept(t *testing.T) {
	selector := func(value string) *v1.NodeSelector {
		return &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: "zone", Operator: v1.NodeSelectorOpIn, Values: []string{value}}}}}}
	}
	long := strings.Repeat("x", longestAffinity)
	for name, test := range map[string]struct {
		claims               []string
		selector, affinity   string
		keepsOne, keepsOther bool
	}{
		"both":                    {[]string{"data"}, "a", "b", true, true},
		"none":                    {[]string{"data"}, "", "", false, false},
		"too long a nodeSelector": {[]string{"data"}, long, "b", false, true},
		"too long an affinity":    {[]string{"data"}, "a", long, true, false},
		"no claims":               {nil, "a", "b", false, false},
	} {
		pod := podWith("web-0", test.claims...)
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{}}
		if test.selector != "" {
			pod.Spec.NodeSelector = map[string]string{"zone": test.selector}
		}
		if test.affinity != "" {
			pod.Spec.Affinity.NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector(test.affinity)}
		}
		trimmed, err := trimPod(pod)
		must(t, err)
		if kept := trimmed.(*Pod); (kept.NodeSelector != nil) != test.keepsOne || (kept.Required != nil) != test.keepsOther {
			t.Errorf("%s: kept are %v and %v", name, kept.NodeSelector, kept.Required)
		}
	}
}

// unwatchable returns a client that refuses the verb for Pods while it is not allowed.
func unwatchable(verb string, allowed *atomic.Bool, asked *atomic.Int32) *fake.Clientset {
	api := fake.NewClientset(podWith("web-0", "data", "logs"))
	refuse := func(of string) (bool, error) {
		if of != verb || allowed.Load() {
			return false, nil
		}
		asked.Add(1)
		return true, apierrors.NewForbidden(v1.Resource("pods"), "", errors.New("no rule"))
	}
	api.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		handled, err := refuse("list")
		return handled, nil, err
	})
	api.PrependWatchReactor("pods", func(clienttesting.Action) (bool, apiwatch.Interface, error) {
		handled, err := refuse("watch")
		return handled, nil, err
	})
	return api
}

// A Role of an older chart lets Pods be listed and not watched. The process starts all the same, and watches as soon as it may.
func TestPodsThatMayNotBeWatchedAreNoObstacle(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		t.Run(verb, func(t *testing.T) {
			var allowed atomic.Bool
			var asked atomic.Int32
			pods, err := NewPods(unwatchable(verb, &allowed, &asked), func(*Pod) {})
			must(t, err)
			pods.Fill(t.Context()) // returns
			if len(pods.OfClaim("shop", "data")) > 0 || asked.Load() != 1 {
				t.Errorf("%d requests", asked.Load())
			}
		})
	}
}

func TestPodsAreWatchedOncePermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var allowed atomic.Bool
		var asked atomic.Int32
		pods, err := NewPods(unwatchable("watch", &allowed, &asked), func(*Pod) {})
		must(t, err)
		go pods.runOncePermitted(t.Context())
		time.Sleep(2*podsRetry + time.Second)
		if asked.Load() != 2 || len(pods.OfClaim("shop", "data")) > 0 {
			t.Errorf("%d requests in two intervals", asked.Load())
		}
		allowed.Store(true)
		time.Sleep(podsRetry)
		synctest.Wait()
		if len(pods.OfClaim("shop", "data")) != 1 {
			t.Error("the Pod is not shown")
		}
	})
}

func TestNoPodsAreNoObstacle(t *testing.T) {
	var none *Pods
	none.Fill(t.Context())
	if pods := none.OfClaim("shop", "data"); len(pods) > 0 {
		t.Errorf("there are %v", pods)
	}
}
