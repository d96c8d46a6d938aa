package facts

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// wireFacts are of requests, signatures, replies, errors and throttling.
func wireFacts() []Fact {
	return []Fact{
		one("Request structure", "parameters are read from the query of a POST without a body", common, Nothing, func(p *Probe) {
			p.ok(p.ask("DescribeRegions"))
		}),
		one("Request structure", "parameters are read from the query of a GET", common, Nothing, func(p *Probe) {
			p.ok(p.mustAnswer(p.send(p.ctx, http.MethodGet, p.Endpoint+"/?"+p.describeRegions(http.MethodGet, 0), "", nil)))
		}),
		one("Request structure", "parameters are read from a form", common, Nothing, func(p *Probe) {
			p.ok(p.mustAnswer(p.send(p.ctx, http.MethodPost, p.Endpoint+"/", p.describeRegions(http.MethodPost, 0), nil)))
		}),
		one("Request structure", "an unknown action is InvalidAction.NotFound", common, Nothing, func(p *Probe) {
			p.refused(p.ask("MakeDisk"), 404, "InvalidAction.NotFound")
		}),
		one("Request structure", "an unknown parameter is ignored", seen, Nothing, func(p *Probe) {
			p.ok(p.ask("DescribeDisks", "Colour", "red"))
		}),
		one("Response structure", "every reply has a request ID, an upper-case UUID, in its body and in X-Acs-Request-Id", common+"; header "+seen, Nothing, func(p *Probe) {
			p.hasRequestID(p.ok(p.ask("DescribeRegions")))
			p.hasRequestID(p.ask("MakeDisk"))
		}),
		one("Response structure", "an empty list is in the reply, as an empty list", common, Nothing, func(p *Probe) {
			if a := p.ok(p.ask("DescribeDisks", "DiskIds", "[]")); !strings.Contains(strings.ReplaceAll(a.text, " ", ""), `"Disks":{"Disk":[]}`) {
				p.differs("Disks is %v", a.body["Disks"])
			}
		}),
		one("Response structure", "an error has Code, Message, HostId and Recommend, all of them strings", common, Nothing, func(p *Probe) {
			a := p.ask("ResizeDisk", "DiskId", noDisk, "NewSize", "40")
			for _, name := range []string{"Code", "Message", "HostId", "Recommend", "RequestId"} {
				if a.body.text(name) == "" {
					p.differs("%s is missing", name)
				}
			}
		}),
		one("Signature in parameters", "a wrong secret is SignatureDoesNotMatch, with the server's own string to sign", signing+"; message read by the SDK", Nothing, func(p *Probe) {
			p.Secret += "x"
			a := p.ask("DescribeRegions")
			p.refused(a, 400, "SignatureDoesNotMatch")
			if !strings.Contains(a.body.text("Message"), "server string to sign is:POST&%2F&") {
				p.differs("the message has no string to sign")
			}
		}),
		one("Signature in parameters", "a change after signing is SignatureDoesNotMatch", signing, Nothing, func(p *Probe) {
			v, err := url.ParseQuery(p.describeRegions(http.MethodPost, 0))
			p.must(err)
			v.Set("RegionId", "cn-beijing")
			if p.Region == "cn-beijing" {
				v.Set("RegionId", "cn-hangzhou")
			}
			p.refused(p.mustAnswer(p.post(p.ctx, v.Encode())), 400, "SignatureDoesNotMatch")
		}),
		one("Signature in parameters", "a nonce is accepted once", signing, Nothing, func(p *Probe) {
			query := p.describeRegions(http.MethodPost, 0)
			p.ok(p.mustAnswer(p.post(p.ctx, query)))
			p.refused(p.mustAnswer(p.post(p.ctx, query)), 400, "SignatureNonceUsed")
		}),
		one("Signature in parameters", "a timestamp more than 15 minutes off is InvalidTimeStamp.Expired, one of 14 minutes is accepted", signing, Nothing, func(p *Probe) {
			for shift, code := range map[time.Duration]string{-16 * time.Minute: "InvalidTimeStamp.Expired", 16 * time.Minute: "InvalidTimeStamp.Expired",
				-14 * time.Minute: "", 14 * time.Minute: ""} {
				if a := p.mustAnswer(p.post(p.ctx, p.describeRegions(http.MethodPost, shift))); a.code() != code {
					p.differs("%v off: %s", shift, a.outcome())
				}
			}
		}),
		one("Signature in parameters", "characters are encoded by RFC 3986", signing, Nothing, func(p *Probe) {
			p.ok(p.ask("DescribeDisks", "DiskName", "a b*c~d+e/f%é"))
		}),
		one("Signature in headers", "a request signed with ACS3-HMAC-SHA256 is accepted", signing, Nothing, func(p *Probe) {
			query := "DiskIds=%5B%22d-1%22%5D&DiskName=a%20b%2A~&" + p.regionQuery()
			p.ok(p.sendACS3(query, p.headersACS3(query, 0)))
		}),
		one("Signature in headers", "a wrong secret is SignatureDoesNotMatch", signing, Nothing, func(p *Probe) {
			p.Secret += "x"
			p.refused(p.sendACS3(p.regionQuery(), p.headersACS3(p.regionQuery(), 0)), 400, "SignatureDoesNotMatch")
		}),
		one("Signature in headers", "a change after signing is SignatureDoesNotMatch: of the query, x-acs-action, x-acs-date or x-acs-signature-nonce", signing, Nothing, func(p *Probe) {
			p.refused(p.sendACS3(p.regionQuery()+"&Status=All", p.headersACS3(p.regionQuery(), 0)), 400, "SignatureDoesNotMatch")
			for name, value := range map[string]string{
				"X-Acs-Action": "DescribeZones", "X-Acs-Date": time.Now().Add(-time.Minute).UTC().Format(time.RFC3339), "X-Acs-Signature-Nonce": nonce(),
			} {
				header := p.headersACS3(p.regionQuery(), 0)
				header.Set(name, value)
				p.refused(p.sendACS3(p.regionQuery(), header), 400, "SignatureDoesNotMatch")
			}
		}),
		one("Signature in headers", "a nonce is accepted once", signing+" has its purpose; assumed", Nothing, func(p *Probe) {
			header := p.headersACS3(p.regionQuery(), 0)
			p.ok(p.sendACS3(p.regionQuery(), header.Clone()))
			p.refused(p.sendACS3(p.regionQuery(), header), 400, "SignatureNonceUsed")
		}),
		one("Signature in headers", "an x-acs-date more than 15 minutes in the past is InvalidTimeStamp.Expired, one of 14 minutes is accepted: so a request that was signed with an earlier time has an end",
			signing+" has the 15 minutes, "+common+" the code; that it holds for headers is assumed", Nothing, func(p *Probe) {
				for shift, code := range map[time.Duration]string{-16 * time.Minute: "InvalidTimeStamp.Expired", -14 * time.Minute: ""} {
					if a := p.sendACS3(p.regionQuery(), p.headersACS3(p.regionQuery(), shift)); a.code() != code {
						p.differs("%v off: %s", shift, a.outcome())
					}
				}
			}),
		one("Signature in headers", "an x-acs-date more than 15 minutes in the future is InvalidTimeStamp.Expired", common+"; assumed for headers", Nothing, func(p *Probe) {
			p.refused(p.sendACS3(p.regionQuery(), p.headersACS3(p.regionQuery(), 16*time.Minute)), 400, "InvalidTimeStamp.Expired")
		}),
		one("Signature in headers", "an x-acs-date of another form is InvalidTimeStamp.Format", common+"; assumed for headers", Nothing, func(p *Probe) {
			header := p.headersACS3(p.regionQuery(), 0)
			header.Set("X-Acs-Date", time.Now().UTC().Format(time.RFC1123))
			p.refused(p.sendACS3(p.regionQuery(), header), 400, "InvalidTimeStamp.Format")
		}),
		one("Signature in headers", "another algorithm is InvalidSignatureMethod", common+"; assumed for headers", Nothing, func(p *Probe) {
			header := p.headersACS3(p.regionQuery(), 0)
			header.Set("Authorization", strings.Replace(header.Get("Authorization"), "ACS3-HMAC-SHA256", "ACS3-HMAC-SHA1", 1))
			p.refused(p.sendACS3(p.regionQuery(), header), 400, "InvalidSignatureMethod")
		}),
		several("Common errors", "an unknown access key ID", common+" has 400; 404 "+seen, Nothing, func(p *Probe) string {
			p.KeyID, p.Token = "LTAInobodysKeyOfConformance", ""
			return p.ask("DescribeRegions").outcome()
		},
			way(refusedWith("InvalidAccessKeyId.NotFound", 404), "unknown-key-is-400", "false"),
			way(refusedWith("InvalidAccessKeyId.NotFound", 400), "unknown-key-is-400", "true")),
		one("Common errors", "a region that does not exist is InvalidRegionId.NotFound", common, Nothing, func(p *Probe) {
			p.refused(p.askOf(ecsVersion, "DescribeZones", "RegionId", "cn-nowhere"), 404, "InvalidRegionId.NotFound")
		}),
		one("Common errors", "a lack of permission is Forbidden.RAM with AccessDeniedDetail", common+"; detail "+seen, Simulator, func(p *Probe) {
			p.must(p.Sim.Deny(ecssim.Denial{Action: "CreateDisk"}))
			a := p.ask("CreateDisk", "ZoneId", p.Zone, "Size", "20")
			p.refused(a, 403, "Forbidden.RAM")
			if detail, _ := a.body["AccessDeniedDetail"].(map[string]any); detail["AuthAction"] != "ecs:CreateDisk" {
				p.differs("detail %v", a.body["AccessDeniedDetail"])
			}
		}),
		one("Common errors", "a read without permission may show nothing instead", page+" of DescribeInstances", Simulator, func(p *Probe) {
			id := p.ready()
			p.must(p.Sim.Deny(ecssim.Denial{Action: "DescribeDisks", Empty: true}))
			if p.show(id) != nil {
				p.differs("the disk is shown")
			}
		}),
		one("Throttling", "an action that is throttled in one minute works again in the next, and other actions continue to work", page+" on throttling", Simulator, func(p *Probe) {
			p.must(p.Sim.SetThrottle(ecssim.Throttle{Limits: map[string]int{"DescribeDisks": 2}}))
			p.ok(p.ask("DescribeDisks"))
			p.ok(p.ask("DescribeDisks"))
			p.refused(p.ask("DescribeDisks"), 400, "Throttling")
			p.ok(p.ask("DescribeInstances"))
			p.sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
			p.ok(p.ask("DescribeDisks"))
		}),
		one("Throttling", "a refused call has no effect", page+" on throttling", Simulator, func(p *Probe) {
			p.must(p.Sim.SetThrottle(ecssim.Throttle{Limits: map[string]int{"CreateDisk": 1}}))
			p.create()
			p.refused(p.ask("CreateDisk", "ZoneId", p.Zone, "DiskCategory", "cloud_essd", "Size", "20"), 400, "Throttling")
			if n := len(p.Sim.Disks()); n != p.systemDisks()+1 {
				p.differs("%d disks", n)
			}
		}),
		several("Throttling", "a call beyond the limit", "API pages differ; clients match the prefix Throttling", Simulator, func(p *Probe) string {
			p.must(p.Sim.SetThrottle(ecssim.Throttle{Limits: map[string]int{"DescribeRegions": 1}, Code: p.Sim.State().Throttle.Code}))
			p.ok(p.ask("DescribeRegions"))
			return p.ask("DescribeRegions").outcome()
		}, waysByCode("throttle-code", ecssim.ThrottleCodes, func(string) int { return 400 })...),
	}
}

