package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	chart "github.com/topodisk/topodisk/test/chart"
)

const startupTaint = "topodisk.io/agent-not-ready"

// nodeTry is a change that a node plugin's token is used for.
type nodeTry struct {
	what    string
	node    string
	patch   any
	refused string // with this; empty: it is allowed
}

// taintedNode is a Node that a group of new nodes begins with, beside what others have set.
func taintedNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kept": "yes"}, Annotations: map[string]string{"kept": "yes"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "example.com/other", Effect: corev1.TaintEffectNoSchedule}, {Key: startupTaint, Effect: corev1.TaintEffectNoSchedule},
		}},
	}
}

// nodeTries are what a thief of the token would do, and last what the plugin does.
func nodeTries(own, other string) []nodeTry {
	set := func(path string, value any) any {
		return []any{map[string]any{"op": "add", "path": path, "value": value}}
	}
	drop := func(path string) any { return []any{map[string]any{"op": "remove", "path": path}} }
	const taints, spec, metadata = "may only remove " + startupTaint, "may only change the taints", "may not change the Node's metadata"
	const foreign = "may only patch the Node that it runs on"
	more := corev1.Taint{Key: "example.com/more", Effect: corev1.TaintEffectNoExecute}
	weaker := corev1.Taint{Key: startupTaint, Effect: corev1.TaintEffectPreferNoSchedule}
	return []nodeTry{
		{"take the startup taint off another Node", other, drop("/spec/taints/1"), foreign},
		{"cordon another Node", other, set("/spec/unschedulable", true), foreign},
		{"label another Node", other, set("/metadata/labels/a", "b"), foreign},
		{"cordon its Node", own, set("/spec/unschedulable", true), spec},
		{"make its Node another instance's", own, set("/spec/providerID", "cn-hangzhou.i-2"), spec},
		{"taint its Node", own, set("/spec/taints/-", more), taints},
		{"weaken the startup taint", own, set("/spec/taints/1", weaker), taints},
		{"remove another taint", own, drop("/spec/taints/0"), taints},
		{"remove all taints", own, drop("/spec/taints"), taints},
		{"remove the startup taint and add another", own, set("/spec/taints", []corev1.Taint{taintedNode("").Spec.Taints[0], more}), taints},
		{"label its Node", own, set("/metadata/labels/node.csi.alibabacloud.com~1disktype.cloud_essd", "available"), metadata},
		{"remove a label of its Node", own, drop("/metadata/labels/kept"), metadata},
		{"annotate its Node", own, set("/metadata/annotations/a", "b"), metadata},
		{"remove an annotation of its Node", own, drop("/metadata/annotations/kept"), metadata},
		{"keep its Node for ever", own, set("/metadata/finalizers", []string{"example.com/never"}), metadata},
		{"change nothing", own, set("/metadata/labels/kept", "yes"), ""},
		{"remove the startup taint", own, drop("/spec/taints/1"), ""},
	}
}

// tryNodePlugin makes the node plugin's account with its role and policy, and tries with the token of a Pod on a node, which the server
// binds to that node, what it may change.
func tryNodePlugin(ctx context.Context, server *server, repo string, r *report) (err error) {
	namespace, err := server.makeNamespace(ctx, "topodisk-node-plugin-", nil)
	if err != nil {
		return err
	}
	own, other := namespace+"-own", namespace+"-other"
	remove, err := installNodePlugin(ctx, server, repo, namespace)
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	nodes := server.client.CoreV1().Nodes()
	for _, name := range []string{own, other} {
		if _, err := nodes.Create(ctx, taintedNode(name), metav1.CreateOptions{}); err != nil {
			return err
		}
		defer func() { _ = nodes.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) }()
	}
	onNode, err := server.podClient(ctx, namespace, own)
	if err != nil {
		return err
	}
	anywhere, err := server.tokenClient(ctx, namespace, nil)
	if err != nil {
		return err
	}
	if err := awaitPolicy(ctx, onNode, other); err != nil {
		return err
	}
	for _, try := range nodeTries(own, other) {
		r.add("node plugin", "may "+try.what+": "+fmt.Sprint(try.refused == ""), judged(patchNode(ctx, onNode, try.node, try.patch), try.refused))
	}
	label := []any{map[string]any{"op": "add", "path": "/metadata/labels/kept", "value": "yes"}}
	err = judged(patchNode(ctx, anywhere, own, label), "may only patch the Node that it runs on")
	r.add("node plugin", "may patch a Node with a token of no node: false", err)
	r.add("node plugin", "others may label its Node: true", patchNode(ctx, server.client, own, label))
	return nil
}

