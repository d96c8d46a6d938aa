package actions

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// The metadata service of an instance: what a guest reads at
// http://100.100.100.200. Its requests are in the ledger, and meet latencies
// and faults, under the names of these two actions.
var (
	readMetadataAction = Action{Name: "Metadata", version: versionMetadata, anyRegion: true, Unsigned: true,
		optional: metadataParameters, do: readMetadata}
	metadataTokenAction = Action{Name: "MetadataToken", version: versionMetadata, anyRegion: true, Unsigned: true,
		optional: metadataParameters, do: metadataToken}
)

// metadataParameters are what the ledger keeps of a request.
var metadataParameters = []string{"Path", "InstanceId"}

// MetadataRoot is below which the metadata service is.
const MetadataRoot = "/latest/"

const (
	versionMetadata = "latest"
	tokenPath       = MetadataRoot + "api/token"
	documentPath    = MetadataRoot + "dynamic/instance-identity/document"
	dataPath        = MetadataRoot + "meta-data/"
	rolesPath       = "ram/security-credentials/"
)

// Headers of the metadata service, in lower case.
const (
	ttlHeader   = "x-aliyun-ecs-metadata-token-ttl-seconds"
	tokenHeader = "x-aliyun-ecs-metadata-token"
)

// longestToken is the greatest TTL of a token.
const longestToken = 21600

// metadataSession is a token of the metadata service.
type metadataSession struct {
	instance string
	expires  time.Time
}

// metadataService is the metadata service's own state.
type metadataService struct {
	sessions map[string]metadataSession
	keys     map[string]*wire.AccessKey // by instance
	tokens   int
}

func newMetadataService() metadataService {
	return metadataService{sessions: map[string]metadataSession{}, keys: map[string]*wire.AccessKey{}}
}

// readMetadataRequest reads a request below /latest/.
func (req *Request) readMetadataRequest(m wire.Message) *wire.Refusal {
	req.Params = wire.Parameters{"Path": m.Path, "InstanceId": m.Instance}
	req.Sent = req.Params
	req.Plain = true
	switch {
	case m.Path == tokenPath && m.Method == http.MethodPut:
		req.Action = metadataTokenAction
	case m.Path != tokenPath && m.Method == http.MethodGet:
		req.Action = readMetadataAction
	default:
		return wire.Refuse(405, "MethodNotAllowed", "405 Method Not Allowed")
	}
	return nil
}

// guest returns the instance that asks, if it may.
func guest(req *Request) (*state.Instance, *wire.Refusal) {
	i := req.Region.Instance(req.Params["InstanceId"])
	switch {
	case i == nil:
		return nil, wire.Refuse(404, "NotFound", "no instance %q: a header X-Sim-Instance, or a listener of its own, says which instance asks", req.Params["InstanceId"])
	case i.MetadataOff:
		req.Silent = true // nobody is at the address
		return nil, wire.Refuse(403, "HttpEndpointDisabled", "the metadata service of instance %s is off", i.ID)
	case req.Header["x-forwarded-for"] != "":
		return nil, wire.Refuse(403, "Forbidden", "403 - Forbidden: X-Forwarded-For")
	}
	return i, nil
}

// metadataToken gives out a token of token mode. The time is that of package
// time alone, as with all that authenticates.
func metadataToken(req *Request) (wire.Object, *wire.Refusal) {
	i, no := guest(req)
	if no != nil {
		return nil, no
	}
	seconds, err := wire.ReadNumber(req.Header[ttlHeader])
	if err != nil || seconds < 1 || seconds > longestToken {
		return nil, wire.Refuse(400, "BadRequest", "400 - Bad Request: header X-aliyun-ecs-metadata-token-ttl-seconds %q, allowed is 1 to %d", req.Header[ttlHeader], longestToken)
	}
	now := time.Now()
	maps.DeleteFunc(req.metadata.sessions, func(_ string, t metadataSession) bool { return now.Sub(t.expires) > wire.KeptAfterEnd })
	req.metadata.tokens++
	token := "imds" + wire.HexHash(fmt.Sprintf("%s/%d/%s", req.keys.Seed, req.metadata.tokens, i.ID))
	req.metadata.sessions[token] = metadataSession{i.ID, now.Add(time.Duration(seconds) * time.Second)}
	req.Text = token
	return nil, nil
}

// readMetadata answers one path, or lists what is below it.
func readMetadata(req *Request) (wire.Object, *wire.Refusal) {
	i, no := guest(req)
	if no != nil {
		return nil, no
	}
	if no := checkMetadataToken(req, i); no != nil {
		return nil, no
	}
	path := req.Params["Path"]
	if path == documentPath {
		req.Text = identityDocument(req, i)
		return nil, nil
	}
	below, ok := strings.CutPrefix(path+"/", dataPath)
	if !ok {
		return nil, wire.Refuse(404, "NotFound", "404 - Not Found")
	}
	text, ok := lookUp(req, i, strings.Trim(below, "/"))
	if !ok {
		return nil, wire.Refuse(404, "NotFound", "404 - Not Found")
	}
	req.Text = text
	return nil, nil
}

