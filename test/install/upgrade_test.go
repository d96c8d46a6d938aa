//go:build e2einstall

package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
)

// What the upgrade begins with: the release before this one, and its commit.
const (
	earlierCommit  = "d84cfc77a7c1fd329144990f2e325fe1f1d4414c"
	earlierVersion = "0.1.0"
)

var earlier programs.EarlierInstallation

// isUpgradedUnderLoad installs the earlier release, goes on to this one, back and on again, and starts every Pod anew, while
// claims come and go and a Pod writes to its disk. Disks that are being made when the version changes are finished by the next.
func (s *scene) isUpgradedUnderLoad() {
	s.helm("uninstall")
	s.awaitGone()
	s.helm("install", append([]string{earlier.Chart}, settings...)...)
	s.awaitReady(late)
	s.driversAre(earlierVersion)
	const writing = "notes-writer"
	s.Must(s.MakeClaim(s.Context(), lab.Claim(namespace, writing, className, "20Gi")))
	s.startWriter(writing, writing)
	load := s.startLoad()
	from := earlierVersion
	for n, to := range []struct{ block, tag string }{{"helm upgrade", releaseVersion}, {"helm rollback", earlierVersion}, {"helm upgrade", releaseVersion}} {
		begin := time.Now()
		claims := s.beginDisks(fmt.Sprintf("%s%d", begunPrefix(from), n))
		s.follow("docs/upgrade.md", to.block)
		s.awaitRollout()
		s.driversAre(to.tag)
		s.finishDisks(claims)
		s.Logf("%s to %s: %.1f s", to.block, to.tag, time.Since(begin).Seconds())
		from = to.tag
	}
	s.kubectl("-n " + home + " rollout restart deployment/topodisk-controller daemonset/topodisk-node")
	s.awaitRollout()
	load.end()
	s.hasWritten(writing)
	s.kubectl("delete pod " + writing + " --now")
	s.kubectl("delete pvc " + writing)
	s.WaitFor("no disk is left", late, s.noDisks)
}

// begunPrefix is what the names of claims begin with whose disks a version begins.
func begunPrefix(version string) string { return "begun-by-" + version + "-" }

// begunSize is the size in GiB of the disks that beginDisks has made.
const begunSize = 37

// answerHeldBack is how long the driver waits for ECS's answers then: less than the 36 s after which it tells the claim that it
// got none.
const answerHeldBack = 30 * time.Second

// beginDisks makes claims, and returns when ECS has made their disks and the driver has yet to hear of it. Where the machine
// needs so long for the last of them that the first is bound by then, it begins again with others.
func (s *scene) beginDisks(name string) []string {
	s.Helper()
	for n := range 5 {
		claims := s.makeBegunClaims(fmt.Sprintf("%s-%d", name, n))
		all, err := s.Client.CoreV1().PersistentVolumeClaims(namespace).List(s.Context(), metav1.ListOptions{})
		s.Must(err)
		bound := slices.IndexFunc(all.Items, func(c corev1.PersistentVolumeClaim) bool {
			return c.Spec.VolumeName != "" && slices.Contains(claims, c.Name)
		})
		if bound < 0 {
			return claims
		}
		s.Logf("claim %s was bound before the disks of all were made", all.Items[bound].Name)
		s.finishDisks(claims)
	}
	s.Fatal("no disks were all made before a claim was bound")
	return nil
}

// makeBegunClaims makes claims, and returns when ECS has made their disks, whose answers it holds back.
func (s *scene) makeBegunClaims(name string) (claims []string) {
	s.Helper()
	for n := range 8 {
		claims = append(claims, fmt.Sprintf("%s-%d", name, n))
	}
	s.Must(s.Simulator.AddFault(s.Context(), ecssim.Fault{
		Action: "CreateDisk", Params: map[string]string{"Size": fmt.Sprintf("^%d$", begunSize)}, Count: len(claims),
		Do: ecssim.FaultDelay, DelayAfter: answerHeldBack,
	}))
	for _, claim := range claims {
		s.Must(s.MakeClaim(s.Context(), lab.Claim(namespace, claim, "load", fmt.Sprintf("%dGi", begunSize))))
	}
	s.WaitFor("ECS has made the disks of "+name, late, func(ctx context.Context) (bool, error) {
		disks, err := s.begunDisks(ctx)
		return len(disks) >= len(claims), err
	})
	return claims
}

