package explain

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// A command that the owner of a Pod or claim may run is about objects of its namespace, which the role edit allows, or lists classes.
var tenants = regexp.MustCompile(`^kubectl (?:(?:get|describe|delete|patch) (?:pod|pvc|volumesnapshot|events)\b.* --namespace [a-z0-9-]+|topodisk why pod .* --namespace [a-z0-9-]+|get storageclasses\b.*)$`)

func TestOwnersAreToldWhatTheyMayRun(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil || len(files) < 50 {
		t.Fatalf("%d dumps: %v", len(files), err)
	}
	told := 0
	for _, path := range files {
		f := readFacts(t, path)
		v := Why(f)
		if v.State != Waits || v.Actor != User && (v.Actor != Nobody || f.Subject.Namespace == "") {
			continue
		}
		for _, command := range typed(v) {
			told++
			if !tenants.MatchString(command) {
				t.Errorf("%s: %s is told, %s: %s", path, v.Actor, v.Cause, command)
			}
		}
	}
	if told < 15 {
		t.Errorf("only %d commands", told)
	}
}

func TestASoldOutZoneIsAnsweredWithAWayOut(t *testing.T) {
	v := Why(factsOf(t, "zone-sold-out"))
	if v.Cause != ZoneSoldOut || !strings.Contains(v.Message, "without its node affinity Pod web-0 may go to a zone that has") ||
		!strings.HasPrefix(typed(v)[0], "kubectl get storageclasses ") {
		t.Error(textOf(v))
	}
}

// A volume is being made if the journal says so. A Lease says who leads, but not of a holder that may be gone.
func TestBeingMadeIsNotInferred(t *testing.T) {
	for name, test := range map[string]struct {
		renewed time.Duration // before the facts were read
		valid   int32
		record  bool
		unread  bool
		state   State
		cause   Cause
		says    string
	}{
		"a record":                      {2 * time.Second, 15, true, false, Waits, BeingProvisioned, "is being made"},
		"no record":                     {2 * time.Second, 15, false, false, Waits, BeingProvisioned, "a disk-provisioner leads, and its journal has no request for it yet"},
		"a journal that can't be read":  {2 * time.Second, 15, false, true, Waits, BeingProvisioned, "a disk-provisioner leads, and its journal could not be read"},
		"a clock that is a bit behind":  {-10 * time.Second, 15, true, false, Waits, BeingProvisioned, "is being made"},
		"renewed in the future":         {-2 * time.Hour, 15, true, false, Unknown, "", "which is in the future"},
		"not renewed, and valid long":   {5 * time.Minute, 600, false, false, Unknown, "", "was renewed last 5m0s ago, which is long"},
		"not renewed, and valid longer": {5 * time.Minute, 3600, true, false, Unknown, "", "can't be told"},
		"not renewed, and no more":      {5 * time.Minute, 15, true, false, Waits, NoProvisioner, "its Lease was not renewed for 5m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			f := factsOf(t, "nobody-provisions")
			for i := range f.Leases {
				f.Leases[i].Spec.RenewTime, f.Leases[i].Spec.LeaseDurationSeconds = ptr.To(metav1.NewMicroTime(f.At.Add(-test.renewed))), ptr.To(test.valid)
			}
			f.Journal = nil
			if test.record {
				f.Journal = []Request{{ClaimUID: string(f.Claims[0].UID)}}
			}
			if test.unread {
				f.Unread = []Unread{{Kind: kindConfigMap, Namespace: f.Leases[0].Namespace, Reason: "forbidden"}}
			}
			if v := Why(f); v.State != test.state || v.Cause != test.cause || !strings.Contains(v.Message, test.says) {
				t.Errorf("got %s", textOf(v))
			}
		})
	}
}

// A reference may begin with a hyphen, unlike the name of an object: kubectl would send its token wherever --server says.
func TestAReferenceIsNotTakenForAFlag(t *testing.T) {
	f := factsOf(t, "released-volume-kept")
	pv := &f.Volumes[0]
	pv.DeletionTimestamp, pv.Finalizers, pv.Status.Phase = ptr.To(metav1.NewTime(f.At)), []string{"kubernetes.io/pv-protection"}, corev1.VolumeBound
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "--server=http://x"}
	if v, want := Why(f), []string{"kubectl describe pvc/--server=http://x --namespace shop"}; !slices.Equal(typed(v), want) {
		t.Errorf("%q, want %q", typed(v), want)
	}
}
