package actions

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// Rules are what ECS allows the account, and how it behaves where sources
// disagree.
type Rules struct {
	Region          string   // ID
	Zones           []string // IDs
	Account         string   // ID
	Roles           []Role   // that can be assumed
	InstanceKeyLife time.Duration

	KMSKeys, ResourceGroups, StorageClusters []string // IDs that exist; nil takes any

	Queues Queues // of each instance
	Doubts Doubts
	Limits Limits
	Quotas Quotas

	PageTokenLife      time.Duration // how long a NextToken is taken; zero is for ever
	BindFailedTokens   bool          // a refused call uses its ClientToken up
	ForgiveUnknownDisk bool          // DeleteDisk of a disk that does not exist is a success
}

// Service is the ECS that requests are for.
type Service struct {
	Rules    Rules
	Region   *state.Region
	Timing   *faults.Timing
	keys     *wire.Keyring
	tokens   tokens
	metadata metadataService
}

// New returns a service in which nothing has been asked for. A ClientToken
// is remembered for tokenLife.
func New(r Rules, region *state.Region, timing *faults.Timing, keys *wire.Keyring, tokenLife time.Duration) *Service {
	return &Service{Rules: r, Region: region, Timing: timing, keys: keys, tokens: newTokens(tokenLife), metadata: newMetadataService()}
}

// Request is one request as its action sees it, and what the action says besides
// the body of its reply.
type Request struct {
	*Service
	wire.Input
	RequestID string
	Header    map[string]string
	Action    Action
	Caller    *wire.AccessKey // who signed it; nil if the action takes no signature
	Fault     faults.Fault    // that hits it
	Blind     bool            // the caller sees nothing of what a read finds
	At        time.Time       // when it takes effect
	Now       time.Time       // the time as the action sees it
	Takes     time.Duration   // from the effect to the reply

	Disk   string        // the request's DiskId, or the one disk that its list names
	stale  bool          // a read shows what was at now, which is past
	Plain  bool          // the reply is text, not JSON
	Text   string        // of a plain reply
	Silent bool          // there is no reply
	Token  *tokenKey     // that the request bound
	Extra  time.Duration // what the action adds to takes
	Ends   time.Time     // when the change that it began is over; zero if it began none
}

// Read reads what a message asks for, of the API or of the metadata service.
func (req *Request) Read(m wire.Message) (no *wire.Refusal) {
	if strings.HasPrefix(m.Path, MetadataRoot) {
		return req.readMetadataRequest(m)
	}
	if req.Input, no = wire.ReadInput(m); no != nil {
		return no
	}
	return req.findAction(m)
}

// findAction looks the action up.
func (req *Request) findAction(m wire.Message) *wire.Refusal {
	name, version := req.ActionName(m)
	if name == "" {
		return wire.Missing("Action")
	}
	a, ok := byName[name]
	if !ok || a.version != version || version == versionMetadata {
		return wire.Refuse(404, "InvalidAction.NotFound", "Specified api is not found: Action %q of Version %q.", name, version)
	}
	req.Action = a
	return nil
}

// Perform checks what every action has in common and runs the action.
func (req *Request) Perform() (wire.Object, *wire.Refusal) {
	if no := req.checkRequired(); no != nil {
		return nil, no
	}
	if no := req.checkEmpty(); no != nil {
		return nil, no
	}
	if region := req.Params["RegionId"]; region != "" && region != req.Rules.Region && !req.Action.anyRegion {
		return nil, req.Action.wrongRegion(region)
	}
	if req.Fault.Do == faults.Ignored && !wire.IsRead(req.Action.Name) {
		return req.ignored(), nil
	}
	req.lagBehind()
	body, no := req.Action.do(req)
	if req.Blind || req.Fault.Do == faults.Nothing && wire.IsRead(req.Action.Name) {
		body = body.Emptied()
	}
	return body, no
}

// checkRequired refuses a request that lacks a mandatory parameter.
func (req *Request) checkRequired() *wire.Refusal {
	for _, name := range req.Action.required {
		prefix, isList := strings.CutSuffix(name, ".N")
		if req.Params[name] != "" || isList && req.Params.HasList(prefix) {
			continue
		}
		no := wire.Missing(name)
		if own, ok := req.Action.absent[name]; ok {
			no.Status, no.Code = own.Status, own.Code
		}
		return no
	}
	return nil
}

// checkEmpty refuses an empty value that the action does not take.
func (req *Request) checkEmpty() *wire.Refusal {
	for _, name := range slices.Sorted(maps.Keys(req.Action.notEmpty)) {
		if value, is := req.Sent[name]; is && value == "" {
			no := req.Action.notEmpty[name]
			return &no
		}
	}
	return nil
}

// ignored is the reply to a change that is said to be made and is not.
func (req *Request) ignored() wire.Object {
	if !req.Action.ordered {
		return nil
	}
	return wire.Object{"OrderId": "20" + strings.ToLower(req.RequestID[:8])}
}

// Unknown returns the parameters that the action does not take, with N for
// the numbers in their names.
func (req *Request) Unknown() []string {
	var names []string
	for name := range req.Sent {
		name = wire.Numbered(name)
		if !req.Action.takes(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Product returns the product of the action as Recommend spells it.
func (req *Request) Product() string {
	if req.Action.version == versionSTS {
		return "Sts"
	}
	return "Ecs"
}
