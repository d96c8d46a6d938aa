//go:build e2e

package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/test/lab"
)

// P10: a leader that can't read what it must know to begin says so, and lets another one try.
func TestLeaderThatCannotBeginGivesTheLeaseUp(t *testing.T) {
	for name, test := range map[string]struct {
		resource, verb, step, says string
	}{
		"the journal can't be read":        {"configmaps", "get", "journal", "the journal can't be read"},
		"the volumes can't be listed":      {"persistentvolumes", "list", "caches", "it can't be seen whether the caches are up to date"},
		"the claims can no more be listed": {"persistentvolumeclaims", "list", "caches", "it can't be seen whether the caches are up to date"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.electLeaders()
			s.startLeader(first)
			s.Must(s.startStandBy(second))
			allow := s.forbid(test.resource, test.verb)
			s.Topodisk.Kill(first)
			for _, page := range []string{"/healthz", "/healthz/leader-election", "/readyz"} {
				s.awaitPage(second, page, http.StatusServiceUnavailable, test.says)
			}
			s.awaitEvent(metav1.NamespaceSystem, request.ObjectName(lab.DriverName), test.says)
			if series := fmt.Sprintf("topodisk_provisioner_recovery_failures_total{step=%q}", test.step); s.metricOf(second, series) < 1 {
				t.Errorf("%s is 0", series)
			}
			s.ends(second)
			if holder := s.holder(); holder != "" {
				t.Errorf("it has ended, and %s holds the Lease still", holder)
			}
			allow()
			s.Must(s.startStandBy(first))
			s.Must(s.claim(s.Context(), "served", atOnce))
			s.bound("served")
			s.awaitPage(first, "/readyz", http.StatusOK, "")
		})
	}
}

// controllerAccount is whom the provisioner is to the API server.
const controllerAccount = "system:serviceaccount:kube-system:topodisk-controller"

// forbid takes a verb from all roles of the installation that give it for a resource, until allow is called.
func (s *scene) forbid(resource, verb string) (allow func()) {
	s.Helper()
	roles, err := s.Client.RbacV1().Roles(metav1.NamespaceSystem).List(s.Context(), metav1.ListOptions{})
	s.Must(err)
	everywhere, err := s.Client.RbacV1().ClusterRoles().List(s.Context(), metav1.ListOptions{})
	s.Must(err)
	var back []func(context.Context) error
	for _, role := range roles.Items {
		if rules, less := without(role.Rules, resource, verb); less && strings.HasPrefix(role.Name, "topodisk-") {
			changed := role.DeepCopy()
			changed.Rules = rules
			_, err := s.Client.RbacV1().Roles(role.Namespace).Update(s.Context(), changed, metav1.UpdateOptions{})
			s.Must(err)
			back = append(back, func(ctx context.Context) error {
				role.ResourceVersion = ""
				_, err := s.Client.RbacV1().Roles(role.Namespace).Update(ctx, &role, metav1.UpdateOptions{})
				return err
			})
		}
	}
	for _, role := range everywhere.Items {
		if rules, less := without(role.Rules, resource, verb); less && strings.HasPrefix(role.Name, "topodisk-") {
			changed := role.DeepCopy()
			changed.Rules = rules
			_, err := s.Client.RbacV1().ClusterRoles().Update(s.Context(), changed, metav1.UpdateOptions{})
			s.Must(err)
			back = append(back, func(ctx context.Context) error {
				role.ResourceVersion = ""
				_, err := s.Client.RbacV1().ClusterRoles().Update(ctx, &role, metav1.UpdateOptions{})
				return err
			})
		}
	}
	s.awaitAllowed(s.Context(), resource, verb, false)
	allow = func() {
		for _, give := range back {
			s.Must(give(context.Background()))
		}
		back = nil
		s.awaitAllowed(context.Background(), resource, verb, true)
	}
	s.Cleanup(allow)
	return allow
}

// without takes a verb for a resource from rules, and says whether they had it.
func without(rules []rbacv1.PolicyRule, resource, verb string) (left []rbacv1.PolicyRule, less bool) {
	for _, rule := range rules {
		if rule = *rule.DeepCopy(); slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, verb) {
			rest := *rule.DeepCopy()
			rest.Resources = slices.DeleteFunc(rest.Resources, func(r string) bool { return r == resource })
			if len(rest.Resources) > 0 {
				left = append(left, rest)
			}
			rule.Resources = []string{resource}
			rule.Verbs = slices.DeleteFunc(rule.Verbs, func(v string) bool { return v == verb })
			less = true
		}
		if len(rule.Verbs) > 0 {
			left = append(left, rule)
		}
	}
	return left, less
}

// awaitAllowed waits until the API server's authorizer has heard of the change.
func (s *scene) awaitAllowed(ctx context.Context, resource, verb string, allowed bool) {
	s.Helper()
	attributes := &authorizationv1.ResourceAttributes{Namespace: metav1.NamespaceSystem, Verb: verb, Resource: resource}
	if resource == "configmaps" {
		attributes.Name = firstPage
	}
	s.Must(s.await(ctx, "the change of roles has come into effect", limit, func(ctx context.Context) error {
		review, err := s.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: controllerAccount, ResourceAttributes: attributes},
		}, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed != allowed {
			err = errors.New("not yet")
		}
		return err
	}))
}

// awaitPage waits until a page of a provisioner has that status and text.
func (s *scene) awaitPage(name, path string, status int, text string) {
	s.Helper()
	s.Must(s.await(s.Context(), fmt.Sprintf("%s of %s is %d and says %q", path, name, status, text), limit, func(context.Context) error {
		answer, err := http.Get(s.URL(name, path))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err == nil && (answer.StatusCode != status || !strings.Contains(string(body), text)) {
			err = fmt.Errorf("it is %d: %s", answer.StatusCode, body)
		}
		return err
	}))
}

// holder is who holds the Lease.
func (s *scene) holder() string {
	s.Helper()
	lease, err := s.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(s.Context(), request.ObjectName(lab.DriverName), metav1.GetOptions{})
	s.Must(err)
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}
