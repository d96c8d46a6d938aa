package ecssim_test

import (
	"errors"
	"strings"
	"testing"

	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
)

func TestDenialsHitWhomTheyName(t *testing.T) {
	s := newServer(t, func(c *ecssim.Config) {
		withRole(c)
		c.AccessKeys["other"] = secret
		c.Denials = []ecssim.Denial{{Who: "other", Action: "CreateDisk"}, {Who: "disk-driver"}}
	})
	mine, other := newClient(t, s), newSDKClient(t, "other", secret)
	other.SetTransport(s)
	other.Domain = "ecs.invalid"
	create(t, mine, nil)
	if err := readDisks(other); err != nil {
		t.Errorf("what is not denied: %v", err)
	}
	_, err := other.CreateDisk(newCreate(nil))
	wantCode(t, err, 403, "Forbidden.RAM")
	var server *sdkerrors.ServerError
	if errors.As(err, &server) && (server.AccessDeniedDetail()["AuthAction"] != "ecs:CreateDisk" || server.AccessDeniedDetail()["AuthPrincipalType"] != "SubUser") {
		t.Errorf("detail %v", server.AccessDeniedDetail())
	}
	k := assume(t, newSTS(t, s, keyID, secret), nil)
	role := newTokenClient(t, s, k.AccessKeyId, k.AccessKeySecret, k.SecurityToken)
	wantCode(t, readDisks(role), 403, "Forbidden.RAM")
	s.ClearDenials()
	if err := readDisks(role); err != nil {
		t.Errorf("after all is given back: %v", err)
	}
	if n := len(s.Disks()); n != 1 {
		t.Errorf("%d disks, want 1", n)
	}
}

func TestDenialMayShowNothingInstead(t *testing.T) {
	s, c := newServerAndClient(t, nil)
	for range 12 {
		create(t, c, nil)
	}
	if err := s.Deny(ecssim.Denial{Action: "DescribeDisks", Empty: true}); err != nil {
		t.Fatal(err)
	}
	for _, byToken := range []bool{false, true} {
		got := describe(t, c, func(r *ecs.DescribeDisksRequest) {
			if byToken {
				r.MaxResults = "10"
			}
		})
		if len(got.Disks.Disk) != 0 || got.TotalCount != 0 || got.NextToken != "" {
			t.Errorf("by token %v: %d disks of %d, next %q; want nothing", byToken, len(got.Disks.Disk), got.TotalCount, got.NextToken)
		}
	}
	if zones, err := c.DescribeZones(ecs.CreateDescribeZonesRequest()); err != nil || len(zones.Zones.Zone) != 2 {
		t.Errorf("zones: %v %v", zones, err)
	}
}

func TestDenialsAreCheckedAndSetByTheAdminAPI(t *testing.T) {
	s := newServer(t, nil)
	for body, mentions := range map[string]string{
		`{"action":"MakeDisk"}`:                "CreateDisk",
		`{"action":"Metadata"}`:                "CreateDisk",
		`{"action":"CreateDisk","empty":true}`: "Describe",
		`{"empty":true}`:                       "Describe",
		`{"key":"a"}`:                          "who, action, empty",
		`{"action":"AssumeRoleWithOIDC"}`:      "AssumeRole",
	} {
		if status, text := admin(t, s, "POST", "/_sim/denials", body); status != 400 || !strings.Contains(text, mentions) {
			t.Errorf("%s: %d %s, want 400 that mentions %q", body, status, text, mentions)
		}
	}
	if status, _ := admin(t, s, "POST", "/_sim/denials", `{"action":"DescribeDisks"}`); status != 200 {
		t.Errorf("status %d", status)
	}
	wantCode(t, readDisks(newClient(t, s)), 403, "Forbidden.RAM")
	if status, text := admin(t, s, "DELETE", "/_sim/denials", ""); status != 200 || strings.TrimSpace(text) != "[]" {
		t.Errorf("%d %s", status, text)
	}
	if err := readDisks(newClient(t, s)); err != nil {
		t.Error(err)
	}
}
