//go:build e2e

package crash

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

// Whatever becomes of claim, node, class and Secret while nobody knows whether a disk was made: the same is asked again
// until that is known.

const removeSelectedNode = `{"metadata":{"annotations":{"` + lab.SelectedNode + `":null}}}`

func TestDeselectedClaimWithUnknownDiskLeavesNone(t *testing.T) {
	s := newScene(t)
	h := s.withDiskUnheard("withdrawn", waits)
	s.deletePod("withdrawn") // or the scheduler would choose again
	s.patchClaim("withdrawn", removeSelectedNode)
	h.release(lose)
	s.Must(s.deleteClaim(s.Context(), "withdrawn"))
}

// The same is asked again for the node that it was first asked for; what that leads to is of no use in another zone, and goes.
func TestReselectedClaimWithUnknownDiskGetsAnother(t *testing.T) {
	s := newScene(t)
	h := s.withDiskUnheard("moved", waits)
	d := s.onlyDisk("moved")
	s.moved[d.Tags[disk.VolumeNameTag]] = true
	s.deletePod("moved")
	s.patchClaim("moved", `{"metadata":{"annotations":{"`+lab.SelectedNode+`":"`+s.nodeElsewhere(d.Zone)+`"}}}`)
	h.release(lose)
	b := s.bound("moved")
	if only := s.onlyDisk("moved"); b.Disk() != only.ID || only.ID == d.ID || only.Zone == d.Zone {
		t.Errorf("the claim has disk %s, and there is %s in zone %s; the one whose reply was lost is %s in %s", b.Disk(), only.ID, only.Zone, d.ID, d.Zone)
	}
	calls, err := s.Simulator.Calls(s.Context(), "CreateDisk")
	s.Must(err)
	var first ecssim.Call
	for _, c := range calls {
		switch {
		case c.Disk != d.ID:
		case first.Number == 0:
			first = c
		default:
			if diff := cmp.Diff(first.Params, c.Params); diff != "" {
				t.Errorf("a repeated call differs (-first +this):\n%s", diff)
			}
		}
	}
}

// nodeElsewhere is a node of another zone.
func (s *scene) nodeElsewhere(zone string) string {
	for _, n := range s.Nodes {
		if n.Zone != zone {
			return n.Name
		}
	}
	s.Fatal("all nodes are in one zone")
	return ""
}

func TestRetriesDoNotEndWhileADiskMayExist(t *testing.T) {
	s := newScene(t)
	const most = 15 // at which the library once gave up
	s.restartProvisioner("--retry-interval-start=100ms", "--retry-interval-max=200ms")
	s.Must(s.claim(s.Context(), "witness", atOnce)) // of a claim that is younger than its leadership the provisioner knows that there is no disk
	s.bound("witness")
	leads := time.Now()
	s.Must(s.await(s.Context(), "the provisioner has led for a while", limit, func(context.Context) error {
		if time.Since(leads) < 5*time.Second {
			return errors.New("not yet")
		}
		return nil
	}))
	s.Must(s.Simulator.AddFault(s.Context(), ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultLostReply, Count: 1}))
	s.Must(s.Simulator.AddFault(s.Context(), ecssim.Fault{Action: "DescribeDisks", Do: ecssim.FaultError}))
	s.Must(s.claim(s.Context(), "endless", atOnce))
	s.Must(s.await(s.Context(), "the driver is asked more than fifteen times", limit, func(context.Context) error {
		if s.count("CreateVolume") <= most {
			return errors.New("not yet")
		}
		return nil
	}))
	s.onlyDisk("endless")
	s.Must(s.deleteClaim(s.Context(), "endless"))
}

func TestUnknownDiskIsDeletedWhateverElseIsDeleted(t *testing.T) {
	for _, c := range []struct {
		what   string
		class  string
		vanish func(s *scene)
		comes  func(s *scene) // back, for the disk's deletion needs it
	}{
		{"node", waits, func(s *scene) {
			node, err := s.selectedNode(s.Context(), "orphan")
			s.Must(err)
			s.Must(s.removeNode(s.Context(), node))
		}, nil},
		{"class", "short-lived", func(s *scene) {
			s.Must(s.Client.StorageV1().StorageClasses().Delete(s.Context(), "short-lived", metav1.DeleteOptions{}))
		}, nil},
		{"Secret", "with-secret", func(s *scene) {
			s.Must(s.Client.CoreV1().Secrets(namespace).Delete(s.Context(), "keys", metav1.DeleteOptions{}))
		}, (*scene).makeSecret},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newScene(t)
			s.makeClass(c.class)
			h := s.withDiskUnheard("orphan", c.class)
			d := s.onlyDisk("orphan")
			c.vanish(s)
			h.release(lose)
			s.Must(s.deleteClaim(s.Context(), "orphan"))
			if c.comes != nil {
				s.awaitVolume(d.ID, "saved", func(pv *corev1.PersistentVolume) bool { return pv != nil })
				c.comes(s)
			}
		})
	}
}