// judged returns an error unless an answer is the refusal that is wanted; none is wanted if it is empty.
func judged(err error, refused string) error {
	switch {
	case refused == "":
		return err
	case err == nil:
		return errors.New("it is allowed")
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), refused):
		return nil
	}
	return fmt.Errorf("it is refused, but not with %q: %w", refused, err)
}

func patchNode(ctx context.Context, client kubernetes.Interface, name string, patch any) error {
	text, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, name, types.JSONPatchType, text, metav1.PatchOptions{})
	return err
}

// awaitPolicy returns once the server has taken role and policy into force.
func awaitPolicy(ctx context.Context, client kubernetes.Interface, other string) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := patchNode(ctx, client, other, []any{map[string]any{"op": "test", "path": "/metadata/name", "value": other}})
		return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy"), nil
	})
	if err != nil {
		return fmt.Errorf("the policy of the node plugin is not at work: %w", err)
	}
	return nil
}

// installNodePlugin makes what the chart has for the node plugin, but for the plugin itself; remove works in any case.
func installNodePlugin(ctx context.Context, server *server, repo, namespace string) (remove func(context.Context) error, err error) {
	var made []*unstructured.Unstructured
	remove = func(ctx context.Context) error {
		var errs []error
		for _, o := range made {
			client, err := server.clientFor(o)
			if err == nil {
				err = client.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	presets, err := chart.Presets(repo)
	if err != nil {
		return remove, err
	}
	manifests, _, err := chart.Render(repo, presets["minimal"], chart.Release{Name: namespace, Namespace: namespace})
	if err != nil {
		return remove, err
	}
	objects, err := chart.Objects(manifests)
	if err != nil {
		return remove, err
	}
	kinds := []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
	for _, o := range objects {
		if !strings.HasSuffix(o.GetName(), "-node") || !slices.Contains(kinds, o.GetKind()) {
			continue
		}
		client, err := server.clientFor(o)
		if err != nil {
			return remove, err
		}
		if _, err := client.Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return remove, err
		}
		made = append(made, o)
	}
	if len(made) != len(kinds) {
		return remove, fmt.Errorf("the chart has %d objects of the kinds %v for the node plugin, want one each", len(made), kinds)
	}
	return remove, nil
}

// podClient returns a client with the token of a Pod of the node plugin on a node.
func (s *server) podClient(ctx context.Context, namespace, node string) (kubernetes.Interface, error) {
	account, err := s.nodeAccount(ctx, namespace)
	if err != nil {
		return nil, err
	}
	pod, err := s.client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "plugin"},
		Spec: corev1.PodSpec{ServiceAccountName: account, NodeName: node, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "plugin", Image: "plugin"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return s.tokenClient(ctx, namespace, &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID})
}

// nodeAccount returns the name of the account that installNodePlugin has made.
func (s *server) nodeAccount(ctx context.Context, namespace string) (string, error) {
	accounts, err := s.client.CoreV1().ServiceAccounts(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=node"})
	if err != nil {
		return "", err
	}
	if len(accounts.Items) != 1 {
		return "", fmt.Errorf("%d accounts of node plugins, want 1", len(accounts.Items))
	}
	return accounts.Items[0].Name, nil
}

// tokenClient returns a client with a token of the node plugin's account, bound to a Pod or to nothing.
func (s *server) tokenClient(ctx context.Context, namespace string, bound *authenticationv1.BoundObjectReference) (kubernetes.Interface, error) {
	account, err := s.nodeAccount(ctx, namespace)
	if err != nil {
		return nil, err
	}
	token, err := s.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken = token.Status.Token
	return kubernetes.NewForConfig(config)
}
