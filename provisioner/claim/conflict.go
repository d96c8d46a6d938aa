package claim

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// A Pod with two claims can only run where the volume of the bound one is accessible. If
// that zone has no disk for the other claim, the scheduler selects a node there again and
// again, and only the owner of the Pod can resolve the conflict.

const (
	checkInterval = 5 * time.Minute  // between two checks of a claim
	checkedClaims = 4096             // bounds the claims whose last check is remembered
	podListTTL    = 30 * time.Second // of a list of waiting Pods
	podPage       = 100              // Pods that one request lists: a tenant chooses how many there are, and how large they are
	podLists      = 256              // bounds the namespaces whose list is remembered
)

// conflicts reports the conflicts of refused claims. If Pods are in no cache, claims of one namespace share a list of its Pods.
type conflicts struct {
	*Syncer
	checked *cache.LRUExpireCache // claim UID -> nothing

	listing sync.Mutex
	lists   *cache.LRUExpireCache // namespace -> []*watch.Pod
}

func newConflicts(s *Syncer) *conflicts {
	return &conflicts{Syncer: s, checked: cache.NewLRUExpireCache(checkedClaims), lists: cache.NewLRUExpireCache(podLists)}
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
	for _, pod := range pods {
		if c.reportTie(refused, pod) {
			return
		}
	}
}

// reportTie emits an event that names the volume which restricts a Pod to zones where its other claim was refused, and says whether there is one.
func (c *conflicts) reportTie(refused *request.Request, pod *watch.Pod) bool {
	claim := refused.Claim
	if !slices.Contains(pod.Claims, claim.Name) {
		return false
	}
	isElsewhere := func(zone string) bool {
		return !slices.ContainsFunc(refused.Requisite(), func(term *csi.Topology) bool { return topology.ZoneOfTerm(term) == zone })
	}
	for _, other := range pod.Claims {
		pv := c.volumeOf(c.claimNamed(claim.Namespace, other))
		if pv == nil {
			continue
		}
		zones := topology.ZonesOfVolume(pv)
		if len(zones) == 0 || slices.ContainsFunc(zones, isElsewhere) {
			continue
		}
		c.Events.Eventf(claim, v1.EventTypeWarning, reasonTied,
			"Pod %s also has claim %s, whose volume %s is in %s, where no disk of class %s is available for claim %s: "+
				"no other node is possible. The Pod starts when the zone has stock again. Otherwise give claim %s a class with other disk types, or move claim %s to another zone by a snapshot",
			pod.Name, other, pv.Name, strings.Join(zones, " and "), refused.Class.Name, claim.Name, claim.Name, other)
		return true
	}
	return false
}

// isDue says whether the claim was not checked within checkInterval, and marks it as
// checked. The first refusal counts: with capacities the scheduler selects no node for
// such a Pod again.
func (c *conflicts) isDue(claim *v1.PersistentVolumeClaim) bool {
	_, wasChecked := c.checked.Get(claim.UID)
	if !wasChecked {
		c.checked.Add(claim.UID, nil, checkInterval)
	}
	return !wasChecked
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
	c.listing.Lock()
	defer c.listing.Unlock() // concurrent calls share one list
	if known, ok := c.lists.Get(namespace); ok {
		return known.([]*watch.Pod), nil
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
	c.lists.Add(namespace, pods, podListTTL)
	return pods, nil
}