// finishDisks sees that every claim is bound, that none has a second disk, and deletes them.
func (s *scene) finishDisks(claims []string) {
	s.Helper()
	s.kubectl("wait --for=jsonpath={.status.phase}=Bound "+limit, prefixed("pvc/", claims)...)
	disks, err := s.begunDisks(s.Context())
	s.Must(err)
	if len(disks) != len(claims) {
		s.Errorf("there are %d disks for %d claims", len(disks), len(claims))
	}
	s.kubectl("delete", prefixed("pvc/", claims)...)
	s.WaitFor("the disks are gone", late, func(ctx context.Context) (bool, error) {
		disks, err := s.begunDisks(ctx)
		return err == nil && len(disks) == 0, err
	})
}

func prefixed(prefix string, names []string) (all []string) {
	for _, name := range names {
		all = append(all, prefix+name)
	}
	return all
}

func (s *scene) begunDisks(ctx context.Context) ([]ecssim.DiskState, error) {
	disks, err := s.Simulator.Disks(ctx, namespace)
	return slices.DeleteFunc(disks, func(d ecssim.DiskState) bool { return d.Size != begunSize }), err
}

// awaitRollout does as the documentation says.
func (s *scene) awaitRollout() {
	s.Helper()
	s.kubectl("-n " + home + " rollout status deployment/topodisk-controller --timeout=2m")
	s.kubectl("-n " + home + " rollout status daemonset/topodisk-node --timeout=2m")
}

// driversAre checks that every Pod that is to stay runs the image of this tag.
func (s *scene) driversAre(tag string) {
	s.Helper()
	pods, err := s.pods(s.Context(), "")
	s.Must(err)
	for _, p := range pods {
		if p.DeletionTimestamp == nil && p.Spec.Containers[0].Image != imageName+":"+tag {
			s.Errorf("%s runs %s, want the tag %s", p.Name, p.Spec.Containers[0].Image, tag)
		}
	}
}

// uninstalling is the time between helm uninstall and the end of the last Pod.
var uninstalling struct{ begins, ends time.Time }

// isUninstalled leaves a Pod running that writes to its disk.
func (s *scene) isUninstalled() {
	s.kubectl("apply -f deploy/examples/pod.yaml")
	s.awaitNotes()
	s.sh("notes", "echo kept >/data/kept && sync")
	before := s.kubectl("get pv -o name")
	uninstalling.begins = time.Now()
	s.follow("docs/install.md", "helm uninstall")
	s.awaitGone()
	uninstalling.ends = time.Now()
	if after := s.kubectl("get pv -o name"); after != before || after == "" {
		s.Errorf("volumes were %q and are %q", before, after)
	}
	if got := s.sh("notes", "cat /data/kept && date >>/data/notes && sync && echo written"); got != "kept\nwritten" {
		s.Errorf("the Pod says %q", got)
	}
	if disks, err := s.Simulator.Disks(s.Context(), namespace); err != nil || len(disks) != 1 || len(disks[0].Attachments) != 1 {
		s.Errorf("disks are %v, %v, want one that is attached", disks, err)
	}
}

// picksUpItsVolumes sees that what an earlier installation made is moved, changed and deleted by the one that is there now.
func (s *scene) picksUpItsVolumes() {
	s.kubectl("delete pod notes --now")
	s.pod("reader", "notes")
	if got := s.sh("reader", "cat /data/kept"); got != "kept" {
		s.Errorf("the file holds %q, want kept", got)
	}
	s.follow("docs/how-it-decides.md", "audit")
	s.follow("docs/how-it-decides.md", "journal list")
	s.kubectl("apply -f deploy/examples/modify.yaml")
	s.kubectl("wait --for=jsonpath={.status.currentVolumeAttributesClassName}=fast pvc/notes", limit)
	s.kubectl("delete pod reader --now")
	s.kubectl("delete pvc notes")
	s.WaitFor("no disk is left", late, s.noDisks)
}

// ofTheNotes says whether a disk is that of deploy/examples/pod.yaml.
func ofTheNotes(d ecssim.DiskState) bool {
	return strings.HasPrefix(d.Tags[disk.ClaimNameTag], "notes")
}

// controllerPods are those that are to stay.
func (s *scene) controllerPods(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := s.pods(ctx, "controller")
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), err
}
