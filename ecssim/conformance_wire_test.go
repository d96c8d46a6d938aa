package ecssim_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// wireFacts are of the pages on requests, signatures, replies and errors.
var wireFacts = []fact{
	{"Request structure", "parameters are taken from the query of a POST without a body", needsNothing, func(_ *testing.T, c *cloud) {
		c.ok(c.ask("DescribeRegions"))
	}},
	{"Request structure", "parameters are taken from the query of a GET", needsNothing, func(t *testing.T, c *cloud) {
		c.ok(send(t, c.next, "GET", c.endpoint+"/?"+c.signed("GET", "2014-05-26", "DescribeRegions", "RegionId", c.region), ""))
	}},
	{"Request structure", "parameters are taken from a form", needsNothing, func(t *testing.T, c *cloud) {
		c.ok(send(t, c.next, "POST", c.endpoint+"/", c.signed("POST", "2014-05-26", "DescribeRegions", "RegionId", c.region)))
	}},
	{"Request structure", "an unknown action is InvalidAction.NotFound", needsNothing, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("MakeDisk"), 404, "InvalidAction.NotFound")
	}},
	{"Request structure", "a parameter that no action takes is passed over", needsNothing, func(_ *testing.T, c *cloud) {
		c.ok(c.ask("DescribeDisks", "Colour", "red"))
	}},
	{"Response structure", "every reply has a request ID, an upper-case UUID, in its body and in X-Acs-Request-Id", needsNothing, func(t *testing.T, c *cloud) {
		wantBody(t, c.ok(c.ask("DescribeRegions")))
		wantBody(t, c.ask("MakeDisk"))
	}},
	{"Response structure", "an empty list is there, and empty", needsNothing, func(t *testing.T, c *cloud) {
		if a := c.ok(c.ask("DescribeDisks", "DiskIds", "[]")); !strings.Contains(strings.ReplaceAll(a.text, " ", ""), `"Disks":{"Disk":[]}`) {
			t.Errorf("reply %s", a.text)
		}
	}},
	{"Response structure", "an error has Code, Message, HostId and Recommend, all of them strings", needsNothing, func(t *testing.T, c *cloud) {
		a := c.ask("CreateDisk", "Size", "20")
		for _, name := range []string{"Code", "Message", "HostId", "Recommend", "RequestId"} {
			if text, _ := a.body[name].(string); text == "" {
				t.Errorf("%s is missing in %s", name, a.text)
			}
		}
	}},
	{"Signature in parameters", "a wrong secret is SignatureDoesNotMatch, with the server's own string to sign", needsNothing, func(t *testing.T, c *cloud) {
		c.secret += "x"
		a := c.ask("DescribeRegions")
		c.refused(a, 400, "SignatureDoesNotMatch")
		if message, _ := a.body["Message"].(string); !strings.Contains(message, "server string to sign is:POST&%2F&") {
			t.Errorf("message %q", message)
		}
	}},
	{"Signature in parameters", "a change after signing is SignatureDoesNotMatch", needsNothing, func(_ *testing.T, c *cloud) {
		c.tamper = func(v url.Values) { v.Set("RegionId", "cn-beijing") }
		c.refused(c.ask("DescribeRegions"), 400, "SignatureDoesNotMatch")
	}},
	{"Signature in parameters", "a nonce is taken once", needsNothing, func(t *testing.T, c *cloud) {
		target := c.endpoint + "/?" + c.signed("POST", "2014-05-26", "DescribeRegions", "RegionId", c.region)
		c.ok(send(t, c.next, "POST", target, ""))
		c.refused(send(t, c.next, "POST", target, ""), 400, "SignatureNonceUsed")
	}},
	{"Signature in parameters", "a timestamp more than 15 minutes off is InvalidTimeStamp.Expired, one of 14 minutes is taken", needsNothing, func(_ *testing.T, c *cloud) {
		for shift, code := range map[time.Duration]string{-16 * time.Minute: "InvalidTimeStamp.Expired", 16 * time.Minute: "InvalidTimeStamp.Expired", -14 * time.Minute: "", 14 * time.Minute: ""} {
			c.shift = shift
			if a := c.ask("DescribeRegions"); a.code() != code {
				c.t.Errorf("%v off: %d %s, want %q", shift, a.status, a.text, code)
			}
		}
	}},
	{"Signature in parameters", "characters are encoded by RFC 3986", needsNothing, func(_ *testing.T, c *cloud) {
		c.ok(c.ask("DescribeDisks", "DiskName", "a b*c~d+e/f%é"))
	}},
	{"Signature in headers", "a request signed with ACS3-HMAC-SHA256 is taken", needsSim, func(t *testing.T, c *cloud) {
		h := aDescribe()
		if status, code := h.send(t, c.next); status != 200 {
			t.Errorf("got %d %s", status, code)
		}
	}},
	{"Common errors", "an unknown key is InvalidAccessKeyId.NotFound", needsNothing, func(_ *testing.T, c *cloud) {
		c.keyID, c.token = "LTAInobodysKeyOfConformance", ""
		c.refused(c.ask("DescribeRegions"), 404, "InvalidAccessKeyId.NotFound")
	}},
	{"Common errors", "a region that does not exist is InvalidRegionId.NotFound", needsNothing, func(_ *testing.T, c *cloud) {
		c.refused(c.askOf("2014-05-26", "DescribeZones", "RegionId", "cn-nowhere"), 404, "InvalidRegionId.NotFound")
	}},
	{"Common errors", "who may not gets Forbidden.RAM with AccessDeniedDetail", needsSim, func(t *testing.T, c *cloud) {
		if err := c.sim.Deny(ecssim.Denial{Action: "CreateDisk"}); err != nil {
			t.Fatal(err)
		}
		a := c.ask("CreateDisk", "ZoneId", c.zone, "Size", "20")
		c.refused(a, 403, "Forbidden.RAM")
		if detail, _ := a.body["AccessDeniedDetail"].(map[string]any); detail["AuthAction"] != "ecs:CreateDisk" {
			t.Errorf("detail %v", a.body["AccessDeniedDetail"])
		}
	}},
	{"Common errors", "a read by who may not may show nothing instead", needsSim, func(t *testing.T, c *cloud) {
		id := c.ready()
		if err := c.sim.Deny(ecssim.Denial{Action: "DescribeDisks", Empty: true}); err != nil {
			t.Fatal(err)
		}
		if c.show(id) != nil {
			t.Error("the disk is shown")
		}
	}},
	{"Throttling", "an action that is throttled in one minute works again in the next, and others work on", needsSim, func(t *testing.T, c *cloud) {
		if err := c.sim.SetThrottle(ecssim.Throttle{Limits: map[string]int{"DescribeDisks": 2}}); err != nil {
			t.Fatal(err)
		}
		c.ok(c.ask("DescribeDisks"))
		c.ok(c.ask("DescribeDisks"))
		c.refused(c.ask("DescribeDisks"), 400, "Throttling")
		c.ok(c.ask("DescribeInstances"))
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		c.ok(c.ask("DescribeDisks"))
	}},
	{"Throttling", "a refused call has no effect", needsSim, func(t *testing.T, c *cloud) {
		if err := c.sim.SetThrottle(ecssim.Throttle{Limits: map[string]int{"CreateDisk": 1}}); err != nil {
			t.Fatal(err)
		}
		c.create()
		c.refused(c.ask("CreateDisk", "ZoneId", c.zone, "DiskCategory", "cloud_essd", "Size", "20"), 400, "Throttling")
		if n := len(c.sim.Disks()); n != 1 {
			t.Errorf("%d disks, want 1", n)
		}
	}},
}