// waysByCode are ways that differ in the code of a refusal alone.
func waysByCode(setting string, codes []string, status func(code string) int) []Way {
	var ways []Way
	for _, code := range codes {
		ways = append(ways, way(refusedWith(code, status(code)), setting, code))
	}
	return ways
}

func (p *Probe) describeRegions(method string, shift time.Duration) string {
	return p.signed(method, ecsVersion, "DescribeRegions", shift, "RegionId", p.Region)
}

var requestIDForm = regexp.MustCompile(`^[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}$`)

// hasRequestID notes a reply without a request ID.
func (p *Probe) hasRequestID(a reply) {
	if id := a.body.text("RequestId"); !requestIDForm.MatchString(id) || a.header.Get("X-Acs-Request-Id") != id {
		p.differs("request ID %q in the body and %q in the header", id, a.header.Get("X-Acs-Request-Id"))
	}
}

// regionQuery is a query that needs no encoding.
func (p *Probe) regionQuery() string { return "RegionId=" + p.Region }

// headersACS3 signs a request of DescribeDisks in headers. The query is sorted and encoded already.
func (p *Probe) headersACS3(query string, shift time.Duration) http.Header {
	target, err := url.Parse(p.Endpoint)
	p.must(err)
	hash := sha256.Sum256(nil)
	values := [][2]string{
		{"content-type", formType}, {"host", target.Host}, {"x-acs-action", "DescribeDisks"}, {"x-acs-content-sha256", hex.EncodeToString(hash[:])},
		{"x-acs-date", time.Now().Add(shift).UTC().Format(time.RFC3339)}, {"x-acs-security-token", p.Token}, {"x-acs-signature-nonce", nonce()},
		{"x-acs-version", ecsVersion},
	}
	header := http.Header{}
	var lines, names []string
	for _, v := range values {
		if v[1] == "" {
			continue
		}
		lines, names = append(lines, v[0]+":"+v[1]+"\n"), append(names, v[0])
		if v[0] != "host" {
			header.Set(v[0], v[1])
		}
	}
	digest := sha256.Sum256([]byte(fmt.Sprintf("POST\n/\n%s\n%s\n%s\n%x", query, strings.Join(lines, ""), strings.Join(names, ";"), hash)))
	mac := hmac.New(sha256.New, []byte(p.Secret))
	fmt.Fprintf(mac, "ACS3-HMAC-SHA256\n%x", digest)
	header.Set("Authorization", fmt.Sprintf("ACS3-HMAC-SHA256 Credential=%s,SignedHeaders=%s,Signature=%x", p.KeyID, strings.Join(names, ";"), mac.Sum(nil)))
	return header
}

// sendACS3 sends what headersACS3 has signed.
func (p *Probe) sendACS3(query string, header http.Header) reply {
	return p.mustAnswer(p.send(p.ctx, http.MethodPost, p.Endpoint+"/?"+query, "", header))
}

// systemDisks is how many disks of the simulator no call has made.
func (p *Probe) systemDisks() int {
	state := p.Sim.State()
	return len(state.Disks) + state.DisksDeleted - state.Calls["CreateDisk"][""]
}
