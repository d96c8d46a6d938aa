// Command dryrun offers every object of the chart to a real API server, without
// making it: each preset as helm would install it, the plain manifests of
// deploy and every example. It tries the chart's admission policies, and runs the
// commands of the documentation that are for it. The server's validation, defaulting, admission and
// field checks are all at work; nothing is stored but namespaces of its own,
// which it deletes again, and the kinds of snapshots if the server lacks them.
//
//	cd test/chart && go run ./dryrun --kubeconfig=FILE
//
// It prints a line for each object and exits 1 if one is refused or warned of.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	chart "github.com/topodisk/topodisk/test/chart"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file of an administrator of the API server (required)")
	repo := flag.String("repo", "../..", "root of the repository")
	flag.Parse()
	if *kubeconfig == "" {
		fmt.Fprintln(os.Stderr, "dryrun: --kubeconfig is not set: the kubeconfig file of a running API server, for example --kubeconfig=$HOME/.kube/config")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *kubeconfig, *repo); err != nil {
		fmt.Fprintln(os.Stderr, "dryrun:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, repo string) (err error) {
	server, err := connect(kubeconfig)
	if err != nil {
		return err
	}
	defer func() {
		if cleanErr := server.deleteNamespaces(context.WithoutCancel(ctx)); err == nil {
			err = cleanErr
		}
	}()
	if err := server.installSnapshotKinds(ctx); err != nil {
		return err
	}
	if err := server.proveStrict(ctx); err != nil {
		return err
	}
	r := &report{}
	if err := offerPresets(ctx, server, repo, r); err != nil {
		return err
	}
	if err := offerManifests(ctx, server, repo, r); err != nil {
		return err
	}
	checkAccess(ctx, server, r)
	if err := runCommands(ctx, kubeconfig, repo, r); err != nil {
		return err
	}
	if err := tryAdmission(ctx, server, repo, r); err != nil {
		return err
	}
	if err := tryNodePlugin(ctx, server, repo, r); err != nil {
		return err
	}
	r.add("deploy/kustomization.yaml", "makes what topodisk.yaml has", customised(ctx, repo))
	return r.end()
}

// offerPresets offers each preset in a namespace that warns of every Pod which
// breaks the restricted Pod Security Standard.
func offerPresets(ctx context.Context, server *server, repo string, r *report) error {
	presets, err := chart.Presets(repo)
	if err != nil {
		return err
	}
	namespace, err := server.makeNamespace(ctx, "topodisk-presets-", map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted",
		"pod-security.kubernetes.io/warn":    "restricted",
	})
	if err != nil {
		return err
	}
	privileged, err := server.makeNamespace(ctx, "topodisk-nodes-", nil)
	if err != nil {
		return err
	}
	for _, name := range chart.Names(presets) {
		values := presets[name]
		manifests, _, err := chart.Render(repo, values, chart.Release{Name: "topodisk", Namespace: namespace})
		if err != nil {
			return fmt.Errorf("preset %s: %w", name, err)
		}
		objects, err := chart.Objects(manifests)
		if err != nil {
			return fmt.Errorf("preset %s: %w", name, err)
		}
		for _, object := range objects {
			if object.GetKind() == "DaemonSet" { // the node plugin mounts, which takes privileges
				object.SetNamespace(privileged)
			}
		}
		offer(ctx, server, "preset "+name, objects, r)
	}
	return nil
}

// offerManifests offers the plain YAML; what names no namespace goes into one of its own.
func offerManifests(ctx context.Context, server *server, repo string, r *report) error {
	manifests, err := chart.Manifests(repo)
	if err != nil {
		return err
	}
	namespace, err := server.makeNamespace(ctx, "topodisk-examples-", nil)
	if err != nil {
		return err
	}
	for _, file := range chart.Names(manifests) {
		for _, object := range manifests[file] {
			namespaced, err := server.namespaced(object)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if namespaced && object.GetNamespace() == "" {
				object.SetNamespace(namespace)
			}
		}
		offer(ctx, server, file, manifests[file], r)
	}
	return nil
}

// customised returns an error unless the kustomization, as it is, makes the
// objects of topodisk.yaml: then its patches meet what they are for.
func customised(ctx context.Context, repo string) error {
	text, err := exec.CommandContext(ctx, "kubectl", "kustomize", filepath.Join(repo, "deploy")).Output()
	if err != nil {
		return fmt.Errorf("kubectl kustomize deploy: %w", err)
	}
	made, err := chart.Objects(string(text))
	if err != nil {
		return err
	}
	manifests, err := chart.Manifests(repo)
	if err != nil {
		return err
	}
	plain := manifests["deploy/topodisk.yaml"]
	for _, want := range plain {
		if !slices.ContainsFunc(made, func(o *unstructured.Unstructured) bool { return reflect.DeepEqual(o.Object, want.Object) }) {
			return fmt.Errorf("%s %s is another one, or missing", want.GetKind(), want.GetName())
		}
	}
	if len(made) != len(plain) {
		return fmt.Errorf("%d objects instead of %d", len(made), len(plain))
	}
	return nil
}

func offer(ctx context.Context, server *server, from string, objects []*unstructured.Unstructured, r *report) {
	for _, object := range objects {
		name := object.GetName()
		if object.GetNamespace() != "" {
			name = object.GetNamespace() + "/" + name
		}
		if object.GroupVersionKind().Group == monitoringGroup {
			fmt.Printf("typed    %s: %s %s: the server has no such kind; the chart's tests hold it to its Go type\n", from, object.GetKind(), name)
			continue
		}
		r.add(from, object.GetKind()+" "+name, server.offer(ctx, object))
	}
}

// monitoringGroup has kinds of Prometheus' operator, whose definitions come with no Go module.
const monitoringGroup = "monitoring.coreos.com"

// report counts and prints what became of each object.
type report struct {
	accepted, refused int
}

func (r *report) add(from, what string, err error) {
	if err != nil {
		r.refused++
		fmt.Printf("REFUSED  %s: %s: %v\n", from, what, err)
		return
	}
	r.accepted++
	fmt.Printf("ok       %s: %s\n", from, what)
}

func (r *report) end() error {
	fmt.Printf("dryrun: %d accepted, %d refused\n", r.accepted, r.refused)
	if r.refused > 0 {
		return fmt.Errorf("%d of %d refused", r.refused, r.accepted+r.refused)
	}
	return nil
}
