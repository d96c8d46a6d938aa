package facts

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Client sends signed requests to an ECS. Disks and snapshots that it makes
// carry its tags from the call that makes them, and it changes no others.
type Client struct {
	Next     http.RoundTripper
	Endpoint string // with its scheme, such as https://ecs.cn-hangzhou.aliyuncs.com
	KeyID    string
	Secret   string
	Token    string // of a temporary key
	Region   string
	Zone     string // where disks are made
	Instance string // that disks are attached to
	// Run and Instance are the values of the tags RunTag and InstanceTag.
	Run   string
	Limit *Budget // nil: no limit
}

// The tags of what a Client makes.
const (
	RunTag      = "topodisk-cloud-check"
	InstanceTag = "topodisk-cloud-check-instance"
)

const (
	ecsVersion = "2014-05-26"
	formType   = "application/x-www-form-urlencoded"
)

// tags are those of everything that the client makes, in pairs.
func (c *Client) tags() []string { return []string{RunTag, c.Run, InstanceTag, c.Instance} }

// reply is what came back on a request.
type reply struct {
	status int
	header http.Header
	body   row
	text   string
}

func (r reply) code() string { return r.body.text("Code") }

// outcome is how a call ended, in the words of Ways.
func (r reply) outcome() string {
	if r.status == http.StatusOK {
		return accepted
	}
	return refusedWith(r.code(), r.status)
}

const accepted = "accepted"

func refusedWith(code string, status int) string {
	return fmt.Sprintf("refused with %s (%d)", code, status)
}

// rows returns the list of a reply: {"Disks": {"Disk": [...]}}.
func (r reply) rows(outer, inner string) []row { return r.body.rows(outer, inner) }

// row is an object of a reply.
type row map[string]any

func (r row) text(name string) string { s, _ := r[name].(string); return s }

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

// tags returns the tags of a row by key, whatever form they have.
func (r row) tags() map[string]string {
	tags := map[string]string{}
	for _, t := range r.rows("Tags", "Tag") {
		for _, form := range []string{"TagKey", "Key"} {
			if key := t.text(form); key != "" {
				tags[key] = t.text(strings.Replace(form, "Key", "Value", 1))
			}
		}
	}
	return tags
}

// call makes a request of ECS with parameters in pairs of name and value. An
// error means that no answer came.
func (c *Client) call(ctx context.Context, action string, pairs ...string) (reply, error) {
	pairs = append([]string{"RegionId", c.Region}, pairs...)
	return c.post(ctx, c.signed(http.MethodPost, ecsVersion, action, 0, pairs...))
}

func (c *Client) post(ctx context.Context, query string) (reply, error) {
	return c.send(ctx, http.MethodPost, c.Endpoint+"/?"+query, "", nil)
}

// callTimeout is how long a call may take. ECS's SDK allows 36 s for
// CreateDisk.
const callTimeout = 40 * time.Second

// send sends a request as it is. The end of ctx does not cut a call short: it
// might have made something. The error names neither the query nor a header:
// both hold what authenticates the caller.
func (c *Client) send(ctx context.Context, method, target, form string, header http.Header) (reply, error) {
	if ctx.Err() != nil {
		return reply{}, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(form))
	if err != nil {
		return reply{}, fmt.Errorf("endpoint %q is not valid", c.Endpoint)
	}
	if header != nil {
		r.Header = header
	}
	r.Header.Set("Content-Type", formType)
	answer, err := c.Next.RoundTrip(r)
	if err != nil {
		return reply{}, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 16<<20))
	if err != nil {
		return reply{}, err
	}
	out := reply{status: answer.StatusCode, header: answer.Header, text: string(text)}
	if err := json.Unmarshal(text, &out.body); err != nil {
		return reply{}, fmt.Errorf("status %d with a body that is no JSON object", answer.StatusCode)
	}
	return out, nil
}

// signed returns the query of a request with signature version 1.0. Of a
// parameter that is there twice the later counts; an empty one is left out.
func (c *Client) signed(method, version, action string, shift time.Duration, pairs ...string) string {
	v := url.Values{
		"Action": {action}, "Version": {version}, "Format": {"JSON"}, "Timestamp": {time.Now().Add(shift).UTC().Format(time.RFC3339)},
		"SignatureMethod": {"HMAC-SHA1"}, "SignatureVersion": {"1.0"}, "SignatureNonce": {nonce()}, "AccessKeyId": {c.KeyID},
	}
	if c.Token != "" {
		v.Set("SecurityToken", c.Token)
	}
	for pair := range slices.Chunk(pairs, 2) {
		if v.Del(pair[0]); pair[1] != "" {
			v.Set(pair[0], pair[1])
		}
	}
	mac := hmac.New(sha1.New, []byte(c.Secret+"&"))
	mac.Write([]byte(method + "&%2F&" + percentEncode(strings.ReplaceAll(v.Encode(), "+", "%20"))))
	v.Set("Signature", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return v.Encode()
}

// percentEncode encodes as RFC 3986 says.
func percentEncode(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

func nonce() string { return rand.Text() }

// tagPairs adds tags, in pairs of key and value, to parameters that may have
// tags already.
func tagPairs(pairs []string, tags ...string) []string {
	n := 0
	for pair := range slices.Chunk(pairs, 2) {
		if rest, ok := strings.CutPrefix(pair[0], "Tag."); ok {
			number, _, _ := strings.Cut(rest, ".")
			at, _ := strconv.Atoi(number)
			n = max(n, at)
		}
	}
	out := slices.Clip(pairs)
	for tag := range slices.Chunk(tags, 2) {
		n++
		out = append(out, "Tag."+strconv.Itoa(n)+".Key", tag[0], "Tag."+strconv.Itoa(n)+".Value", tag[1])
	}
	return out
}

// idList is a parameter that holds IDs.
func idList(ids ...string) string {
	text, _ := json.Marshal(ids)
	return string(text)
}
