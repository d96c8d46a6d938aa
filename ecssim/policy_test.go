package ecssim_test

import (
	"strings"
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
)

// A policy is evaluated as RAM does: everything that a call is about has to be
// allowed, under the tags of the request or of what there is, and a denial wins.
func TestPolicy(t *testing.T) {
	const anything = `"Resource":"*"`
	statement := func(effect, action, rest string) string {
		return `{"Effect":"` + effect + `","Action":` + action + `,` + rest + `}`
	}
	tagged := func(key string) string { return `"Condition":{"StringEquals":{"` + key + `":["c1","c2"]}}` }
	create, remove := `"ecs:CreateDisk"`, `["ecs:DeleteDisk","ecs:Describe*"]`
	for _, row := range []struct {
		name       string
		statements []string
		made       bool // a disk with the tag owner=c1
		plain      bool // a disk without
		deleted    bool // the disk with the tag
	}{
		{name: "nothing"},
		{name: "one action", statements: []string{statement("Allow", create, anything)}, made: true, plain: true},
		{name: "two actions", statements: []string{statement("Allow", create, anything), statement("Allow", remove, anything)}, made: true, plain: true, deleted: true},
		{name: "all", statements: []string{statement("Allow", `"*"`, anything)}, made: true, plain: true, deleted: true},
		{name: "of the request", statements: []string{statement("Allow", create, anything+","+tagged("acs:RequestTag/owner"))}, made: true},
		{name: "of the resource", statements: []string{statement("Allow", create, anything), statement("Allow", remove, anything+","+tagged("acs:ResourceTag/owner"))}, made: true, plain: true, deleted: true},
		{name: "of another tag", statements: []string{statement("Allow", create, anything), statement("Allow", remove, anything+","+tagged("acs:ResourceTag/team"))}, made: true, plain: true},
		{name: "of other resources", statements: []string{statement("Allow", create, anything), statement("Allow", remove, `"Resource":"acs:ecs:*:*:snapshot/*"`)}, made: true, plain: true},
		{name: "of disks", statements: []string{statement("Allow", `"ecs:*"`, `"Resource":["acs:ecs:cn-hangzhou:*:disk/*"]`)}, made: true, plain: true, deleted: true},
		{name: "denied", statements: []string{statement("Allow", `"*"`, anything), statement("Deny", remove, anything+","+tagged("acs:ResourceTag/owner"))}, made: true, plain: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newServer(t, nil)
			body := `{"who":"","policy":{"Version":"1","Statement":[` + strings.Join(row.statements, ",") + `]}}`
			if status, text := admin(t, s, "POST", "/_sim/policies", body); status != 200 {
				t.Fatal(text)
			}
			c := newClient(t, s)
			check := func(what string, err error, allowed bool) {
				if !allowed {
					wantCode(t, err, 403, "Forbidden.RAM")
				} else if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			_, err := c.CreateDisk(newCreate(nil))
			check("a disk without the tag", err, row.plain)
			made, err := c.CreateDisk(newCreate(func(r *ecs.CreateDiskRequest) { r.Tag = &[]ecs.CreateDiskTag{{Key: "owner", Value: "c1"}} }))
			if check("a disk with the tag", err, row.made); err != nil {
				return
			}
			remove := ecs.CreateDeleteDiskRequest()
			remove.DiskId = made.DiskId
			_, err = c.DeleteDisk(remove)
			check("its deletion", err, row.deleted)
		})
	}
}

func TestPoliciesThatCannotBeEvaluatedAreRefused(t *testing.T) {
	s := newServer(t, nil)
	for policy, mentions := range map[string]string{
		`{"Version":"2"}`: `\"1\"`,
		`{"Version":"1","Statement":[{"Effect":"Perhaps","Action":"*","Resource":"*"}]}`:                                                             "Allow, Deny",
		`{"Version":"1","Statement":[{"Effect":"Allow","Resource":"*"}]}`:                                                                            "ecs:DeleteDisk",
		`{"Version":"1","Statement":[{"Effect":"Allow","Action":"*"}]}`:                                                                              "acs:ecs",
		`{"Version":"1","Statement":[{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"IpAddress":{"acs:SourceIp":"10.0.0.0/8"}}}]}`:       "StringEquals",
		`{"Version":"1","Statement":[{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEquals":{"acs:CurrentTime":"2026-01-01"}}}]}`: "acs:ResourceTag",
		`{"Version":"1","Statement":[{"Effect":"Allow","Action":"*","Resource":"*","NotAction":"ecs:DeleteDisk"}]}`:                                  "NotAction",
	} {
		if status, text := admin(t, s, "POST", "/_sim/policies", `{"policy":`+policy+`}`); status != 400 || !strings.Contains(text, mentions) {
			t.Errorf("%s: %d %s, want 400 that mentions %s", policy, status, text, mentions)
		}
	}
}