// makeClass makes a class that goes with the scene, and the Secret that it names.
func (s *scene) makeClass(name string) {
	s.Helper()
	ctx := s.Context()
	class := lab.Class(name, "Immediate", map[string]string{"type": "cloud_essd"})
	switch name {
	case waits:
		return
	case "with-secret":
		class.Parameters["csi.storage.k8s.io/secret-name"] = "keys"
		class.Parameters["csi.storage.k8s.io/secret-namespace"] = namespace
		s.allowSecrets()
		s.makeSecret()
	}
	s.Must(s.MakeClass(ctx, class))
	s.Cleanup(func() {
		s.Must(ignoreNotFound(s.Client.StorageV1().StorageClasses().Delete(context.Background(), name, metav1.DeleteOptions{})))
	})
}

func (s *scene) makeSecret() {
	s.Helper()
	s.Must(s.createSecret())
}

// createSecret makes the Secret that the class with-secret names, or finds it.
func (s *scene) createSecret() error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys"},
		StringData: map[string]string{"access-key-id": simulator.KeyID, "access-key-secret": simulator.Secret}}
	_, err := s.Client.CoreV1().Secrets(namespace).Create(s.Context(), secret, metav1.CreateOptions{})
	return ignoreExists(err)
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// awaitNoClaim waits until a claim that was deleted is gone.
func (s *scene) awaitNoClaim(name string) {
	s.Helper()
	s.Must(s.await(s.Context(), "claim "+name+" is gone", limit, func(ctx context.Context) error {
		_, err := s.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return errors.New("it is there")
		}
		return ignoreNotFound(err)
	}))
}

// allowSecrets lets the provisioner read Secrets of the namespace, as the chart's rbac.provisionerSecrets does.
func (s *scene) allowSecrets() {
	s.Helper()
	meta := metav1.ObjectMeta{Name: "topodisk-provisioner-secrets"}
	role := &rbacv1.Role{ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "watch"}}}}
	_, err := s.Client.RbacV1().Roles(namespace).Create(s.Context(), role, metav1.CreateOptions{})
	s.Must(ignoreExists(err))
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "topodisk-controller", Namespace: metav1.NamespaceSystem}},
	}
	_, err = s.Client.RbacV1().RoleBindings(namespace).Create(s.Context(), binding, metav1.CreateOptions{})
	s.Must(ignoreExists(err))
}

func TestRecreatedClaimGetsADiskOfItsOwn(t *testing.T) {
	s := newScene(t)
	h := s.withDiskUnheard("twin", atOnce)
	first := s.onlyDisk("twin")
	s.Must(s.deleteClaim(s.Context(), "twin"))
	s.awaitNoClaim("twin")
	s.Must(s.claim(s.Context(), "twin", atOnce))
	h.release(lose)
	if b := s.bound("twin"); b.Disk() == first.ID {
		t.Errorf("the claim has disk %s, which was made for the one before it", first.ID)
	}
}

func TestPodDeletedDuringCreateLeavesTheClaimItsDisk(t *testing.T) {
	s := newScene(t)
	h := s.withDiskUnheard("early", waits)
	d := s.onlyDisk("early")
	s.deletePod("early")
	h.release(pass)
	if b := s.bound("early"); b.Disk() != d.ID {
		t.Errorf("the claim has disk %s, want %s", b.Disk(), d.ID)
	}
	s.Must(s.pod(s.Context(), "early", func(*corev1.Pod) {}))
	pod, err := s.AwaitRunning(s.Context(), namespace, "early", limit)
	s.Must(err)
	if zone := s.ZoneOf(pod.Spec.NodeName); zone != d.Zone {
		t.Errorf("the Pod runs in %s, its disk is in %s", zone, d.Zone)
	}
}
