// Arrows checks that every package of the module imports only what the
// layout of the project allows it to. `make lint` runs it.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const module = "github.com/topodisk/topodisk"

const (
	csiSpec    = "github.com/container-storage-interface/spec/lib/go/csi"
	csiLib     = "github.com/kubernetes-csi/csi-lib-utils"
	prometheus = "github.com/prometheus/client_golang"
	ecsSDK     = "github.com/aliyun/alibaba-cloud-sdk-go"
	grpc       = "google.golang.org/grpc"
	protobuf   = "google.golang.org/protobuf"
	klog       = "k8s.io/klog/v2"
	kubernetes = "k8s.io/kubernetes"
	clientGo   = "k8s.io/client-go"
)

// rule is one package's row: what it imports itself, besides the standard
// library, and what must not even be reached through others.
type rule struct {
	allowed   []string // import paths, and all below them
	unreached []string
}

// rules has a row for every package of the product. A pattern that ends in /
// stands for all packages below it.
var rules = map[string]rule{
	"diskdriver/disk":       {allowed: []string{module + "/internal/shell"}},
	"diskdriver/suspension": {},
	"diskdriver/params":     {allowed: []string{module + "/diskdriver/disk"}},
	"diskdriver/listing":    {allowed: []string{module + "/diskdriver/disk"}},
	"diskdriver/capability": {allowed: []string{module + "/diskdriver/disk", csiSpec}},
	"diskdriver/creation":   {allowed: []string{module + "/diskdriver/disk", grpc + "/metadata", grpc + "/peer"}},
	"diskdriver/snapshot": {
		allowed: []string{module + "/diskdriver/disk", module + "/diskdriver/creation", module + "/diskdriver/listing", module + "/diskdriver/params",
			module + "/topology", csiSpec, protobuf, klog},
	},
	"diskdriver/volume": {
		allowed: []string{module + "/diskdriver/disk", module + "/diskdriver/capability", module + "/diskdriver/creation", module + "/diskdriver/listing",
			module + "/diskdriver/internal/deadline", module + "/diskdriver/params", module + "/diskdriver/snapshot", module + "/internal/affinity",
			module + "/internal/sleep", module + "/internal/unused", module + "/topology", csiSpec, protobuf, klog},
	},
	"internal/errorinfo": {allowed: []string{grpc + "/status", "google.golang.org/genproto/googleapis/rpc/errdetails"}},
	"internal/escape":    {},
	"internal/shell":     {},
	"explain": {
		allowed: []string{module + "/diskdriver/disk", module + "/explain/fit", module + "/internal/errorinfo", module + "/internal/podclaims",
			module + "/internal/shell", module + "/provisioner/request", module + "/topology", csiSpec, protobuf, "k8s.io/api", "k8s.io/apimachinery"},
		unreached: []string{clientGo, ecsSDK},
	},
	"explain/fit": {
		allowed: []string{module + "/diskdriver/disk", module + "/internal/podclaims", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/component-helpers",
			klog},
		unreached: []string{clientGo, ecsSDK},
	},
	"explain/plan": {
		allowed: []string{module + "/explain", module + "/explain/fit", module + "/diskdriver/disk", module + "/diskdriver/params",
			module + "/internal/escape", module + "/internal/podclaims", module + "/internal/shell", module + "/provisioner/request", module + "/topology",
			"k8s.io/api", "k8s.io/apimachinery"},
		unreached: []string{clientGo, ecsSDK},
	},
	"explain/lists": {
		allowed:   []string{clientGo, "k8s.io/apimachinery"},
		unreached: []string{ecsSDK, module + "/diskdriver", module + "/provisioner"},
	},
	"explain/plan/reader": {
		allowed: []string{module + "/explain", module + "/explain/lists", module + "/explain/plan", clientGo, "k8s.io/api", "k8s.io/apimachinery",
			"golang.org/x/sync"},
		unreached: []string{ecsSDK, module + "/diskdriver/ecs", module + "/diskdriver/node"},
	},
	"internal/audit": {
		allowed: []string{module + "/internal/escape", module + "/internal/podclaims", module + "/internal/shell", module + "/topology",
			"k8s.io/api", "k8s.io/apimachinery"},
		unreached: []string{clientGo, ecsSDK, module + "/diskdriver", module + "/provisioner"},
	},
	"explain/collect": {
		allowed: []string{module + "/explain", module + "/internal/escape", module + "/internal/podclaims", module + "/provisioner/journal",
			module + "/provisioner/request", module + "/diskdriver/nodefacts", clientGo, "k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/yaml"},
		unreached: []string{module + "/ecssim", module + "/diskdriver/ecs", ecsSDK, "k8s.io/cli-runtime"},
	},
	"explain/inventory": {
		allowed: []string{module + "/internal/audit", module + "/internal/escape", module + "/internal/podclaims", module + "/provisioner/request",
			"k8s.io/api", "k8s.io/apimachinery"},
		unreached: []string{clientGo, ecsSDK, module + "/diskdriver"},
	},
	"explain/usage": {},
	"explain/prices": {
		allowed:   []string{module + "/diskdriver/disk", "sigs.k8s.io/yaml"},
		unreached: []string{clientGo, ecsSDK},
	},
	"explain/survey": {
		allowed: []string{module + "/diskdriver/disk", module + "/internal/audit", module + "/explain/lists", module + "/internal/podclaims",
			module + "/internal/shell", module + "/provisioner/journal", module + "/provisioner/request", clientGo, "k8s.io/api", "k8s.io/apimachinery"},
		unreached: []string{module + "/diskdriver/ecs", module + "/ecssim", ecsSDK},
	},
	"topology": {
		allowed:   []string{csiSpec, protobuf, "k8s.io/api", "k8s.io/apimachinery"},
		unreached: []string{clientGo, ecsSDK},
	},
	"diskdriver/attachment": {
		allowed:   []string{module + "/diskdriver/disk", module + "/diskdriver/internal/deadline", module + "/internal/sleep", prometheus},
		unreached: []string{module + "/diskdriver/ecs", module + "/ecssim", clientGo, ecsSDK},
	},
	"diskdriver": {
		allowed: []string{module + "/diskdriver", module + "/internal/errorinfo", module + "/internal/escape", module + "/internal/outofstock",
			module + "/internal/sleep", module + "/internal/unused", module + "/topology",
			csiSpec, csiLib + "/protosanitizer", grpc, "google.golang.org/genproto/googleapis/rpc/errdetails",
			protobuf, prometheus, klog},
		unreached: []string{module + "/diskdriver/ecs", module + "/diskdriver/node", module + "/diskdriver/nodefacts", module + "/ecssim", clientGo, ecsSDK},
	},
	"diskdriver/ecs": {
		allowed: []string{module + "/diskdriver/disk", module + "/diskdriver/ecs", module + "/diskdriver/internal", module + "/internal/sleep",
			ecsSDK, prometheus},
		unreached: []string{csiSpec, grpc, clientGo, module + "/ecssim"},
	},
	"diskdriver/ecs/credentials": {
		allowed:   []string{module + "/diskdriver/disk", module + "/diskdriver/ecs/internal", prometheus, klog},
		unreached: []string{csiSpec, grpc, clientGo, ecsSDK, module + "/ecssim"},
	},
	"diskdriver/ecs/signature": {
		allowed:   []string{module + "/diskdriver/ecs/credentials"},
		unreached: []string{csiSpec, grpc, clientGo, ecsSDK, module + "/ecssim"},
	},
	"diskdriver/ecs/batch": {
		allowed:   []string{module + "/diskdriver/disk", module + "/diskdriver/internal", prometheus},
		unreached: []string{csiSpec, grpc, clientGo, ecsSDK, module + "/ecssim"},
	},
	"diskdriver/ecs/transport": {
		allowed: []string{module + "/diskdriver/disk", module + "/diskdriver/suspension", module + "/diskdriver/ecs/credentials",
			module + "/diskdriver/ecs/ratelimit", module + "/diskdriver/ecs/signature", module + "/diskdriver/ecs/internal",
			module + "/diskdriver/internal", ecsSDK, prometheus, klog},
		unreached: []string{csiSpec, grpc, clientGo, module + "/ecssim"},
	},
	"diskdriver/internal/deadline":     {},
	"diskdriver/ecs/internal/endpoint": {},
	"diskdriver/ecs/internal/redact":   {allowed: []string{module + "/internal/escape"}},
	"diskdriver/ecs/internal/ecstest":  {allowed: []string{module + "/diskdriver/disk", module + "/ecssim", prometheus}},
	"diskdriver/ecs/instancequeue": {
		allowed:   []string{module + "/diskdriver/disk"},
		unreached: []string{ecsSDK},
	},
	"diskdriver/ecs/ratelimit": {allowed: []string{module + "/diskdriver/disk"}},
	"diskdriver/adoption": {
		allowed:   []string{module + "/diskdriver/disk", clientGo, "k8s.io/apimachinery", klog},
		unreached: []string{module + "/diskdriver/ecs", module + "/ecssim", ecsSDK},
	},
	"diskdriver/nodefacts": {
		allowed: []string{module + "/diskdriver/disk", module + "/internal/leader", module + "/topology", clientGo,
			"k8s.io/api", "k8s.io/apimachinery", klog},
		unreached: []string{module + "/diskdriver/ecs", module + "/ecssim", ecsSDK},
	},
	"internal/outofstock": {allowed: []string{grpc + "/codes", grpc + "/status", "google.golang.org/genproto/googleapis/rpc/errdetails"}},
	"internal/affinity":   {allowed: []string{grpc + "/metadata"}},
	"internal/unused": {
		allowed: []string{grpc + "/codes", grpc + "/metadata", grpc + "/status", "google.golang.org/genproto/googleapis/rpc/errdetails"},
	},
	"internal/podclaims": {
		allowed:   []string{"k8s.io/api", "k8s.io/component-helpers/storage/ephemeral"},
		unreached: []string{clientGo},
	},
	"internal/sleep": {},
	"internal/leader": {
		allowed:   []string{clientGo, "k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", klog, "github.com/google/uuid"},
		unreached: []string{module + "/provisioner", module + "/diskdriver"},
	},
	"internal/otherdriver": {
		allowed: []string{module + "/internal/escape", module + "/internal/leader", module + "/internal/sleep", clientGo, "k8s.io/api", "k8s.io/apimachinery",
			"k8s.io/utils", klog, prometheus},
		unreached: []string{module + "/provisioner", module + "/diskdriver"},
	},
	"provisioner/claim": {
		allowed: []string{module + "/internal/leader", module + "/internal/outofstock", module + "/internal/podclaims", module + "/internal/unused",
			module + "/internal/errorinfo", module + "/internal/escape", module + "/provisioner", module + "/topology", csiSpec, grpc, protobuf, prometheus,
			klog, clientGo, "k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", "k8s.io/component-helpers/scheduling/corev1/nodeaffinity"},
		unreached: []string{module + "/explain", module + "/diskdriver", module + "/ecssim", module + "/provisioner/internal/provisionertest", ecsSDK},
	},
	"provisioner/lib6": {
		allowed: []string{module + "/provisioner/request", module + "/provisioner/watch", clientGo, prometheus, "k8s.io/api", "k8s.io/apimachinery",
			"sigs.k8s.io/sig-storage-lib-external-provisioner/v6"},
	},
	"provisioner/journal": {
		allowed:   []string{clientGo, klog, "k8s.io/api", "k8s.io/apimachinery"},
		unreached: []string{module + "/topology", csiSpec, grpc},
	},
	"provisioner/csiconn": {
		allowed:   []string{module + "/internal/unused", csiSpec, csiLib, grpc, klog, "k8s.io/apimachinery"},
		unreached: []string{module + "/diskdriver", module + "/ecssim", clientGo + "/kubernetes", ecsSDK},
	},
	"provisioner/request": {
		allowed:   []string{module + "/internal/escape", module + "/topology", csiSpec, protobuf, "k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils/ptr"},
		unreached: []string{clientGo},
	},
	"provisioner/capacity": {
		allowed: []string{module + "/provisioner/stock", module + "/topology", csiSpec, grpc, clientGo, klog,
			"k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils/ptr"},
		unreached: []string{module + "/provisioner/watch", module + "/provisioner/journal", module + "/provisioner/csiconn"},
	},
	"provisioner/watch": {
		allowed: []string{module + "/internal/podclaims", module + "/internal/sleep", module + "/provisioner/request", clientGo, klog, "k8s.io/api",
			"k8s.io/apimachinery"},
		unreached: []string{module + "/provisioner/journal", module + "/provisioner/csiconn"},
	},
	"provisioner/source": {
		allowed: []string{module + "/provisioner/request", module + "/provisioner/watch", csiSpec, klog, clientGo,
			"k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils/ptr"},
		unreached: []string{module + "/provisioner/journal", module + "/provisioner/stock", module + "/provisioner/csiconn", module + "/internal/leader"},
	},
	"provisioner/deletion": {
		allowed: []string{module + "/internal/affinity", module + "/internal/errorinfo", module + "/internal/unused", module + "/provisioner/internal/liveness",
			module + "/provisioner/internal/turns", module + "/provisioner/request", module + "/provisioner/watch", module + "/topology",
			csiSpec, grpc, klog, clientGo, "k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils/lru"},
		unreached: []string{module + "/provisioner/journal", module + "/provisioner/source", module + "/provisioner/stock",
			module + "/provisioner/csiconn", module + "/internal/leader"},
	},
	"provisioner/internal/liveness": {},
	"provisioner/internal/turns":    {allowed: []string{clientGo}},
	"provisioner/internal/provisionertest": {
		allowed: []string{module + "/test/golden", module + "/topology", clientGo, csiSpec, grpc, protobuf, prometheus, "k8s.io/api", "k8s.io/apimachinery",
			"k8s.io/utils/ptr"},
	},
	"provisioner/stock": {
		allowed:   []string{module + "/topology", csiSpec, protobuf, "k8s.io/api", "k8s.io/apimachinery"},
		unreached: []string{clientGo},
	},
	"provisioner": {
		allowed: []string{module + "/internal/audit", module + "/internal/errorinfo", module + "/internal/escape", module + "/internal/leader",
			module + "/internal/sleep", module + "/provisioner", module + "/topology", csiSpec, csiLib, grpc, protobuf, prometheus, klog, clientGo,
			"k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", "golang.org/x/sync", "sigs.k8s.io/sig-storage-lib-external-provisioner/v6"},
		unreached: []string{module + "/diskdriver", module + "/ecssim", module + "/explain", module + "/provisioner/internal/provisionertest", ecsSDK},
	},
	"diskdriver/node": {
		allowed: []string{module + "/diskdriver/disk", csiSpec, grpc, klog,
			"k8s.io/mount-utils", "k8s.io/kubelet", "k8s.io/utils", "golang.org/x/sys", "golang.org/x/sync", "github.com/google/uuid"},
		unreached: []string{module + "/diskdriver/ecs", module + "/ecssim", clientGo, ecsSDK},
	},
	"ecssim": {
		allowed: []string{module + "/ecssim/actions", module + "/ecssim/config", module + "/ecssim/faults", module + "/ecssim/state", module + "/ecssim/wire"},
	},
	"ecssim/actions": {
		allowed: []string{module + "/ecssim/config", module + "/ecssim/faults", module + "/ecssim/state", module + "/ecssim/wire"},
	},
	"ecssim/config": {},
	"ecssim/wire":   {},
	"ecssim/state":  {allowed: []string{module + "/ecssim/config"}, unreached: []string{"net/http"}},
	"ecssim/faults": {allowed: []string{module + "/ecssim/config", module + "/ecssim/wire"}},
	"ecssim/admin":  {allowed: []string{module + "/ecssim"}},
	"ecssim/facts":  {allowed: []string{module + "/ecssim"}},
	"ecssim/bodies": {allowed: []string{module + "/ecssim/state"}},
	"cmd/internal/cli": {
		allowed:   []string{prometheus, "github.com/prometheus/client_model", klog, clientGo, "k8s.io/component-base/metrics", "github.com/spf13/pflag"},
		unreached: []string{module + "/ecssim", module + "/provisioner", module + "/diskdriver"},
	},
	"cmd/disk-driver": {
		allowed: []string{module + "/cmd/internal/cli", module + "/diskdriver", module + "/internal/sleep", module + "/topology", csiSpec, prometheus, grpc,
			klog, clientGo, "k8s.io/api", "k8s.io/apimachinery", "github.com/spf13/pflag"},
		unreached: []string{module + "/ecssim", module + "/provisioner"},
	},
	"cmd/disk-provisioner": {
		allowed: []string{module + "/cmd/internal/cli", module + "/internal/audit", module + "/internal/leader", module + "/internal/otherdriver",
			module + "/internal/sleep", module + "/provisioner", module + "/diskdriver/disk", csiLib, prometheus, klog, clientGo, "k8s.io/api",
			"github.com/spf13/pflag"},
		unreached: []string{module + "/ecssim", module + "/diskdriver/ecs", module + "/diskdriver/node", module + "/diskdriver/nodefacts", ecsSDK},
	},
	"cmd/ecs-simulator": {allowed: []string{module + "/cmd/internal/cli", module + "/ecssim", klog, "github.com/spf13/pflag", "golang.org/x/sync"}},
	"cmd/kubectl-topodisk": { // audit reads ECS with the user's keys
		allowed: []string{module + "/explain", module + "/diskdriver/ecs", module + "/internal/audit", module + "/internal/escape", module + "/internal/shell",
			module + "/internal/sleep", clientGo, "k8s.io/api", "k8s.io/apimachinery",
			"k8s.io/cli-runtime", "sigs.k8s.io/yaml", "github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term"},
		unreached: []string{module + "/ecssim", module + "/diskdriver/node", "k8s.io/kubectl"},
	},
	"deploy": {},
	"test/":  {allowed: []string{""}},
}

