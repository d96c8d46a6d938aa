//go:build e2einstall

package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topodisk/topodisk/test/lab/simulator"
	"github.com/topodisk/topodisk/test/labtest"
)

// TestInstallation is the life of one installation, step by step. A step begins where the one before has ended.
func TestInstallation(t *testing.T) {
	for _, step := range []struct {
		name string
		play func(*scene)
	}{
		{"helm install", (*scene).isInstalled},
		{"a claim from its beginning to its end", (*scene).tellsTheStory},
		{"the other examples", (*scene).appliesTheExamples},
		{"metrics under load", (*scene).isMeasured},
		{"another access key under load", (*scene).rotatesItsKeys},
		{"helm uninstall", (*scene).isUninstalled},
		{"helm install without the Secret, and with a wrong one", (*scene).saysWhatIsWrongWithItsSecret},
		{"the volumes are picked up", (*scene).picksUpItsVolumes},
		{"permissions", (*scene).asksForNoMoreThanItIsGranted},
		{"from the release before to this one, back and on, under load", (*scene).isUpgradedUnderLoad},
		{"in place of another driver, and back", (*scene).takesOver},
		{"a pilot beside ACK's components", (*scene).pilots},
		{"in place of ACK's components, and back", (*scene).takesOverFromACK},
		{"in place of a Helm release of another driver's chart, and back", (*scene).takesOverFromChart},
		{"without Helm", (*scene).isInstalledWithoutHelm},
		{"a disk that is there already", (*scene).usesADiskThatIsThere},
		{"what the pages say", (*scene).hasFollowedEveryPage},
	} {
		begin := time.Now()
		ok := t.Run(step.name, func(t *testing.T) {
			step.play(&scene{&labtest.Scene{T: labtest.T{T: t}, Lab: cluster, Namespace: namespace}})
		})
		t.Logf("%5.1f s  %s", time.Since(begin).Seconds(), step.name)
		if !ok {
			t.Fatal("what follows begins where this step ends")
		}
	}
}

// readyWithin is how long an installation may take until all of its Pods are ready.
const readyWithin = 60 * time.Second

// isInstalled does what the documentation says for a real cluster.
func (s *scene) isInstalled() {
	s.layKey(simulator.KeyID, simulator.Secret)
	begin := time.Now()
	s.follow("docs/install.md", "helm install")
	s.awaitReady(readyWithin - time.Since(begin))
	s.Logf("%.1f s from helm install until all Pods were ready", time.Since(begin).Seconds())
	s.Must(contains(s.follow("docs/monitoring.md", "component=node"), "The kubelet has registered the driver"))
}

// makeSecret makes the Secret of credentials as the documentation does.
func (s *scene) makeSecret(id, secret string) {
	s.Helper()
	s.kubectl("-n "+home+" create secret generic "+secretName, "--from-literal=access-key-id="+id, "--from-literal=access-key-secret="+secret)
}

// tellsTheStory goes on with what deploy/examples show: the Pod writes, a snapshot is cut and read, the claim is copied, the
// volume grows while the Pod runs, and all goes.
func (s *scene) tellsTheStory() {
	s.awaitNotes()
	s.sh("notes", "echo kept >/data/kept && sync")

	s.kubectl("apply -f deploy/examples/snapshot.yaml")
	s.kubectl("wait --for=jsonpath={.status.readyToUse}=true volumesnapshot/notes-monday", limit)
	s.sh("notes", "echo changed >/data/kept && sync")
	s.pod("restored", "notes-restored")
	if got := s.sh("restored", "cat /data/kept"); got != "kept" {
		s.Errorf("the snapshot's copy holds %q, want kept", got)
	}

	s.cutsAGroup()

	s.kubectl("apply -f deploy/examples/clone.yaml")
	s.pod("copy", "notes-copy")
	if got := s.sh("copy", "cat /data/kept"); got != "changed" {
		s.Errorf("the claim's copy holds %q, want changed", got)
	}

	s.kubectl("apply -f deploy/examples/resize.yaml")
	s.kubectl("wait --for=jsonpath={.status.capacity.storage}=40Gi pvc/notes", limit)
	if size := s.sh("notes", "df -k /data | tail -1 | awk '{print int($2/1048576)}'"); size != "39" && size != "40" {
		s.Errorf("the file system has %s GiB, want about 40", size)
	}

	s.kubectl("delete pod restored copy notes --now")
	s.kubectl("delete volumesnapshot notes-monday")
	s.kubectl("delete pvc notes-restored notes-copy notes")
	s.WaitFor("no disk is left", late, s.noDisks)
}

// awaitNotes waits until the Pod of deploy/examples/pod.yaml runs.
func (s *scene) awaitNotes() {
	s.Helper()
	s.kubectl("wait --for=condition=Ready pod/notes", limit)
}

// noDisks reports whether ECS has no disk but those that instances begin with.
func (s *scene) noDisks(ctx context.Context) (bool, error) {
	disks, err := s.Simulator.Disks(ctx, namespace)
	if err == nil && len(disks) > 0 {
		err = fmt.Errorf("left are %v", disks)
	}
	return err == nil, err
}

// hasOnlyNotes reports whether ECS has no disk but that of deploy/examples/pod.yaml, and those that instances begin with.
func (s *scene) hasOnlyNotes(ctx context.Context) (bool, error) {
	disks, err := s.Simulator.Disks(ctx, namespace)
	disks = slices.DeleteFunc(disks, ofTheNotes)
	if err == nil && len(disks) > 0 {
		err = fmt.Errorf("left are %v", disks)
	}
	return err == nil, err
}

// pod makes a Pod that waits in a shell with a claim at /data, and returns when it runs.
func (s *scene) pod(name, claim string) {
	s.Helper()
	s.Must(s.makePod(s.Context(), name, claim))
	s.kubectl("wait --for=condition=Ready pod/"+name, limit)
}

// sh runs a script in a Pod and returns what it says.
func (s *scene) sh(pod, script string) string {
	s.Helper()
	return s.kubectl("exec "+pod+" -- sh -c", script)
}

// logs are what a container of the controller's Pods has said.
func (s *scene) logs(container string) string {
	s.Helper()
	return s.kubectl("-n " + home + " logs -l app.kubernetes.io/component=controller --tail=-1 --prefix -c " + container)
}

func contains(text string, words ...string) error {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return fmt.Errorf("%q is not in %q", word, text)
		}
	}
	return nil
}
