package ecssim_test

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// The conformance suite holds an ECS against its documentation: a fact each,
// under the page of the API reference that states it. The simulator is always
// held against all of them. The real ECS is held against those that it can be
// with the environment set:
//
//	ALIBABA_CLOUD_ACCESS_KEY_ID, ALIBABA_CLOUD_ACCESS_KEY_SECRET, ALIBABA_CLOUD_SECURITY_TOKEN
//	CONFORMANCE_REGION, CONFORMANCE_ZONE   where; without a region nothing is asked
//	CONFORMANCE_ENDPOINT                   default ecs.<region>.aliyuncs.com
//	CONFORMANCE_DISKS=yes                  also facts that make disks of 20 GiB and delete them, which cost money
//	CONFORMANCE_INSTANCE                   also facts that attach disks to this instance, in that zone

// fact is one thing that the documentation, or what clients have seen, says.
type fact struct {
	page  string // of the API reference
	says  string
	needs need
	check func(t *testing.T, c *cloud)
}

// need is what a fact takes to be checked.
type need int

const (
	needsNothing  need = iota
	needsDisks         // makes disks
	needsInstance      // attaches disks to c.instance
	needsSim           // sets what only a simulator lets one set, or makes many disks
)

// cloud is the ECS that is held against the facts.
type cloud struct {
	t        *testing.T
	sim      *ecssim.Server // nil for the real one
	next     http.RoundTripper
	endpoint string // with its scheme
	keyID    string
	secret   string
	token    string
	region   string
	zone     string
	instance string
	tamper   func(url.Values) // changes a request after it is signed
	shift    time.Duration    // added to the timestamps
}

// ask makes a request of ECS with parameters in pairs of name and value.
func (c *cloud) ask(action string, pairs ...string) answer {
	c.t.Helper()
	return c.askOf("2014-05-26", action, append([]string{"RegionId", c.region}, pairs...)...)
}

func (c *cloud) askOf(version, action string, pairs ...string) answer {
	c.t.Helper()
	return send(c.t, c.next, "POST", c.endpoint+"/?"+c.signed("POST", version, action, pairs...), "")
}