func checkMetadataToken(req *Request, i *state.Instance) *wire.Refusal {
	token := req.Header[tokenHeader]
	if token == "" {
		if i.TokensRequired {
			return wire.Refuse(403, "Forbidden", "403 - Forbidden: this instance takes requests with a token only")
		}
		return nil
	}
	if t, ok := req.metadata.sessions[token]; !ok || t.instance != i.ID || !time.Now().Before(t.expires) {
		return wire.Refuse(401, "Unauthorized", "401 - Unauthorized")
	}
	return nil
}

// lookUp returns the text at a path below meta-data, or the list of what is
// below that; directories end with a slash.
func lookUp(req *Request, i *state.Instance, path string) (string, bool) {
	leaves := metadataOf(req, i)
	if path == rolesPath+i.Role && i.Role != "" {
		return roleCredentials(req, i), true
	}
	if text, ok := leaves[path]; ok {
		return text, true
	}
	var names []string
	for leaf := range leaves {
		if path == "" || strings.HasPrefix(leaf, path+"/") {
			name, _, isDir := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(leaf, path), "/"), "/")
			if isDir {
				name += "/"
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), "\n"), len(names) > 0
}

// metadataOf returns the texts by path. The role's credentials are not among
// them, only that they are there.
func metadataOf(req *Request, i *state.Instance) map[string]string {
	id := strings.TrimPrefix(i.ID, "i-")
	n := bytesOf(i.ID)
	leaves := map[string]string{
		"instance-id": i.ID, "region-id": req.Rules.Region, "zone-id": i.Zone, "instance/instance-type": i.Type, "owner-account-id": req.Rules.Account,
		"serial-number": serialNumber(i.ID), "hostname": "iZ" + id + "Z", "mac": fmt.Sprintf("00:16:3e:%02x:%02x:%02x", n[0], n[1], n[2]),
		"private-ipv4": fmt.Sprintf("10.%d.%d.%d", n[0], n[1], n[2]), "vpc-id": "vpc-" + req.Region.Code() + "sim",
		"vswitch-id": "vsw-" + req.Region.Code() + strings.ReplaceAll(i.Zone, "-", ""), "image-id": "aliyun_3_x64_20G_alibase_sim.vhd",
	}
	if i.Role != "" {
		leaves[rolesPath+i.Role] = ""
	}
	return leaves
}

func bytesOf(text string) [3]byte {
	sum := wire.HexHash(text)
	var n [3]byte
	for k := range n {
		v, _ := strconv.ParseUint(sum[2*k:2*k+2], 16, 8) // of hexadecimal digits it can't fail
		n[k] = byte(v)
	}
	return n
}

func serialNumber(id string) string {
	sum := wire.HexHash("serial " + id)
	return strings.Join([]string{sum[:8], sum[8:12], sum[12:16], sum[16:20], sum[20:32]}, "-")
}

// identityDocument is all that a node plugin needs, in one reply.
func identityDocument(req *Request, i *state.Instance) string {
	leaves := metadataOf(req, i)
	return string(wire.EncodeJSON(wire.Object{
		"zone-id": i.Zone, "region-id": req.Rules.Region, "instance-id": i.ID, "instance-type": i.Type, "serial-number": leaves["serial-number"],
		"owner-account-id": req.Rules.Account, "private-ipv4": leaves["private-ipv4"], "mac": leaves["mac"], "image-id": leaves["image-id"],
		"vpc-id": leaves["vpc-id"], "vswitch-id": leaves["vswitch-id"],
	}))
}

// roleCredentials are those of the instance's role. They are the same for all
// who ask, and others when a twelfth of their life is left.
func roleCredentials(req *Request, i *state.Instance) string {
	now, life := time.Now(), cmp.Or(req.Rules.InstanceKeyLife, 6*time.Hour)
	key := req.metadata.keys[i.ID]
	if key == nil || key.Ended || key.Expires.Sub(now) <= life/12 {
		key = req.keys.Issue(i.Role, i.ID, now, life)
		req.metadata.keys[i.ID] = key
	}
	return string(wire.EncodeJSON(wire.Object{
		"AccessKeyId": key.ID, "AccessKeySecret": key.Secret, "SecurityToken": key.Token, "Expiration": key.Expires.UTC().Format(wire.SecondTime),
		"LastUpdated": key.Expires.Add(-life).UTC().Format(wire.SecondTime), "Code": "Success",
	}))
}

// metadataOptions is how DescribeInstances shows the instance's settings.
func metadataOptions(i *state.Instance) wire.Object {
	o := wire.Object{"HttpEndpoint": "enabled", "HttpTokens": "optional", "HttpPutResponseHopLimit": 1}
	if i.MetadataOff {
		o["HttpEndpoint"] = "disabled"
	}
	if i.TokensRequired {
		o["HttpTokens"] = "required"
	}
	return o
}
