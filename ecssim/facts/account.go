package facts

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// tagFacts are of tags.
func tagFacts() []Fact {
	return []Fact{
		one("TagResources", "a tag without a value has the empty one", page, Disks, func(p *Probe) {
			id := p.ready()
			p.ok(p.ask("TagResources", "ResourceType", "disk", "ResourceId.1", id, "Tag.1.Key", "bare"))
			tags := p.ownTags(p.show(id))
			if v, ok := tags["bare"]; len(tags) != 1 || !ok || v != "" {
				p.differs("tags %v", tags)
			}
		}),
		one("TagResources", "51 resources are NumberExceed.ResourceIds", table, Nothing, func(p *Probe) {
			pairs := []string{"ResourceType", "disk", "Tag.1.Key", "a"}
			for i := range 51 {
				pairs = append(pairs, "ResourceId."+strconv.Itoa(i+1), noDisk)
			}
			p.refused(p.ask("TagResources", pairs...), 400, "NumberExceed.ResourceIds")
		}),
		one("TagResources", "a resource that does not exist is InvalidResourceId.NotFound", table, Nothing, func(p *Probe) {
			p.refused(p.ask("TagResources", "ResourceType", "disk", "ResourceId.1", noDisk, "Tag.1.Key", "a"), 404, "InvalidResourceId.NotFound")
		}),
		one("TagResources", "more than 20 tags on a resource are QuotaExceed.Tags", table, Disks, func(p *Probe) {
			id := p.ready(manyTags(18)...) // two more are the client's
			p.refused(p.ask("TagResources", "ResourceType", "disk", "ResourceId.1", id, "Tag.1.Key", "one-more"), 403, "QuotaExceed.Tags")
		}),
		// On the real ECS the disk could not be found by its tag any more.
		one("UntagResources", "All removes every tag", page, Simulator, func(p *Probe) {
			id := p.ready(manyTags(3)...)
			p.ok(p.ask("UntagResources", "ResourceType", "disk", "ResourceId.1", id, "All", "true"))
			if tags := p.show(id).tags(); len(tags) != 0 {
				p.differs("tags %v", tags)
			}
		}),
		one("ListTagResources", "it finds by tag and answers with a row for each tag", page, Disks, func(p *Probe) {
			value := nonce()
			id := p.ready("Tag.1.Key", "conformance-of", "Tag.1.Value", value, "Tag.2.Key", "b", "Tag.2.Value", "2")
			var list []row
			p.until(searchLag, func() bool {
				list = p.ok(p.ask("ListTagResources", "ResourceType", "disk",
					"Tag.1.Key", "conformance-of", "Tag.1.Value", value)).rows("TagResources", "TagResource")
				return len(list) > 0
			})
			tags := map[string]string{}
			for _, r := range list {
				if r.text("ResourceId") != id || r.text("ResourceType") != "disk" {
					p.differs("row %v", r)
				}
				tags[r.text("TagKey")] = r.text("TagValue")
			}
			if len(list) != 4 || tags["conformance-of"] != value || tags["b"] != "2" || tags[RunTag] != p.Run { // the fourth is InstanceTag
				p.differs("rows %v", list)
			}
		}),
		one("DescribeTags", "it counts the resources of each kind that have a tag", page, Simulator, func(p *Probe) {
			p.ready("Tag.1.Key", "a", "Tag.1.Value", "1")
			p.ready("Tag.1.Key", "a", "Tag.1.Value", "1")
			list := p.ok(p.ask("DescribeTags", "ResourceType", "disk")).rows("Tags", "Tag")
			if len(list) != 3 {
				p.stop("rows %v", list)
			}
			for _, r := range list {
				if counts, _ := r["ResourceTypeCount"].(map[string]any); counts["Disk"] != float64(2) {
					p.differs("counts %v", r)
				}
			}
		}),
	}
}

// What the simulator is set up with for the facts of accounts.
const (
	roleName = "disk-driver"
	roleARN  = "acs:ram::1234567890123456:role/" + roleName
	provider = "ack-rrsa-c1"
	subject  = "system:serviceaccount:kube-system:disk-driver"
	audience = "sts.aliyuncs.com"
)

const stsVersion = "2015-04-01"

