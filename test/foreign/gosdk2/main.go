// Gosdk2 is a client of ECS that uses the second generation of Alibaba Cloud's SDKs for Go, which signs in headers, and
// nothing of topodisk. It leads a disk through its life with the parameters of its calls in the query, and another one with
// those in a form.
//
// It calls by the SDK's generic client: the typed one of ECS is the same client with a type for each parameter, and takes
// minutes to compile.
//
// The environment is that of gosdk, and so is the output.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	openapi "github.com/alibabacloud-go/darabonba-openapi/v2/client"
	"github.com/alibabacloud-go/tea/dara"
	"github.com/alibabacloud-go/tea/tea"
)

// client calls ECS and STS, and counts what is not answered as the documentation says.
type client struct {
	api   *openapi.Client
	form  bool // parameters go into a form, not into the query
	made  int
	wrong []string
}

// keys sign the calls.
type keys struct{ id, secret, token string }

// params are the parameters of a call, by their names on the wire.
type params map[string]string

// body is the body of a reply.
type body map[string]any

func open(k keys) *openapi.Client {
	c, err := openapi.NewClient(&openapi.Config{
		AccessKeyId: &k.id, AccessKeySecret: &k.secret, SecurityToken: &k.token,
		Endpoint: dara.String(os.Getenv("ECS_ADDRESS")), Protocol: dara.String("HTTP"), RegionId: dara.String(os.Getenv("ECS_REGION")),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "gosdk2:", err)
		os.Exit(1)
	}
	return c
}

// call makes a call, and returns its reply and how it was answered: "200", or HTTP status and code.
func (c *client) call(action string, p params) (body, string) {
	version := "2014-05-26"
	if action == "AssumeRole" || action == "GetCallerIdentity" {
		version = "2015-04-01"
	}
	request := &openapi.OpenApiRequest{}
	all := maps.Clone(p)
	all["RegionId"] = os.Getenv("ECS_REGION")
	query, form := map[string]*string{}, map[string]any{}
	for name, value := range all {
		query[name], form[name] = &value, value
	}
	if c.form {
		request.Body = form
	} else {
		request.Query = query
	}
	reply, err := c.api.CallApi(&openapi.Params{
		Action: &action, Version: &version, Protocol: dara.String("HTTP"), Pathname: dara.String("/"), Method: dara.String("POST"),
		AuthType: dara.String("AK"), Style: dara.String("RPC"), ReqBodyType: dara.String("formData"), BodyType: dara.String("json"),
	}, request, &dara.RuntimeOptions{})
	var refused *tea.SDKError
	switch {
	case errors.As(err, &refused):
		return nil, fmt.Sprintf("%d %s", dara.IntValue(refused.StatusCode), dara.StringValue(refused.Code))
	case err != nil:
		return nil, err.Error()
	}
	got, _ := reply["body"].(map[string]any)
	return got, "200"
}

// requestID is a UUID in upper case (ECS, Response structure).
var requestID = regexp.MustCompile(`^[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}$`)

// want makes a call that is to be answered in one of the ways.
func (c *client) want(fact, action string, p params, ways ...string) body {
	got, answer := c.call(action, p)
	c.made++
	if id, _ := got["RequestId"].(string); !slices.Contains(ways, answer) || answer == "200" && !requestID.MatchString(id) {
		c.wrong = append(c.wrong, fmt.Sprintf("%s: %s is answered %s %v, want %s", fact, action, answer, got, strings.Join(ways, " or ")))
	}
	return got
}

// until repeats a call until it is answered with 200 and check is content, for a minute at most. It counts as one call.
func (c *client) until(fact, action string, p params, check func(body) bool) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		got, answer := c.call(action, p)
		if answer == "200" && check(got) || time.Now().After(end) {
			c.made++
			if answer != "200" || !check(got) {
				c.wrong = append(c.wrong, fmt.Sprintf("%s: %s is answered %s %v for a minute", fact, action, answer, got))
			}
			return
		}
	}
}

// list returns the objects of a list of a reply.
func (b body) list(outer, inner string) (objects []map[string]any) {
	wrap, _ := b[outer].(map[string]any)
	list, _ := wrap[inner].([]any)
	for _, o := range list {
		object, _ := o.(map[string]any)
		objects = append(objects, object)
	}
	return objects
}

func ids(id string) params {
	text, _ := json.Marshal([]string{id})
	return params{"DiskIds": string(text)}
}

// status says whether a disk is the only one of a reply, and in a state.
func status(wanted string) func(body) bool {
	return func(b body) bool {
		disks := b.list("Disks", "Disk")
		return len(disks) == 1 && disks[0]["Status"] == wanted
	}
}

