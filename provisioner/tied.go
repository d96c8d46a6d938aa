package provisioner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

// A Pod with two claims can only go where the volume of the bound one is. If the zone of
// that has no disk for the other one, the scheduler selects a node there again and again,
// and only the owner of the Pod can help.

// tiedFacts are what tells whether a refused claim's Pod is tied to the zones of the refusal.
type tiedFacts struct {
	claim, class string                 // the refused claim
	zones        []string               // where it was refused
	pods         []podClaims            // the Pods of its namespace that wait for a node
	volumes      map[string]boundVolume // of the bound claims of its namespace, by the claim's name
}

// podClaims are a Pod and the claims that it uses.
type podClaims struct {
	pod    string
	claims []string
}

// boundVolume is a PersistentVolume and the zones that it can be reached from; none if it is not zonal.
type boundVolume struct {
	name  string
	zones []string
}

// tiedMessage tells the owner of a Pod which volume keeps it in the zones where its other
// claim was refused. It is empty if no Pod has such a volume.
func tiedMessage(f tiedFacts) string {
	refused := func(zone string) bool { return slices.Contains(f.zones, zone) }
	for _, pod := range f.pods {
		if !slices.Contains(pod.claims, f.claim) {
			continue
		}
		for _, other := range pod.claims {
			volume := f.volumes[other]
			if len(volume.zones) == 0 || slices.ContainsFunc(volume.zones, func(zone string) bool { return !refused(zone) }) {
				continue
			}
			return fmt.Sprintf("Pod %s also has claim %s, whose volume %s is in %s, and there is no disk of class %s to be had there for claim %s: "+
				"no other node will do. The Pod starts when the zone has stock again. Otherwise give claim %s a class with other disk types, or move claim %s to another zone by a snapshot",
				pod.pod, other, volume.name, strings.Join(volume.zones, " and "), f.class, f.claim, f.claim, other)
		}
	}
	return ""
}

// notifyTied tells the owner of a claim that was refused for want of stock which other
// claim of its Pod keeps it in the zones of the refusal.
func (p *Provisioner) notifyTied(ctx context.Context, o *request.Request) {
	if !p.waitingPods.isDue(o.Claim) {
		return
	}
	pods, err := p.waitingPods.list(ctx, p.client, o.Claim.Namespace)
	if err != nil {
		klog.ErrorS(err, "Whether a claim's Pod is tied to a zone can't be told", "claim", klog.KObj(o.Claim))
		return
	}
	facts := tiedFacts{claim: o.Claim.Name, class: o.Class.Name, pods: pods, volumes: map[string]boundVolume{}}
	for _, term := range o.Requisite() {
		facts.zones = append(facts.zones, topology.ZoneOfTerm(term))
	}
	for _, pod := range pods {
		for _, claim := range pod.claims {
			if pv := volumeOfClaim(p.claims, p.volumes, o.Claim.Namespace, claim); pv != nil {
				facts.volumes[claim] = boundVolume{name: pv.Name, zones: zonesOfVolume(pv)}
			}
		}
	}
	if message := tiedMessage(facts); message != "" {
		p.events.Event(o.Claim, v1.EventTypeWarning, reasonTied, message)
	}
}

const (
	checkEvery    = 5 * time.Minute  // between two checks of a claim
	checkedClaims = 4096             // of which the last check is remembered
	podsExpire    = 30 * time.Second // a list of waiting Pods serves its namespace for so long
)

// waitingPods lists the Pods that wait for a node, once for many claims.
type waitingPods struct {
	now func() time.Time

	mu      sync.Mutex
	checked *lru.Cache         // claim UID -> time
	lists   map[string]podList // by namespace
}

type podList struct {
	pods []podClaims
	at   time.Time
}

func newWaitingPods(now func() time.Time) *waitingPods {
	return &waitingPods{now: now, checked: lru.New(checkedClaims), lists: map[string]podList{}}
}

// isDue says whether the claim was not checked for a while, and takes it for checked
// then. The first refusal counts: a scheduler that regards capacities selects no node
// for such a Pod again.
func (w *waitingPods) isDue(claim *v1.PersistentVolumeClaim) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, seen := w.checked.Get(claim.UID); seen && w.now().Sub(at.(time.Time)) < checkEvery {
		return false
	}
	w.checked.Add(claim.UID, w.now())
	return true
}

// list returns the Pods of a namespace that wait for a node and have several claims.
func (w *waitingPods) list(ctx context.Context, client kubernetes.Interface, namespace string) ([]podClaims, error) {
	w.mu.Lock()
	defer w.mu.Unlock() // concurrent calls share one list
	if known, ok := w.lists[namespace]; ok && w.now().Sub(known.at) < podsExpire {
		return known.pods, nil
	}
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=,status.phase=Pending", ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	var pods []podClaims
	for i := range list.Items {
		if claims := claimsOfPod(&list.Items[i]); len(claims) > 1 {
			pods = append(pods, podClaims{pod: list.Items[i].Name, claims: claims})
		}
	}
	for other, known := range w.lists {
		if w.now().Sub(known.at) >= podsExpire {
			delete(w.lists, other)
		}
	}
	w.lists[namespace] = podList{pods, w.now()}
	return pods, nil
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

// volumeOfClaim returns the PersistentVolume that a claim is bound to, nil for none.
func volumeOfClaim(claims, volumes cache.Store, namespace, name string) *v1.PersistentVolume {
	claim, exists, err := claims.GetByKey(cache.ObjectName{Namespace: namespace, Name: name}.String())
	if err != nil || !exists {
		return nil
	}
	pv, exists, err := volumes.GetByKey(claim.(*v1.PersistentVolumeClaim).Spec.VolumeName)
	if err != nil || !exists {
		return nil
	}
	return pv.(*v1.PersistentVolume)
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
