package claim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// A Pod with two claims can only run where the volume of the bound one is accessible. If
// that zone has no disk for the other claim, the scheduler selects a node there again and
// again, and only the owner of the Pod can resolve the conflict.

// conflictFacts determine whether the Pod of a refused claim has such a conflict.
type conflictFacts struct {
	claim, class string                 // the refused claim
	zones        []string               // where it was refused
	pods         []*watch.Pod           // those that wait for a node, of its namespace or those that have it
	volumes      map[string]boundVolume // of the bound claims of its namespace, by the claim's name
}

// boundVolume is a PersistentVolume and the zones of its node affinity; none if it is not zonal.
type boundVolume struct {
	name  string
	zones []string
}

// conflictMessage names the volume that restricts a Pod to the zones where its other claim
// was refused. It is empty if no Pod has such a volume.
func conflictMessage(f conflictFacts) string {
	refused := func(zone string) bool { return slices.Contains(f.zones, zone) }
	for _, pod := range f.pods {
		if !slices.Contains(pod.Claims, f.claim) {
			continue
		}
		for _, other := range pod.Claims {
			volume := f.volumes[other]
			if len(volume.zones) == 0 || slices.ContainsFunc(volume.zones, func(zone string) bool { return !refused(zone) }) {
				continue
			}
			return fmt.Sprintf("Pod %s also has claim %s, whose volume %s is in %s, where no disk of class %s is available for claim %s: "+
				"no other node is possible. The Pod starts when the zone has stock again. Otherwise give claim %s a class with other disk types, or move claim %s to another zone by a snapshot",
				pod.Name, other, volume.name, strings.Join(volume.zones, " and "), f.class, f.claim, f.claim, other)
		}
	}
	return ""
}

const (
	checkInterval = 5 * time.Minute  // between two checks of a claim
	checkedClaims = 4096             // bounds the claims whose last check is remembered
	podListTTL    = 30 * time.Second // of a list of waiting Pods
	podPage       = 100              // Pods that one request lists: a tenant chooses how many there are, and how large they are
)

// conflicts reports the conflicts of refused claims. If Pods are in no cache, claims of one namespace share a list of its Pods.
type conflicts struct {
	*Syncer

	mu      sync.Mutex
	checked *lru.Cache         // claim UID -> time
	lists   map[string]podList // by namespace
}

type podList struct {
	pods []*watch.Pod
	at   time.Time
}

func newConflicts(s *Syncer) *conflicts {
	return &conflicts{Syncer: s, checked: lru.New(checkedClaims), lists: map[string]podList{}}
}

// report emits an event if the claim, which was refused for lack of stock, has a conflict.
func (c *conflicts) report(ctx context.Context, refused *request.Request) {
	claim := refused.Claim
	if !c.isDue(claim) {
		return
	}
	pods, err := c.waitingPods(ctx, claim)
	if err != nil {
		klog.ErrorS(err, "Listing the Pods that may use a refused claim failed", "claim", klog.KObj(claim))
		return
	}
	facts := conflictFacts{claim: claim.Name, class: refused.Class.Name, pods: pods, volumes: map[string]boundVolume{}}
	for _, term := range refused.Requisite() {
		facts.zones = append(facts.zones, topology.ZoneOfTerm(term))
	}
	for _, pod := range pods {
		for _, name := range pod.Claims {
			if pv := c.volumeOf(c.claimNamed(claim.Namespace, name)); pv != nil {
				facts.volumes[name] = boundVolume{name: pv.Name, zones: topology.ZonesOfVolume(pv)}
			}
		}
	}
	if message := conflictMessage(facts); message != "" {
		c.event(claim, v1.EventTypeWarning, reasonTied, "%s", message)
	}
}

// isDue says whether the claim was not checked within checkInterval, and marks it as
// checked. The first refusal counts: with capacities the scheduler selects no node for
// such a Pod again.
func (c *conflicts) isDue(claim *v1.PersistentVolumeClaim) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, seen := c.checked.Get(claim.UID); seen && c.Now().Sub(at.(time.Time)) < checkInterval {
		return false
	}
	c.checked.Add(claim.UID, c.Now())
	return true
}

// waitingPods returns Pods that wait for a node and have several claims: at least those that have this claim.
func (c *conflicts) waitingPods(ctx context.Context, claim *v1.PersistentVolumeClaim) ([]*watch.Pod, error) {
	if !c.Pods.Knows() {
		return c.listPods(ctx, claim.Namespace)
	}
	pods := c.Pods.OfClaim(claim.Namespace, claim.Name)
	slices.SortFunc(pods, func(a, b *watch.Pod) int { return strings.Compare(a.Name, b.Name) }) // equal events name the same one
	return pods, nil
}

// listPods lists the Pods of a namespace that wait for a node and have several claims, unless it has just done so.
func (c *conflicts) listPods(ctx context.Context, namespace string) ([]*watch.Pod, error) {
	c.mu.Lock()
	defer c.mu.Unlock() // concurrent calls share one list
	if known, ok := c.lists[namespace]; ok && c.Now().Sub(known.at) < podListTTL {
		return known.pods, nil
	}
	var pods []*watch.Pod
	for options := (metav1.ListOptions{FieldSelector: "spec.nodeName=,status.phase=Pending", Limit: podPage}); ; {
		list, err := c.Client.CoreV1().Pods(namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if claims := watch.ClaimsOf(&list.Items[i]); len(claims) > 1 {
				pods = append(pods, &watch.Pod{ObjectMeta: metav1.ObjectMeta{Name: list.Items[i].Name}, Claims: claims})
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	maps.DeleteFunc(c.lists, func(_ string, known podList) bool { return c.Now().Sub(known.at) >= podListTTL })
	c.lists[namespace] = podList{pods, c.Now()}
	return pods, nil
}
