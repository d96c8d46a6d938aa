package ecssim_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"
)

// accountFacts are of STS, the metadata service and tags.
var accountFacts = []fact{
	{"STS GetCallerIdentity", "it says whose key it is", needsSim, func(t *testing.T, c *cloud) {
		a := c.ok(c.askOf("2015-04-01", "GetCallerIdentity"))
		for _, name := range []string{"AccountId", "Arn", "IdentityType", "PrincipalId"} {
			if text, _ := a.body[name].(string); text == "" {
				t.Errorf("%s is missing in %s", name, a.text)
			}
		}
	}},
	{"STS AssumeRole", "a session lives for DurationSeconds, an hour by default, and its Expiration is UTC to the second", needsSim, func(t *testing.T, c *cloud) {
		for asked, want := range map[string]time.Duration{"": time.Hour, "900": 15 * time.Minute} {
			a := c.ok(c.askOf("2015-04-01", "AssumeRole", "RoleArn", roleARN, "RoleSessionName", "conformance", "DurationSeconds", asked))
			key, _ := a.body["Credentials"].(map[string]any)
			ends, err := time.Parse("2006-01-02T15:04:05Z", row(key).text("Expiration"))
			if err != nil || time.Until(ends).Round(2*time.Second) != want {
				t.Errorf("asked for %q: ends %v %v, want in %v", asked, key["Expiration"], err, want)
			}
			if !strings.HasPrefix(row(key).text("AccessKeyId"), "STS.") || row(key).text("SecurityToken") == "" {
				t.Errorf("credentials %v", key)
			}
		}
	}},
	{"STS AssumeRole", "less than 900 seconds are InvalidParameter.DurationSeconds", needsSim, func(_ *testing.T, c *cloud) {
		c.refused(c.askOf("2015-04-01", "AssumeRole", "RoleArn", roleARN, "RoleSessionName", "conformance", "DurationSeconds", "899"), 400, "InvalidParameter.DurationSeconds")
	}},
	{"STS AssumeRole", "a role that does not exist is EntityNotExist.Role", needsSim, func(_ *testing.T, c *cloud) {
		c.refused(c.askOf("2015-04-01", "AssumeRole", "RoleArn", roleARN+"x", "RoleSessionName", "conformance"), 404, "EntityNotExist.Role")
	}},
	{"STS AssumeRole", "the session's key works with its token until it expires", needsSim, func(_ *testing.T, c *cloud) {
		key, _ := c.ok(c.askOf("2015-04-01", "AssumeRole", "RoleArn", roleARN, "RoleSessionName", "conformance")).body["Credentials"].(map[string]any)
		c.keyID, c.secret = row(key).text("AccessKeyId"), row(key).text("AccessKeySecret")
		c.refused(c.ask("DescribeRegions"), 404, "InvalidAccessKeyId.NotFound")
		c.token = row(key).text("SecurityToken")
		c.ok(c.ask("DescribeRegions"))
		time.Sleep(time.Hour)
		c.refused(c.ask("DescribeRegions"), 400, "InvalidSecurityToken.Expired")
	}},
	{"STS AssumeRoleWithOIDC", "it takes an identity token instead of a signature", needsSim, func(t *testing.T, c *cloud) {
		c.ok(send(t, c.next, "POST", oidcURL, oidcForm(nil)))
	}},
	{"Instance metadata", "a path answers with plain text, a directory with a list", needsSim, func(t *testing.T, c *cloud) {
		for path, want := range map[string]string{"instance-id": "i-1", "region-id": region, "zone-id": zoneH, "instance/instance-type": "ecs.g7.large", "ram/": "security-credentials/"} {
			if status, text := c.get("i-1", "/latest/meta-data/"+path); status != 200 || text != want {
				t.Errorf("%s: %d %q, want %q", path, status, text, want)
			}
		}
		if status, _ := c.get("i-1", "/latest/meta-data/none"); status != 404 {
			t.Errorf("a path that is not there: %d, want 404", status)
		}
	}},
	{"Instance metadata", "the identity document has it all at once", needsSim, func(t *testing.T, c *cloud) {
		_, text := c.get("i-1", "/latest/dynamic/instance-identity/document")
		var document map[string]string
		if err := json.Unmarshal([]byte(text), &document); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"instance-id", "instance-type", "region-id", "zone-id", "serial-number", "owner-account-id", "private-ipv4", "mac", "image-id"} {
			if document[name] == "" {
				t.Errorf("%s is missing in %s", name, text)
			}
		}
	}},
	{"Instance metadata", "a role's credentials have Code Success and a time when they expire", needsSim, func(t *testing.T, c *cloud) {
		_, text := c.get("i-1", "/latest/meta-data/ram/security-credentials/disk-driver")
		var key row
		if err := json.Unmarshal([]byte(text), &key); err != nil {
			t.Fatal(err)
		}
		if _, err := time.Parse("2006-01-02T15:04:05Z", key.text("Expiration")); err != nil || key.text("Code") != "Success" {
			t.Errorf("credentials %s", text)
		}
		c.keyID, c.secret, c.token = key.text("AccessKeyId"), key.text("AccessKeySecret"), key.text("SecurityToken")
		c.ok(c.ask("DescribeRegions"))
	}},
	{"TagResources", "a tag without a value has the empty one", needsDisks, func(t *testing.T, c *cloud) {
		id := c.ready()
		c.ok(c.ask("TagResources", "ResourceType", "disk", "ResourceId.1", id, "Tag.1.Key", "bare"))
		list := c.show(id).rows("Tags", "Tag")
		if len(list) != 1 || list[0].text("TagKey") != "bare" || list[0].text("TagValue") != "" {
			t.Errorf("tags %v", list)
		}
	}},
	{"TagResources", "51 resources are NumberExceed.ResourceIds", needsNothing, func(_ *testing.T, c *cloud) {
		pairs := []string{"ResourceType", "disk", "Tag.1.Key", "a"}
		for i := range 51 {
			pairs = append(pairs, "ResourceId."+strconv.Itoa(i+1), "d-bp1aaaaaaaaaaaaaaaaa")
		}
		c.refused(c.ask("TagResources", pairs...), 400, "NumberExceed.ResourceIds")
	}},
	{"TagResources", "a resource that does not exist is InvalidResourceId.NotFound", needsNothing, func(_ *testing.T, c *cloud) {
		c.refused(c.ask("TagResources", "ResourceType", "disk", "ResourceId.1", "d-bp1aaaaaaaaaaaaaaaaa", "Tag.1.Key", "a"), 404, "InvalidResourceId.NotFound")
	}},
	{"TagResources", "more than 20 tags on a resource are QuotaExceed.Tags", needsDisks, func(_ *testing.T, c *cloud) {
		id := c.ready(manyTags(20)...)
		c.refused(c.ask("TagResources", "ResourceType", "disk", "ResourceId.1", id, "Tag.1.Key", "one-more"), 403, "QuotaExceed.Tags")
	}},
	{"UntagResources", "All takes every tag off", needsDisks, func(t *testing.T, c *cloud) {
		id := c.ready(manyTags(3)...)
		c.ok(c.ask("UntagResources", "ResourceType", "disk", "ResourceId.1", id, "All", "true"))
		if list := c.show(id).rows("Tags", "Tag"); len(list) != 0 {
			t.Errorf("tags %v", list)
		}
	}},
	{"ListTagResources", "it finds by tag and answers with a row for each tag", needsDisks, func(t *testing.T, c *cloud) {
		id := c.ready("Tag.1.Key", "conformance-of", "Tag.1.Value", "list", "Tag.2.Key", "b", "Tag.2.Value", "2")
		list := c.ok(c.ask("ListTagResources", "ResourceType", "disk", "Tag.1.Key", "conformance-of", "Tag.1.Value", "list")).rows("TagResources", "TagResource")
		if len(list) != 2 || list[0].text("ResourceId") != id || list[0].text("ResourceType") != "disk" {
			t.Errorf("rows %v", list)
		}
	}},
	{"DescribeTags", "it counts the resources of each kind that carry a tag", needsSim, func(t *testing.T, c *cloud) {
		c.ready("Tag.1.Key", "a", "Tag.1.Value", "1")
		c.ready("Tag.1.Key", "a", "Tag.1.Value", "1")
		list := c.ok(c.ask("DescribeTags", "ResourceType", "disk")).rows("Tags", "Tag")
		if len(list) != 1 {
			t.Fatalf("rows %v", list)
		}
		if counts, _ := list[0]["ResourceTypeCount"].(map[string]any); counts["Disk"] != float64(2) {
			t.Errorf("counts %v, want 2 disks", counts)
		}
	}},
}
