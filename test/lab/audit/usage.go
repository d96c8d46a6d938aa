package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Permission is one verb on one kind of objects that a Role or ClusterRole grants to an account.
type Permission struct {
	Role      string // that grants it
	Namespace string // in which; empty for everywhere
	Verb      string
	Group     string
	Resource  string   // with a subresource: persistentvolumeclaims/status
	Names     []string // of the objects; none for all
}

// String is the role, the verb and the objects: topodisk-provisioner: patch persistentvolumes.
func (p Permission) String() string { return fmt.Sprintf("%s: %s %s", p.Role, p.Verb, p.objects()) }

func (p Permission) objects() string {
	text := p.Resource
	if p.Group != "" {
		text += "." + p.Group
	}
	if len(p.Names) > 0 {
		text += " by name"
	}
	return text
}

// allows says whether the request needs no more than the permission.
func (p Permission) allows(r Request) bool {
	return p.Verb == r.Verb && p.Group == r.Object.Group && p.Resource == r.resource() &&
		(p.Namespace == "" || p.Namespace == r.Object.Namespace) && (len(p.Names) == 0 || slices.Contains(p.Names, r.Object.Name))
}

// Granted returns what is granted to a ServiceAccount itself, as the API server has it now.
func Granted(ctx context.Context, client kubernetes.Interface, namespace, account string) ([]Permission, error) {
	rbac := client.RbacV1()
	everywhere, err := rbac.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	somewhere, err := rbac.RoleBindings(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	is := func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == namespace && s.Name == account
	}
	var all []Permission
	for _, b := range everywhere.Items {
		if slices.ContainsFunc(b.Subjects, is) {
			role, err := rbac.ClusterRoles().Get(ctx, b.RoleRef.Name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			all = append(all, permissions(role.Name, "", role.Rules)...)
		}
	}
	for _, b := range somewhere.Items {
		if slices.ContainsFunc(b.Subjects, is) && b.RoleRef.Kind == "Role" {
			role, err := rbac.Roles(b.Namespace).Get(ctx, b.RoleRef.Name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			all = append(all, permissions(role.Name, b.Namespace, role.Rules)...)
		}
	}
	return all, nil
}

func permissions(role, namespace string, rules []rbacv1.PolicyRule) (all []Permission) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, Permission{Role: role, Namespace: namespace, Verb: verb, Group: group, Resource: resource, Names: rule.ResourceNames})
				}
			}
		}
	}
	return all
}

// Usage holds what programs that share an account have asked of the API server against what they are granted.
type Usage struct {
	Account string // the user that the API server knows them by
	Granted []Permission
	// Owners are the programs that roles are for, by the end of the role's name: none may live on another's.
	Owners map[string]string

	used    map[string]bool // permissions
	refused map[string]bool // requests
}

// Add takes requests into account.
func (u *Usage) Add(requests []Request) {
	if u.used == nil {
		u.used, u.refused = map[string]bool{}, map[string]bool{}
	}
	for _, r := range requests {
		if r.User.Name == u.Account && r.Object.Resource != "" {
			u.add(r)
		}
	}
}

func (u *Usage) add(r Request) {
	allowed := false
	for _, p := range u.Granted {
		if u.owner(p) == r.Program() && p.allows(r) {
			u.used[p.String()], allowed = true, true
		}
	}
	if !allowed || r.Forbidden() {
		asked := Permission{Role: r.Program(), Verb: r.Verb, Group: r.Object.Group, Resource: r.resource()}
		u.refused[fmt.Sprintf("%s %s/%s", asked, r.Object.Namespace, r.Object.Name)] = true
	}
}

// owner is the program that a permission is for, empty for none that is known.
func (u *Usage) owner(p Permission) string {
	for end, program := range u.Owners {
		if strings.HasSuffix(p.Role, "-"+end) {
			return program
		}
	}
	return ""
}

// Refused are the requests that their own program's roles don't allow.
func (u *Usage) Refused() []string { return slices.Sorted(maps.Keys(u.refused)) }

// Unused are the permissions of these programs that nobody has made use of, but for those that are rare; and those that
// are called rare and aren't granted.
func (u *Usage) Unused(programs []string, rare map[string]string) []string {
	unused, unknown := map[string]bool{}, maps.Clone(rare)
	for _, p := range u.Granted {
		name := p.String()
		if _, known := rare[name]; slices.Contains(programs, u.owner(p)) && !u.used[name] && !known {
			unused[name] = true
		}
		delete(unknown, name)
	}
	for name := range unknown {
		unused[name+", which is called rare and isn't granted"] = true
	}
	return slices.Sorted(maps.Keys(unused))
}
