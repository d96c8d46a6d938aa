package golden

import (
	"cmp"
	"os"
	"regexp"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Right is one verb on one resource, in one namespace or, if that is empty, in all, on the object of one name or, if that is empty, on all.
type Right struct{ Verb, Group, Resource, Namespace, Name string }

// Rights are what roles grant.
type Rights []Right

// Allow says whether a request may be made. One for all namespaces has none, and one for a list no name.
func (r Rights) Allow(asked Right) bool {
	return slices.ContainsFunc(r, func(granted Right) bool {
		granted.Namespace, granted.Name = cmp.Or(granted.Namespace, asked.Namespace), cmp.Or(granted.Name, asked.Name)
		return granted == asked
	})
}

var manifests = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// RightsOf returns what the ClusterRoles and Roles of the names grant that a page has in its blocks of YAML.
func RightsOf(t testing.TB, page string, names ...string) Rights {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var rights Rights
	for _, block := range manifests.FindAllStringSubmatch(string(text), -1) {
		for _, manifest := range regexp.MustCompile(`(?m)^---$`).Split(block[1], -1) {
			var role rbacv1.Role // a ClusterRole has the same fields, and more
			if err := yaml.Unmarshal([]byte(manifest), &role); err != nil {
				t.Fatalf("%s: %v:\n%s", page, err, manifest)
			}
			if i := slices.Index(names, role.Name); i >= 0 {
				names = slices.Delete(slices.Clone(names), i, i+1)
				rights = append(rights, rightsOf(role.ObjectMeta, role.Rules)...)
			}
		}
	}
	if len(names) > 0 {
		t.Fatalf("%s has no roles %q", page, names)
	}
	return rights
}

func rightsOf(role metav1.ObjectMeta, rules []rbacv1.PolicyRule) (all Rights) {
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range namesIn(rule) {
						all = append(all, Right{verb, group, resource, role.Namespace, name})
					}
				}
			}
		}
	}
	return all
}

// namesIn returns the names that a rule is for; an empty one stands for all.
func namesIn(rule rbacv1.PolicyRule) []string {
	if len(rule.ResourceNames) == 0 {
		return []string{""}
	}
	return rule.ResourceNames
}