// accountFacts are of STS and of the metadata service.
func accountFacts() []Fact {
	return []Fact{
		one("STS GetCallerIdentity", "it says whose key it is", page, Simulator, func(p *Probe) {
			a := p.ok(p.askOf(stsVersion, "GetCallerIdentity"))
			for _, name := range []string{"AccountId", "Arn", "IdentityType", "PrincipalId"} {
				if a.body.text(name) == "" {
					p.differs("%s is missing", name)
				}
			}
		}),
		one("STS AssumeRole", "a session is valid for DurationSeconds, an hour by default, and its Expiration is UTC to the second", page, Simulator, func(p *Probe) {
			for asked, want := range map[string]time.Duration{"": time.Hour, "900": 15 * time.Minute} {
				key := p.assume("DurationSeconds", asked)
				ends, err := time.Parse("2006-01-02T15:04:05Z", key.text("Expiration"))
				if err != nil || time.Until(ends).Round(4*time.Second) != want {
					p.differs("asked for %q: ends %q", asked, key.text("Expiration"))
				}
				if !strings.HasPrefix(key.text("AccessKeyId"), "STS.") || key.text("SecurityToken") == "" {
					p.differs("asked for %q: the credentials lack something", asked)
				}
			}
		}),
		one("STS AssumeRole", "less than 900 seconds are InvalidParameter.DurationSeconds", page, Simulator, func(p *Probe) {
			p.refused(p.askOf(stsVersion, "AssumeRole", "RoleArn", roleARN, "RoleSessionName", "conformance", "DurationSeconds", "899"),
				400, "InvalidParameter.DurationSeconds")
		}),
		one("STS AssumeRole", "a role that does not exist is EntityNotExist.Role", page, Simulator, func(p *Probe) {
			p.refused(p.askOf(stsVersion, "AssumeRole", "RoleArn", roleARN+"x", "RoleSessionName", "conformance"), 404, "EntityNotExist.Role")
		}),
		one("STS AssumeRole", "the session's key works with its token until it expires", page, Simulator, func(p *Probe) {
			key := p.assume()
			p.KeyID, p.Secret = key.text("AccessKeyId"), key.text("AccessKeySecret")
			p.refused(p.ask("DescribeRegions"), 404, "InvalidAccessKeyId.NotFound")
			p.Token = key.text("SecurityToken")
			p.ok(p.ask("DescribeRegions"))
			p.sleep(time.Hour)
			p.refused(p.ask("DescribeRegions"), 400, "InvalidSecurityToken.Expired")
		}),
		one("STS AssumeRoleWithOIDC", "it takes an identity token instead of a signature", page, Simulator, func(p *Probe) {
			const unsigned = "/?Action=AssumeRoleWithOIDC&Version=" + stsVersion + "&Format=JSON&Timestamp=2026-01-01T00:00:00Z&SignatureNonce=1"
			form := url.Values{"RoleArn": {roleARN}, "OIDCProviderArn": {"acs:ram::1234567890123456:oidc-provider/" + provider},
				"RoleSessionName": {"pod-1"}, "OIDCToken": {identityToken()}}
			p.ok(p.mustAnswer(p.send(p.ctx, http.MethodPost, p.Endpoint+unsigned, form.Encode(), nil)))
		}),
		one("Instance metadata", "a path answers with plain text, a directory with a list", page, Simulator, func(p *Probe) {
			i := p.instance()
			for path, want := range map[string]string{"instance-id": i.ID, "region-id": p.Region, "zone-id": i.Zone, "instance/instance-type": i.Type,
				"ram/": "security-credentials/"} {
				if status, text := p.metadata("meta-data/" + path); status != 200 || text != want {
					p.differs("%s: %d %q", path, status, text)
				}
			}
			if status, _ := p.metadata("meta-data/none"); status != 404 {
				p.differs("a path that is not there: %d", status)
			}
		}),
		one("Instance metadata", "the identity document has all of it", page, Simulator, func(p *Probe) {
			document := p.metadataObject("dynamic/instance-identity/document")
			for _, name := range []string{"instance-id", "instance-type", "region-id", "zone-id", "serial-number", "owner-account-id", "private-ipv4", "mac",
				"image-id"} {
				if document.text(name) == "" {
					p.differs("%s is missing", name)
				}
			}
		}),
		one("Instance metadata", "a role's credentials have Code Success and a time when they expire", page, Simulator, func(p *Probe) {
			key := p.metadataObject("meta-data/ram/security-credentials/" + roleName)
			if _, err := time.Parse("2006-01-02T15:04:05Z", key.text("Expiration")); err != nil || key.text("Code") != "Success" {
				p.differs("Code %q, Expiration %q", key.text("Code"), key.text("Expiration"))
			}
			p.KeyID, p.Secret, p.Token = key.text("AccessKeyId"), key.text("AccessKeySecret"), key.text("SecurityToken")
			p.ok(p.ask("DescribeRegions"))
		}),
	}
}

// assume returns the credentials of a session of the role.
func (p *Probe) assume(pairs ...string) row {
	answer := p.ok(p.askOf(stsVersion, "AssumeRole", append([]string{"RoleArn", roleARN, "RoleSessionName", "conformance"}, pairs...)...))
	key, _ := answer.body["Credentials"].(map[string]any)
	return key
}

// identityToken is a JSON web token. The simulator checks no signature of it.
func identityToken() string {
	claims, _ := json.Marshal(map[string]any{"iss": "https://oidc.test", "sub": subject, "aud": []string{audience}, "exp": time.Now().Add(time.Hour).Unix()})
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode(claims) + "." + encode([]byte("signature"))
}

// instance is the client's instance.
func (p *Probe) instance() ecssim.InstanceState {
	for _, i := range p.Sim.State().Instances {
		if i.ID == p.Instance {
			return i
		}
	}
	p.skip("the simulator has no instance %s", p.Instance)
	return ecssim.InstanceState{}
}

// metadata reads a path of the metadata service of the client's instance.
func (p *Probe) metadata(path string) (int, string) {
	r, err := http.NewRequestWithContext(p.ctx, http.MethodGet, "http://100.100.100.200/latest/"+path, nil)
	p.must(err)
	answer, err := p.Sim.Metadata(p.Instance).RoundTrip(r)
	p.must(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	p.must(err)
	return answer.StatusCode, string(text)
}

func (p *Probe) metadataObject(path string) row {
	_, text := p.metadata(path)
	var o row
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		p.stop("%s is no JSON object", path)
	}
	return o
}
