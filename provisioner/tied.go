package provisioner

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/topodisk/topodisk/topology"
)

// A Pod with two claims can go only where the volume of the one that is bound
// is. If the other's zone has nothing to give, the scheduler sends it there
// again and again, and nobody can help but the Pod's owner.

const (
	tiedEvery  = 5 * time.Minute  // a claim is looked at for it again
	tiedClaims = 4096             // are remembered to have been looked at
	podsLast   = 30 * time.Second // a list of waiting Pods serves its namespace
)

// ties remembers which claims were looked at, and a namespace's waiting Pods.
type ties struct {
	mu     sync.Mutex
	looked *lru.Cache // claim UID -> time
	pods   map[string]waitingPods
}

type waitingPods struct {
	claims [][]string // the names of each Pod's claims, its own name first
	at     time.Time
}

func newTies() *ties { return &ties{looked: lru.New(tiedClaims), pods: map[string]waitingPods{}} }

// tellOfTie tells the owner of a claim that was refused in the order's zones
// for want of stock which other claim of its Pod keeps it there.
func (p *Provisioner) tellOfTie(ctx context.Context, o *order) {
	if !p.isDueToLook(o) {
		return
	}
	pods, err := p.podsWaiting(ctx, o.Claim.Namespace)
	if err != nil {
		klog.ErrorS(err, "Whether a claim's Pod is tied to a zone can't be told", "claim", klog.KObj(o.Claim))
		return
	}
	for _, pod := range pods {
		if !slices.Contains(pod[1:], o.Claim.Name) {
			continue
		}
		for _, other := range pod[1:] {
			if pv := p.boundWithin(o, other); pv != nil {
				p.events.Eventf(o.Claim, v1.EventTypeWarning, reasonTied,
					"Pod %s also has claim %s, whose volume %s is in %s, and there is no disk of class %s to be had there for claim %s: no other node will do. "+
						"The Pod starts when the zone has stock again. Otherwise give claim %s a class with other disk types, or move claim %s to another zone by a snapshot",
					pod[0], other, pv.Name, strings.Join(zonesOfVolume(pv), " and "), o.Class.Name, o.Claim.Name, o.Claim.Name, other)
				return
			}
		}
	}
}

// isDueToLook says whether the claim was not looked at for a while. The first
// refusal counts: a scheduler that knows what zones have to give chooses no node
// for such a Pod again.
func (p *Provisioner) isDueToLook(o *order) bool {
	p.ties.mu.Lock()
	defer p.ties.mu.Unlock()
	if at, seen := p.ties.looked.Get(o.Claim.UID); seen && p.now().Sub(at.(time.Time)) < tiedEvery {
		return false
	}
	p.ties.looked.Add(o.Claim.UID, p.now())
	return true
}

// podsWaiting returns the claims of each Pod of the namespace that waits for a node.
func (p *Provisioner) podsWaiting(ctx context.Context, namespace string) ([][]string, error) {
	p.ties.mu.Lock()
	defer p.ties.mu.Unlock() // one list serves all who come meanwhile
	if known, ok := p.ties.pods[namespace]; ok && p.now().Sub(known.at) < podsLast {
		return known.claims, nil
	}
	list, err := p.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=,status.phase=Pending", ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	var claims [][]string
	for i := range list.Items {
		if names := claimsOfPod(&list.Items[i]); len(names) > 1 {
			claims = append(claims, append([]string{list.Items[i].Name}, names...))
		}
	}
	for other, known := range p.ties.pods {
		if p.now().Sub(known.at) >= podsLast {
			delete(p.ties.pods, other)
		}
	}
	p.ties.pods[namespace] = waitingPods{claims, p.now()}
	return claims, nil
}

func claimsOfPod(pod *v1.Pod) []string {
	var names []string
	for _, volume := range pod.Spec.Volumes {
		switch {
		case volume.PersistentVolumeClaim != nil:
			names = append(names, volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			names = append(names, pod.Name+"-"+volume.Name)
		}
	}
	return names
}

// boundWithin returns the volume of a claim beside the order's if it can be
// reached from none but the zones that the order was refused in.
func (p *Provisioner) boundWithin(o *order, name string) *v1.PersistentVolume {
	key := cache.ObjectName{Namespace: o.Claim.Namespace, Name: name}.String()
	object, exists, err := p.claims.GetByKey(key)
	if err != nil || !exists {
		return nil
	}
	object, exists, err = p.volumes.GetByKey(object.(*v1.PersistentVolumeClaim).Spec.VolumeName)
	if err != nil || !exists {
		return nil
	}
	pv := object.(*v1.PersistentVolume)
	zones := zonesOfVolume(pv)
	for _, zone := range zones {
		if !slices.Contains(zonesAsked(o), zone) {
			return nil
		}
	}
	if len(zones) == 0 {
		return nil
	}
	return pv
}

func zonesAsked(o *order) []string {
	var zones []string
	for _, term := range o.Requisite() {
		zones = append(zones, topology.ZoneOfTerm(term))
	}
	return zones
}

// zonesOfVolume returns the zones that the volume's affinity names.
func zonesOfVolume(pv *v1.PersistentVolume) []string {
	var zones []string
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == topology.WellKnownZoneKey || e.Key == topology.ZoneKey {
				zones = append(zones, e.Values...)
			}
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}