// signed returns the query of a request with signature version 1.0, made by
// the book.
func (c *cloud) signed(method, version, action string, pairs ...string) string {
	nonce := make([]byte, 16)
	if _, err := rand.Read(nonce); err != nil {
		c.t.Fatal(err)
	}
	v := url.Values{
		"Action": {action}, "Version": {version}, "Format": {"JSON"}, "Timestamp": {time.Now().Add(c.shift).UTC().Format("2006-01-02T15:04:05Z")},
		"SignatureMethod": {"HMAC-SHA1"}, "SignatureVersion": {"1.0"}, "SignatureNonce": {base64.RawURLEncoding.EncodeToString(nonce)}, "AccessKeyId": {c.keyID},
	}
	if c.token != "" {
		v.Set("SecurityToken", c.token)
	}
	for i := 0; i < len(pairs); i += 2 {
		if v.Del(pairs[i]); pairs[i+1] != "" { // the later wins, and an empty one takes it away
			v.Set(pairs[i], pairs[i+1])
		}
	}
	encode := func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
	mac := hmac.New(sha1.New, []byte(c.secret+"&"))
	mac.Write([]byte(method + "&%2F&" + encode(strings.ReplaceAll(v.Encode(), "+", "%20"))))
	v.Set("Signature", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	if c.tamper != nil {
		c.tamper(v)
	}
	return v.Encode()
}

// ok fails unless a call went well.
func (c *cloud) ok(a answer) answer {
	c.t.Helper()
	if a.status != 200 {
		c.t.Fatalf("got %d %s, want 200", a.status, a.text)
	}
	return a
}

// refused fails unless a call was refused with a status and a code.
func (c *cloud) refused(a answer, status int, code string) {
	c.t.Helper()
	if a.status != status || a.code() != code {
		c.t.Errorf("got %d %s, want %d %s", a.status, a.text, status, code)
	}
}

// row is an object of a reply.
type row map[string]any

func (r row) text(name string) string { s, _ := r[name].(string); return s }

// rows returns the list of a reply: {"Disks": {"Disk": [...]}}.
func (a answer) rows(outer, inner string) []row { return row(a.body).rows(outer, inner) }

func (r row) rows(outer, inner string) []row {
	wrap, _ := r[outer].(map[string]any)
	list, _ := wrap[inner].([]any)
	var out []row
	for _, o := range list {
		m, _ := o.(map[string]any)
		out = append(out, m)
	}
	return out
}

// create makes a disk of 20 GiB, whatever else pairs say, and deletes it in
// the end.
func (c *cloud) create(pairs ...string) string {
	c.t.Helper()
	a := c.ok(c.ask("CreateDisk", append([]string{"ZoneId", c.zone, "DiskCategory", "cloud_essd", "Size", "20", "DiskName", "conformance"}, pairs...)...))
	id, _ := a.body["DiskId"].(string)
	if c.sim == nil {
		c.t.Cleanup(func() { c.remove(id) })
	}
	return id
}

// remove detaches and deletes a disk that may be gone already.
func (c *cloud) remove(id string) {
	for range 60 {
		d := c.show(id)
		switch {
		case d == nil:
			return
		case d.text("Status") == "In_use":
			c.ask("DetachDisk", "DiskId", id, "InstanceId", d.text("InstanceId"))
		case d.text("Status") == "Available":
			c.ask("DeleteDisk", "DiskId", id)
		}
		time.Sleep(2 * time.Second)
	}
	c.t.Errorf("disk %s is left over: delete it by hand", id)
}

// show returns a disk as DescribeDisks shows it; nil if it does not.
func (c *cloud) show(id string) row {
	c.t.Helper()
	if list := c.ok(c.ask("DescribeDisks", "DiskIds", `["`+id+`"]`)).rows("Disks", "Disk"); len(list) == 1 {
		return list[0]
	}
	return nil
}

// await waits until a disk is in a state.
func (c *cloud) await(id, status string) row {
	c.t.Helper()
	for range 300 {
		if d := c.show(id); d != nil && d.text("Status") == status {
			return d
		}
		time.Sleep(time.Second)
	}
	c.t.Fatalf("disk %s does not come to %s: %v", id, status, c.show(id))
	return nil
}

// ready makes a disk and waits until it can be used.
func (c *cloud) ready(pairs ...string) string {
	c.t.Helper()
	id := c.create(pairs...)
	c.await(id, "Available")
	return id
}

// attached makes a disk and attaches it.
func (c *cloud) attached(pairs ...string) string {
	c.t.Helper()
	id := c.ready(pairs...)
	c.ok(c.ask("AttachDisk", "DiskId", id, "InstanceId", c.instance))
	c.await(id, "In_use")
	return id
}

// facts are all of them, page by page.
func facts() []fact {
	return slices.Concat(wireFacts, accountFacts, diskFacts, attachFacts, snapshotFacts, shopFacts)
}

// newSimulated returns a simulator with the latencies that clients see.
func newSimulated(t *testing.T, change func(*ecssim.Config)) *cloud {
	t.Helper()
	latency, err := ecssim.Profile("real")
	if err != nil {
		t.Fatal(err)
	}
	latency.Spread = 0 // a disk that is Available is not Initializing any more
	s := newServer(t, func(c *ecssim.Config) {
		withRole(c)
		c.Latency = latency
		if change != nil {
			change(c)
		}
	})
	return &cloud{t: t, sim: s, next: s, endpoint: "http://ecs.test", keyID: keyID, secret: secret, region: region, zone: zoneH, instance: "i-1"}
}

func TestConformanceOfTheSimulator(t *testing.T) {
	for _, f := range facts() {
		t.Run(f.page+"/"+f.says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newSimulated(t, nil)
				f.check(t, c)
				if err := c.sim.Check(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestConformanceOfECS holds the real ECS against the facts, and so the facts
// against it.
func TestConformanceOfECS(t *testing.T) {
	at := os.Getenv("CONFORMANCE_REGION")
	if at == "" || os.Getenv("ALIBABA_CLOUD_ACCESS_KEY_ID") == "" {
		t.Skip("the real ECS is asked with ALIBABA_CLOUD_ACCESS_KEY_ID, ALIBABA_CLOUD_ACCESS_KEY_SECRET and CONFORMANCE_REGION in the environment only")
	}
	endpoint := os.Getenv("CONFORMANCE_ENDPOINT")
	if endpoint == "" {
		endpoint = "https://ecs." + at + ".aliyuncs.com"
	}
	for _, f := range facts() {
		t.Run(f.page+"/"+f.says, func(t *testing.T) {
			c := &cloud{
				t: t, next: http.DefaultTransport, endpoint: endpoint, region: at, zone: os.Getenv("CONFORMANCE_ZONE"), instance: os.Getenv("CONFORMANCE_INSTANCE"),
				keyID: os.Getenv("ALIBABA_CLOUD_ACCESS_KEY_ID"), secret: os.Getenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET"), token: os.Getenv("ALIBABA_CLOUD_SECURITY_TOKEN"),
			}
			if why := c.lacks(f.needs); why != "" {
				t.Skip(why)
			}
			f.check(t, c)
		})
	}
}

// lacks says what a fact needs that is not there.
func (c *cloud) lacks(n need) string {
	disks := os.Getenv("CONFORMANCE_DISKS") == "yes" && c.zone != ""
	switch {
	case n == needsSim:
		return "only a simulator can be set up for this"
	case n >= needsDisks && !disks:
		return "it makes disks: set CONFORMANCE_DISKS=yes and CONFORMANCE_ZONE"
	case n == needsInstance && c.instance == "":
		return "it attaches a disk: set CONFORMANCE_INSTANCE"
	}
	return ""
}

func TestFactsAreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range facts() {
		name := f.page + "/" + f.says
		if seen[name] || f.page == "" || f.says == "" || f.check == nil {
			t.Errorf("fact %q is there twice or lacks something", name)
		}
		seen[name] = true
	}
}

func repeated(n int, text string) []string { return slices.Repeat([]string{text}, n) }

// manyTags are n tags as parameters.
func manyTags(n int) []string {
	var pairs []string
	for i := range n {
		at := "Tag." + strconv.Itoa(i+1)
		pairs = append(pairs, at+".Key", "k"+strconv.Itoa(i), at+".Value", "v")
	}
	return pairs
}

// get reads a path of the metadata service of an instance.
func (c *cloud) get(instance, path string) (int, string) {
	c.t.Helper()
	r, err := http.NewRequest("GET", "http://100.100.100.200"+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	reply, err := c.sim.Metadata(instance).RoundTrip(r)
	if err != nil {
		c.t.Fatal(err)
	}
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return reply.StatusCode, string(text)
}
