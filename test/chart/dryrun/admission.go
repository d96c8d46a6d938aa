package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	chart "github.com/topodisk/topodisk/test/chart"
)

// policy is what the chart's ValidatingAdmissionPolicy has for one kind of class.
type policy struct {
	Kind, Group, Driver string
	Versions            []string
	Unknown             policyRule
	Rules               []policyRule
}

type policyRule struct {
	Message       string
	Refuses       map[string]string
	RefusesMounts []string
}

// class is a class of the kind with these parameters and mount options.
func (p policy) class(driver string, parameters map[string]string, mountOptions ...string) *unstructured.Unstructured {
	values := map[string]any{}
	for key, value := range parameters {
		values[key] = value
	}
	object := map[string]any{
		"apiVersion": p.Group + "/" + p.Versions[0], "kind": p.Kind, "metadata": map[string]any{"name": "to-be-judged"}, p.Driver: driver, "parameters": values,
	}
	if strings.Contains(p.Kind, "Snapshot") {
		object["deletionPolicy"] = "Delete"
	}
	if len(mountOptions) > 0 {
		var options []any
		for _, option := range mountOptions {
			options = append(options, option)
		}
		object["mountOptions"] = options
	}
	return &unstructured.Unstructured{Object: object}
}

// tryAdmission puts the policy into force and offers, for every rule, a class
// that breaks it, and every class of the presets and the examples.
func tryAdmission(ctx context.Context, server *server, repo string, r *report) error {
	policies, err := readPolicies(repo)
	if err != nil {
		return err
	}
	remove, err := enforce(ctx, server, repo, policies)
	if err != nil {
		return err
	}
	defer func() { _ = remove(context.WithoutCancel(ctx)) }()
	for _, p := range policies {
		for _, rule := range append(p.Rules, p.Unknown) {
			err := server.offer(ctx, p.class(driverName, rule.Refuses, rule.RefusesMounts...))
			what := fmt.Sprintf("%s with %v %v refused", p.Kind, rule.Refuses, rule.RefusesMounts)
			switch {
			case err == nil:
				err = fmt.Errorf("it is accepted")
			case strings.Contains(err.Error(), rule.Message):
				err = nil
			default:
				err = fmt.Errorf("it is refused, but not with %q: %w", rule.Message, err)
			}
			r.add("admission policy", what, err)
		}
		r.add("admission policy", p.Kind+" of another driver let pass", server.offer(ctx, p.class("nas.example.com", map[string]string{"anything": "goes"})))
	}
	return offerClasses(ctx, server, repo, r)
}

// driverName is the default of the chart.
const driverName = "diskplugin.csi.alibabacloud.com"

func readPolicies(repo string) ([]policy, error) {
	text, err := os.ReadFile(filepath.Join(repo, "charts/topodisk/files/admission.json"))
	if err != nil {
		return nil, err
	}
	var policies []policy
	return policies, json.Unmarshal(text, &policies)
}

// enforce makes the policies and returns once they are at work, with what takes them away.
func enforce(ctx context.Context, server *server, repo string, policies []policy) (remove func(context.Context) error, err error) {
	presets, err := chart.Presets(repo)
	if err != nil {
		return nil, err
	}
	values := presets["minimal"]
	values["admissionPolicy"] = map[string]any{"enabled": true}
	values["nodePlugin"] = map[string]any{"patchNode": false} // its policy is tried with Nodes
	manifests, _, err := chart.Render(repo, values, chart.Release{Name: "topodisk-dry-run", Namespace: "kube-system"})
	if err != nil {
		return nil, err
	}
	objects, err := chart.Objects(manifests)
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return !strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy")
	})
	remove = func(ctx context.Context) error {
		for _, o := range objects {
			if client, err := server.clientFor(o); err == nil {
				_ = client.Delete(ctx, o.GetName(), metav1.DeleteOptions{}) // what is left is for the driver's classes alone
			}
		}
		return nil
	}
	for _, o := range objects {
		client, err := server.clientFor(o)
		if err != nil {
			return remove, err
		}
		if _, err := client.Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return remove, err
		}
	}
	for _, p := range policies {
		err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			return server.offer(ctx, p.class(driverName, p.Unknown.Refuses)) != nil, nil
		})
		if err != nil {
			return remove, fmt.Errorf("the policy for %s is not at work: %w", p.Kind, err)
		}
	}
	return remove, nil
}

// offerClasses offers every class of the driver that presets and examples have.
func offerClasses(ctx context.Context, server *server, repo string, r *report) error {
	all, err := chart.Manifests(repo)
	if err != nil {
		return err
	}
	presets, err := chart.Presets(repo)
	if err != nil {
		return err
	}
	for name, values := range presets {
		values["driverName"] = driverName // so that the policy is about them
		manifests, _, err := chart.Render(repo, values, chart.Release{Name: "topodisk", Namespace: "kube-system"})
		if err != nil {
			return fmt.Errorf("preset %s: %w", name, err)
		}
		if all["preset "+name], err = chart.Objects(manifests); err != nil {
			return fmt.Errorf("preset %s: %w", name, err)
		}
	}
	for _, from := range slices.Sorted(maps.Keys(all)) {
		for _, o := range all[from] {
			if strings.HasSuffix(o.GetKind(), "Class") && o.GetKind() != "PriorityClass" {
				r.add("admission policy", fmt.Sprintf("%s %s of %s let pass", o.GetKind(), o.GetName(), from), server.offer(ctx, o))
			}
		}
	}
	return nil
}
