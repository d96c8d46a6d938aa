package request

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

func TestAllowedLabelsBecomeTags(t *testing.T) {
	for name, test := range map[string]struct {
		claim, namespace, class, want map[string]string
	}{
		"none": {want: map[string]string{}},
		"of both": {
			claim: map[string]string{"example.com/stage": "test"}, namespace: map[string]string{"cost-center": "4711"},
			want: map[string]string{"diskTags/example.com/stage": "test", "diskTags/cost-center": "4711"},
		},
		"others are left": {
			claim: map[string]string{"cost-center": "mine", "app": "x"}, namespace: map[string]string{"example.com/stage": "x"}, want: map[string]string{},
		},
		"without a value": {claim: map[string]string{"team": ""}, want: map[string]string{"diskTags/team": ""}},
		"the claim's":     {claim: map[string]string{"team": "web"}, namespace: map[string]string{"team": "shop"}, want: map[string]string{"diskTags/team": "web"}},
		"the class's": {
			claim: map[string]string{"team": "web"}, namespace: map[string]string{"cost-center": "4711"}, class: map[string]string{"diskTags/team": "db"},
			want: map[string]string{"diskTags/team": "db", "diskTags/cost-center": "4711"},
		},
		"the class's list": {
			claim: map[string]string{"team": "web"}, class: map[string]string{"diskTags": "a:b, team:db"}, want: map[string]string{"diskTags": "a:b, team:db"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			options := testOptions()
			options.ClaimLabelTags, options.NamespaceLabelTags = []string{"team", "example.com/stage"}, []string{"team", "cost-center"}
			claim := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.Labels = test.claim })
			plan, err := NewPlan(options, claim, provisionertest.Class(test.class), "node-1")
			if err != nil {
				t.Fatal(err)
			}
			got := plan.Request(Inputs{NamespaceLabels: test.namespace}).Create.Parameters
			if !maps.Equal(got, test.want) {
				t.Errorf("the driver is asked for %v, want %v", got, test.want)
			}
		})
	}
}