func (c *client) life(run string) {
	any := func(body) bool { return true }
	order := params{
		"ZoneId": os.Getenv("ECS_ZONE"), "DiskCategory": "cloud_essd", "Size": "20", "DiskName": "数据盘-ä_go", "ClientToken": run,
		"Description": `Ein Datenträger: 100% & 数据 + "=" 🙂 ~*`, "Tag.1.Key": "团队", "Tag.1.Value": "存储 + Größe", "Tag.2.Key": "run", "Tag.2.Value": run,
	}
	id, _ := c.want("a disk is made", "CreateDisk", order, "200")["DiskId"].(string)
	if again := c.want("the same token again is the same disk", "CreateDisk", order, "200")["DiskId"]; again != id || id == "" {
		c.wrong = append(c.wrong, fmt.Sprintf("the same token is disk %v, and then %v", id, again))
	}
	other := maps.Clone(order)
	other["Size"] = "21"
	c.want("the same token for another size", "CreateDisk", other, "400 IdempotentParameterMismatch", "403 IdempotentParameterMismatch")
	c.until("a disk is there", "DescribeDisks", ids(id), status("Available"))
	c.until("a disk is found by its tags", "DescribeDisks", params{"Tag.1.Key": "run", "Tag.1.Value": run}, func(b body) bool {
		disks := b.list("Disks", "Disk")
		return len(disks) == 1 && disks[0]["DiskName"] == order["DiskName"] && disks[0]["Description"] == order["Description"]
	})
	on := params{"DiskId": id, "InstanceId": os.Getenv("ECS_INSTANCE")}
	c.until("a disk is attached", "AttachDisk", on, any)
	c.until("a disk is in use", "DescribeDisks", ids(id), status("In_use"))
	c.want("a disk in use stays", "DeleteDisk", params{"DiskId": id}, "403 IncorrectDiskStatus", "400 IncorrectDiskStatus")
	c.until("a disk is detached", "DetachDisk", on, any)
	c.until("a disk is off", "DescribeDisks", ids(id), status("Available"))
	c.want("a disk is deleted", "DeleteDisk", params{"DiskId": id}, "200")
	c.until("a disk is gone", "DescribeDisks", ids(id), func(b body) bool { return len(b.list("Disks", "Disk")) == 0 })
}

// otherKeys signs with keys that are wrong, and with temporary ones.
func (c *client) otherKeys(own keys) {
	account, _ := c.want("who asks is known", "GetCallerIdentity", params{}, "200")["AccountId"].(string)
	role := params{"RoleArn": "acs:ram::" + account + ":role/" + os.Getenv("ECS_ROLE"), "RoleSessionName": "foreign"}
	given, _ := c.want("a role is assumed", "AssumeRole", role, "200")["Credentials"].(map[string]any)
	text := func(name string) string { s, _ := given[name].(string); return s }
	session := keys{text("AccessKeyId"), text("AccessKeySecret"), text("SecurityToken")}
	for _, try := range []struct {
		fact string
		keys keys
		ways []string
	}{
		{"an unknown key", keys{"LTAI5tNobodysKey", own.secret, ""}, []string{"404 InvalidAccessKeyId.NotFound", "400 InvalidAccessKeyId.NotFound"}},
		{"a wrong secret", keys{own.id, "wrong", ""}, []string{"400 SignatureDoesNotMatch"}},
		{"a token not of the key", keys{own.id, own.secret, "wrong"},
			[]string{"400 InvalidSecurityToken.MismatchWithAccessKey", "400 InvalidSecurityToken.Malformed"}},
		{"temporary keys", session, []string{"200"}},
		{"temporary keys with a wrong secret", keys{session.id, "wrong", session.token}, []string{"400 SignatureDoesNotMatch"}},
		{"the keys are right still", own, []string{"200"}},
	} {
		c.api = open(try.keys)
		c.want(try.fact, "DescribeRegions", params{}, try.ways...)
	}
}

func main() {
	own := keys{id: os.Getenv("ECS_KEY_ID"), secret: os.Getenv("ECS_KEY_SECRET")}
	c := &client{api: open(own)}
	for _, c.form = range []bool{false, true} {
		c.life(fmt.Sprintf("gosdk2-%d", time.Now().UnixNano()))
		c.otherKeys(own)
	}
	for _, line := range c.wrong {
		fmt.Println(line)
	}
	fmt.Printf("darabonba-openapi with %s: %d calls, %d as expected\n", runtime.Version(), c.made, c.made-len(c.wrong))
	if len(c.wrong) > 0 {
		os.Exit(1)
	}
}
