//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/audit"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

// party are programs that share an account.
type party struct {
	account  string
	owners   map[string]string // the programs, by the end of the names of their Roles
	programs []string          // that scenes run
	rare     map[string]string // permissions that no scene can make use of, and why
}

// All scenes are played with the permissions that the chart and deploy/ram-policy.json give. None is to be missing, and none
// is to be given for nothing.
var parties = []party{{
	account: "topodisk-controller", programs: []string{"disk-driver", "disk-provisioner"},
	owners: map[string]string{
		"adoption": "disk-driver", "cluster-id": "disk-driver", "driver": "disk-driver", "node-facts": "disk-driver", "provisioner": "disk-provisioner",
		"journal": "disk-provisioner", "capacities": "disk-provisioner", "leader-election": "disk-provisioner", "provisioner-secrets": "disk-provisioner",
		"namespace-labels": "disk-provisioner",
	},
	rare: map[string]string{
		"topodisk-driver: patch events":              "one driver's second event of the same words: ECS has answered in between, and it asks once a minute then",
		"topodisk-namespace-labels: get namespaces":  "a claim has to come before the cache shows its namespace",
		"topodisk-namespace-labels: list namespaces": "an API server that doesn't send by a watch what is there",
		"topodisk-provisioner: patch events":         "one provisioner's second event of the same words: it is written after a minute",
	},
}, {
	account: upstreamName + "-controller", programs: []string{"csi-provisioner"},
	owners: map[string]string{"provisioner": "csi-provisioner", "capacities": "csi-provisioner", "leader-election": "csi-provisioner"},
	rare: map[string]string{
		upstreamName + "-capacities: update csistoragecapacities.storage.k8s.io": "the scheduler has to choose a zone in the moments between its selling out and the program's hearing of it",
	},
}}

// checkPermissions ends driver and provisioner, for a watch is noted when it ends, and returns what was asked for without
// permission; and, if every scene was played, what nobody has asked for.
func checkPermissions(ctx context.Context, l *lab.Lab) error {
	whole := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" && !testing.Short() &&
		version.AtLeast(programs.FirstWithAttributesClasses) // before, scenes are left out
	err := errors.Join(checkActions(ctx, l, whole), l.Topodisk.DrainController())
	for _, p := range parties {
		err = errors.Join(err, p.check(ctx, l, whole))
	}
	return err
}

// check holds the audit log against the Roles of the account.
func (p party) check(ctx context.Context, l *lab.Lab, whole bool) error {
	granted, err := audit.Granted(ctx, l.Client, metav1.NamespaceSystem, p.account)
	if err != nil {
		return err
	}
	log, err := audit.Open(l.AuditLog())
	if err != nil {
		return err
	}
	defer log.Close()
	usage := &audit.Usage{Account: "system:serviceaccount:" + metav1.NamespaceSystem + ":" + p.account, Granted: granted, Owners: p.owners}
	unused := func() []string { return usage.Unused(p.programs, p.rare) }
	err = l.Await(ctx, "every permission is used", 10*time.Second, func(context.Context) (bool, error) {
		requests, err := log.Read()
		usage.Add(requests)
		return err == nil && (!whole || len(unused()) == 0), err
	})
	var problems []error
	for _, request := range usage.Refused() {
		problems = append(problems, fmt.Errorf("its own Roles don't allow %s", request))
	}
	if whole && err != nil {
		for _, permission := range unused() {
			problems = append(problems, fmt.Errorf("no scene has made use of %s", permission))
		}
	}
	return errors.Join(problems...)
}

// underPolicy has ECS allow no more than deploy/ram-policy.json does for a cluster, from now on.
func underPolicy(ctx context.Context, l *lab.Lab, clusterID string) error {
	return underPolicyOf(ctx, l, todaysPolicy, clusterID)
}

// The RAM policies, from here.
var (
	todaysPolicy = filepath.Join("..", "..", "deploy", "ram-policy.json")
	oldPolicy    = filepath.Join("..", "..", "diskdriver", "testdata", "ram-policy-0.1.0.json") // that of disks without disk.OwnerTag
)

func underPolicyOf(ctx context.Context, l *lab.Lab, file, clusterID string) error {
	policy, err := readPolicy(file, clusterID)
	if err != nil {
		return err
	}
	return l.Simulator.SetPolicy(ctx, policy)
}

// checkActions holds the simulator's counts of calls against the RAM policy, under which all scenes are played.
func checkActions(ctx context.Context, l *lab.Lab, whole bool) error {
	policy, err := readPolicy(todaysPolicy, simulator.ClusterID)
	if err != nil {
		return err
	}
	state, err := l.Simulator.State(ctx)
	if err != nil {
		return err
	}
	var problems []error
	for action, codes := range state.Calls {
		if n := codes["Forbidden.RAM"]; n > 0 {
			problems = append(problems, fmt.Errorf("deploy/ram-policy.json doesn't allow %d calls of %s that scenes have made", n, action))
		}
	}
	for _, statement := range policy.Statement {
		for _, action := range statement.Action {
			if action = strings.TrimPrefix(action, "ecs:"); whole && state.Calls[action][""] == 0 {
				problems = append(problems, fmt.Errorf("deploy/ram-policy.json allows %s, which no scene has called", action))
			}
		}
	}
	return errors.Join(problems...)
}

// readPolicy returns the RAM policy of a file for a cluster.
func readPolicy(file, clusterID string) (*ecssim.Policy, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	policy := &ecssim.Policy{}
	return policy, json.Unmarshal([]byte(strings.ReplaceAll(string(text), "REPLACE-WITH-THE-CLUSTER-ID", clusterID)), policy)
}