func main() {
	packages, err := list()
	if err != nil {
		fmt.Fprintln(os.Stderr, "arrows:", err)
		os.Exit(2)
	}
	var wrong []string
	for _, p := range packages {
		wrong = append(wrong, check(p)...)
	}
	if len(wrong) > 0 {
		fmt.Fprintln(os.Stderr, strings.Join(wrong, "\n"))
		os.Exit(1)
	}
	fmt.Printf("arrows: %d packages import what they may\n", len(packages))
}

// goPackage is what `go list` says of a package.
type goPackage struct {
	ImportPath string
	Doc        string // the first sentence of the comment
	Imports    []string
	Deps       []string
}

func list() ([]goPackage, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Doc,Imports,Deps", module+"/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []goPackage
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

// check returns a line for every arrow that points the wrong way.
func check(p goPackage) []string {
	name := strings.TrimPrefix(p.ImportPath, module+"/")
	r, ok := ruleFor(name)
	if !ok {
		return []string{fmt.Sprintf("%s: has no row in test/arrows; add one that says what it may import", name)}
	}
	var wrong []string
	for _, imported := range p.Imports {
		if !isStandard(imported) && !slices.ContainsFunc(r.allowed, func(allowed string) bool { return within(imported, allowed) }) {
			wrong = append(wrong, fmt.Sprintf("%s: imports %s, which its row in test/arrows does not allow", name, imported))
		}
	}
	for _, reached := range p.Deps {
		if slices.ContainsFunc(append(r.unreached, kubernetes), func(not string) bool { return within(reached, not) }) {
			wrong = append(wrong, fmt.Sprintf("%s: reaches %s, which its row in test/arrows forbids", name, reached))
		}
	}
	return wrong
}

func ruleFor(name string) (rule, bool) {
	if r, ok := rules[name]; ok {
		return r, true
	}
	for pattern, r := range rules {
		if strings.HasSuffix(pattern, "/") && strings.HasPrefix(name, pattern) {
			return r, true
		}
	}
	return rule{}, false
}

// within says whether an import path is root or below it; everything is below the empty root.
func within(path, root string) bool {
	return root == "" || path == root || strings.HasPrefix(path, root+"/")
}

func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}
