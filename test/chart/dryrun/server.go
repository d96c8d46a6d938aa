package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// server is the API server that objects are offered to.
type server struct {
	config   *rest.Config
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	mapper   meta.RESTMapper
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

// findsClusterID returns an error unless disk-driver got the UID of kube-system.
func (s *server) findsClusterID(ctx context.Context, objects []*unstructured.Unstructured) error {
	system, err := s.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return err
	}
	want := "--cluster-id=" + string(system.UID)
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		var d appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &d); err != nil {
			return err
		}
		for _, container := range d.Spec.Template.Spec.Containers {
			if slices.Contains(container.Args, want) {
				return nil
			}
		}
	}
	return fmt.Errorf("no container has the argument %s", want)
}

// makeNamespace makes a namespace for as long as the program runs, with the
// ServiceAccount that Pods in it need.
func (s *server) makeNamespace(ctx context.Context, prefix string, labels map[string]string) (string, error) {
	made, err := s.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix, Labels: labels}}, metav1.CreateOptions{})
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
