package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	chart "github.com/topodisk/topodisk/test/chart"
)

// server is the API server that objects are offered to.
type server struct {
	config   *rest.Config
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	mapper   meta.ResettableRESTMapper
	warnings *warnings
	made     []string // namespaces
}

func connect(kubeconfig string) (*server, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	s := &server{config: config, warnings: &warnings{}}
	config.QPS = -1 // the server has limits of its own
	config.WarningHandlerWithContext = s.warnings
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if s.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	s.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.client.Discovery()))
	return s, nil
}

// offer applies the object server-side as a dry run with strict field checks.
// It returns the server's refusal, or its warnings as an error.
func (s *server) offer(ctx context.Context, object *unstructured.Unstructured) error {
	client, err := s.clientFor(object)
	if err != nil {
		return err
	}
	text, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	force := true
	s.warnings.texts = nil
	_, err = client.Patch(ctx, object.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{
		DryRun:          []string{metav1.DryRunAll},
		FieldManager:    "topodisk-dry-run",
		FieldValidation: metav1.FieldValidationStrict,
		Force:           &force,
	})
	if err == nil && len(s.warnings.texts) > 0 {
		return errors.New("warning: " + strings.Join(s.warnings.texts, "; "))
	}
	return err
}

func (s *server) mapping(object *unstructured.Unstructured) (*meta.RESTMapping, error) {
	kind := object.GroupVersionKind()
	return s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
}

func (s *server) namespaced(object *unstructured.Unstructured) (bool, error) {
	mapping, err := s.mapping(object)
	if err != nil {
		return false, err
	}
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

func (s *server) clientFor(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	mapping, err := s.mapping(object)
	if err != nil {
		return nil, err
	}
	resource := s.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return resource.Namespace(object.GetNamespace()), nil
	}
	return resource, nil
}

// proveStrict returns an error unless the server refuses a misspelt field and
// warns of a Pod that is not restricted: otherwise the report would mean nothing.
func (s *server) proveStrict(ctx context.Context) error {
	namespace, err := s.makeNamespace(ctx, "topodisk-proof-", map[string]string{"pod-security.kubernetes.io/warn": "restricted"})
	if err != nil {
		return err
	}
	wrong := map[string]any{"replicas": int64(1), "replicass": int64(1)}
	if err := s.offer(ctx, deployment(namespace, wrong)); err == nil || !strings.Contains(err.Error(), "replicass") {
		return fmt.Errorf("the server does not refuse the misspelt field spec.replicass of a Deployment but answers %v", err) //nolint:errorlint // there may be no error
	}
	if err := s.offer(ctx, deployment(namespace, nil)); err == nil || !strings.Contains(err.Error(), "PodSecurity") {
		return fmt.Errorf("the server does not warn of a Pod that breaks the restricted Pod Security Standard but answers %v", err) //nolint:errorlint // there may be no error
	}
	return nil
}

// deployment is a valid one, but for the further fields of its spec, whose Pods are not restricted.
func deployment(namespace string, more map[string]any) *unstructured.Unstructured {
	labels := map[string]any{"app": "proof"}
	spec := map[string]any{
		"selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "proof", "image": "proof"}}},
		},
	}
	for field, value := range more {
		spec[field] = value
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "proof", "namespace": namespace},
		"spec":     spec,
	}}
}

// installSnapshotKinds makes the CustomResourceDefinitions of snapshots, as they
// come with the client of external-snapshotter, and returns when they are served.
func (s *server) installSnapshotKinds(ctx context.Context) error {
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-csi/external-snapshotter/client/v8").Output()
	if err != nil {
		return fmt.Errorf("find the kinds of snapshots (run this in test/chart): %w", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "config/crd/*.storage.k8s.io_*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no kinds of snapshots in %s: %w", dir, err)
	}
	definitions := s.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		objects, err := chart.Objects(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, object := range objects {
			if _, err := definitions.Create(ctx, object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
			if err := awaitServed(ctx, definitions, object.GetName()); err != nil {
				return err
			}
		}
	}
	s.mapper.Reset()
	return nil
}

// awaitServed returns when the server has taken a definition into service.
func awaitServed(ctx context.Context, definitions dynamic.ResourceInterface, name string) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		object, err := definitions.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		status, _, err := unstructured.NestedFieldNoCopy(object.Object, "status", "conditions")
		conditions, _ := status.([]any) // null at first
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
				return true, nil
			}
		}
		return false, err
	})
}

// makeNamespace makes a namespace for as long as the program runs, with the
// ServiceAccount that Pods in it need.
func (s *server) makeNamespace(ctx context.Context, prefix string, labels map[string]string) (string, error) {
	made, err := s.client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix, Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	s.made = append(s.made, made.Name)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err = s.client.CoreV1().ServiceAccounts(made.Name).Create(ctx, account, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // the controller-manager makes it too, where one runs
		err = nil
	}
	return made.Name, err
}

func (s *server) deleteNamespaces(ctx context.Context) error {
	var errs []error
	for _, name := range s.made {
		errs = append(errs, s.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}))
	}
	return errors.Join(errs...)
}

// warnings collects what the server warns of in answers to this program, which asks one thing at a time.
type warnings struct {
	texts []string
}

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	w.texts = append(w.texts, text)
}
