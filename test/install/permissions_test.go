//go:build e2einstall

package install

import (
	"slices"
	"strings"

	"github.com/topodisk/topodisk/test/lab/audit"
)

// The chart's two accounts, and whom each role of theirs is for, by the end of its name.
var accounts = map[string]map[string]string{
	"topodisk-controller": {
		"adoption": "disk-driver", "cluster-id": "disk-driver", "driver": "disk-driver", "node-facts": "disk-driver",
		"provisioner": "disk-provisioner", "journal": "disk-provisioner", "capacities": "disk-provisioner", "leader-election": "disk-provisioner",
		"attacher": "csi-attacher", "resizer": "csi-resizer", "snapshotter": "csi-snapshotter",
	},
	"topodisk-node": {"node": "disk-driver"},
}

// Why no step here needs a permission.
const (
	again    = "an event that is said again"
	soldOut  = "a zone that has sold out"
	waiting  = "a claim that waits for what it names"
	notGrown = "a file system that can't grow"
)

// rare are the permissions that no step here needs, but for lists beside watches.
var rare = map[string]map[string]string{
	"topodisk-controller": {
		"topodisk-attacher: patch events":                                                             again,
		"topodisk-capacities: delete csistoragecapacities.storage.k8s.io":                             "a zone that has stock again, or a class that goes",
		"topodisk-capacities: update csistoragecapacities.storage.k8s.io":                             soldOut,
		"topodisk-driver: patch events":                                                               again,
		"topodisk-journal: patch configmaps by name":                                                  "several claims under way at the same time",
		"topodisk-provisioner: get nodes":                                                             "a selected node that may be gone",
		"topodisk-provisioner: get storageclasses.storage.k8s.io":                                     "a volume whose class names a Secret for its deletion",
		"topodisk-provisioner: get volumeattributesclasses.storage.k8s.io":                            "a claim with a VolumeAttributesClass",
		"topodisk-provisioner: list pods":                                                             soldOut,
		"topodisk-provisioner: patch events":                                                          again,
		"topodisk-provisioner: watch volumeattributesclasses.storage.k8s.io":                          waiting,
		"topodisk-provisioner: watch volumesnapshotcontents.snapshot.storage.k8s.io":                  waiting,
		"topodisk-provisioner: watch volumesnapshots.snapshot.storage.k8s.io":                         waiting,
		"topodisk-resizer: patch events":                                                              again,
		"topodisk-snapshotter: patch events":                                                          again,
		"topodisk-snapshotter: patch volumegroupsnapshotcontents/status.groupsnapshot.storage.k8s.io": "a group that cannot be cut",
	},
	"topodisk-node": {
		"topodisk-node: create events":                        notGrown,
		"topodisk-node: get persistentvolumes":                notGrown,
		"topodisk-node: patch events":                         again,
		"topodisk-node: get volumeattachments.storage.k8s.io": "a volume on its way to or from a node while its kubelet asks how many it takes",
	},
}

// isListBesideWatch says whether a permission is to list what the same role lets watch: caches watch from the beginning,
// and list where a server doesn't know how to do that.
func isListBesideWatch(permission string, granted []audit.Permission) bool {
	watch := strings.Replace(permission, ": list ", ": watch ", 1)
	return watch != permission && slices.ContainsFunc(granted, func(p audit.Permission) bool { return p.String() == watch })
}

// asksForNoMoreThanItIsGranted holds what every program has asked of the API server since the beginning against the roles
// that the chart makes for it: nothing is refused, and nothing is granted that nobody uses.
func (s *scene) asksForNoMoreThanItIsGranted() {
	log, err := audit.Open(s.AuditLog())
	s.Must(err)
	defer log.Close()
	requests, err := log.Read()
	s.Must(err)
	// helm uninstall takes the roles away before the Pods have ended.
	requests = slices.DeleteFunc(requests, func(r audit.Request) bool {
		return r.Received.After(uninstalling.begins) && r.Received.Before(uninstalling.ends)
	})
	for account, owners := range accounts {
		granted, err := audit.Granted(s.Context(), s.Client, home, account)
		s.Must(err)
		u := &audit.Usage{Account: "system:serviceaccount:" + home + ":" + account, Granted: granted, Owners: owners}
		u.Add(requests)
		for _, request := range u.Refused() {
			s.Errorf("%s: not allowed to the program that asks: %s", account, request)
		}
		programs := map[string]bool{}
		var all []string
		for _, program := range owners {
			if !programs[program] {
				programs[program], all = true, append(all, program)
			}
		}
		for _, permission := range u.Unused(all, rare[account]) {
			if !isListBesideWatch(permission, granted) {
				s.Errorf("%s: nobody uses %s", account, permission)
			}
		}
		s.Logf("%s has %d permissions; the audit log has %d requests of all", account, len(granted), len(requests))
	}
}
