package facts

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// Outcome is how a fact compares with what was observed.
type Outcome string

// The outcomes.
const (
	Agrees   Outcome = "agrees"
	Differs  Outcome = "differs"
	NotAsked Outcome = "not asked"
)

// Result is what came of one fact.
type Result struct {
	Fact    string  `json:"fact"` // its Name
	Outcome Outcome `json:"outcome"`
	// Observed is what was seen: of a fact with Ways, what one of them says if
	// it is known.
	Observed string `json:"observed,omitempty"`
	Why      string `json:"why,omitempty"` // it was not asked
}

// Probe asks one fact of an ECS.
type Probe struct {
	*Client
	Sim  *ecssim.Server // nil if it is not a simulator in this process
	Made []string       // IDs of the disks and snapshots of this fact, the oldest first

	ctx   context.Context
	wrong []string // what is not as the fact says
}

// stopped ends a probe early; it is recovered in Ask.
type stopped struct{ why string } // not asked for this reason; empty: what was noted says it all

// Ask asks a fact. sim is nil unless the client talks to a simulator in this
// process. The IDs of what was made are returned, too: the caller removes it.
func Ask(ctx context.Context, f Fact, c *Client, sim *ecssim.Server) (result Result, made []string) {
	own := *c // a check may change its keys
	p := &Probe{Client: &own, Sim: sim, ctx: ctx}
	result.Fact = f.Name()
	defer func() {
		made = p.Made
		ended := recover()
		s, early := ended.(stopped)
		switch {
		case ended != nil && !early:
			panic(ended)
		case early && s.why != "":
			result.Outcome, result.Why, result.Observed = NotAsked, c.redact(s.why), ""
		case len(p.wrong) > 0:
			result.Outcome, result.Observed = Differs, c.redact(strings.Join(p.wrong, "; "))
		}
	}()
	result.Outcome = Agrees
	if f.observe == nil {
		f.check(p)
		return result, nil
	}
	result.Observed = f.observe(p)
	if result.Observed != f.Ways[0].Says {
		result.Outcome = Differs
	}
	return result, nil
}

// redact takes what authenticates the caller out of a text.
func (c *Client) redact(text string) string {
	for _, secret := range []string{c.Secret, c.Token, c.KeyID} {
		if secret != "" {
			text = strings.NewReplacer(secret, "***", percentEncode(secret), "***", percentEncode(percentEncode(secret)), "***").Replace(text)
		}
	}
	return text
}

// differs notes what is not as the fact says.
func (p *Probe) differs(format string, args ...any) {
	p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
}

// stop notes that and ends the probe.
func (p *Probe) stop(format string, args ...any) {
	p.differs(format, args...)
	panic(stopped{})
}

// skip ends the probe: the fact can't be asked, for this reason.
func (p *Probe) skip(format string, args ...any) { panic(stopped{fmt.Sprintf(format, args...)}) }

// must ends the probe if a simulator can't be set up.
func (p *Probe) must(err error) {
	if err != nil {
		p.skip("the simulator can't be set up: %v", err)
	}
}

// ask makes a request of ECS with parameters in pairs of name and value.
func (p *Probe) ask(action string, pairs ...string) reply {
	return p.askOf(ecsVersion, action, append([]string{"RegionId", p.Region}, pairs...)...)
}

// askOf makes a request of any version. What is to be made gets the client's
// tags and is counted; a throttled call is repeated.
func (p *Probe) askOf(version, action string, pairs ...string) reply {
	pairs = p.prepare(action, pairs)
	for wait := time.Second; ; wait *= 2 {
		p.reserve(action, pairs)
		answer, err := p.post(p.ctx, p.signed(http.MethodPost, version, action, 0, pairs...))
		if err == nil && answer.status < 500 { // otherwise it may have taken effect
			p.note(action, answer)
		}
		p.mustAnswer(answer, err)
		if p.Sim == nil && strings.HasPrefix(answer.code(), "Throttling") && wait < 2*time.Minute {
			p.sleep(wait)
			continue
		}
		return answer
	}
}

// mustAnswer ends the probe if no answer came, or none that says anything of
// the fact.
func (p *Probe) mustAnswer(answer reply, err error) reply {
	switch {
	case err != nil && p.ctx.Err() != nil:
		p.skip("the time for it was over")
	case err != nil:
		p.skip("no answer: %v", err)
	case p.Sim == nil && answer.status >= 500:
		p.skip("ECS answered %d %s", answer.status, answer.code())
	case p.Sim == nil && strings.HasPrefix(answer.code(), "Forbidden."):
		p.skip("the key may not: %s (%d)", answer.code(), answer.status)
	}
	return answer
}

// makes are the actions that make something that costs money.
var makes = map[string]string{"CreateDisk": "DiskId", "CreateSnapshot": "SnapshotId", "CreateSnapshotGroup": "SnapshotGroupId"}

// prepare adds the client's tags to a request that makes something.
func (p *Probe) prepare(action string, pairs []string) []string {
	p.guard(action, pairs)
	if makes[action] == "" {
		return pairs
	}
	return tagPairs(pairs, p.tags()...)
}

// reserve checks that there is room for what a request makes.
func (p *Probe) reserve(action string, pairs []string) {
	if makes[action] == "" {
		return
	}
	if err := p.Limit.reserve(p.ctx, action, pairs); err != nil {
		p.skip("%v", err)
	}
}

// guard ends the probe before a request that would change what it has not
// made.
func (p *Probe) guard(action string, pairs []string) {
	if strings.HasPrefix(action, "Describe") || strings.HasPrefix(action, "List") || action == "CreateDisk" {
		return
	}
	for pair := range slices.Chunk(pairs, 2) {
		name, _, _ := strings.Cut(pair[0], ".")
		named := slices.Contains([]string{"DiskId", "DiskIds", "SnapshotId", "ResourceId"}, name)
		if named && !slices.Contains(p.Made, pair[1]) && pair[1] != noDisk && pair[1] != noSnapshot {
			p.skip("%s would change %s, which this fact has not made", action, pair[1])
		}
	}
}

// note keeps what a request has made.
func (p *Probe) note(action string, answer reply) {
	if makes[action] == "" {
		return
	}
	id := answer.body.text(makes[action])
	if answer.status != http.StatusOK || slices.Contains(p.Made, id) {
		id = ""
	}
	if id != "" {
		p.Made = append(p.Made, id)
	}
	p.Limit.settle(action, id)
}

// sleep waits, and ends the probe if its time is over.
func (p *Probe) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.ctx.Done():
		p.skip("the time for it was over")
	}
}

// ok ends the probe unless a call succeeded.
func (p *Probe) ok(answer reply) reply {
	if answer.status != http.StatusOK {
		p.stop("%s", answer.outcome())
	}
	return answer
}

// refused notes a call that was not refused with a status and a code.
func (p *Probe) refused(answer reply, status int, code string) {
	if answer.status != status || answer.code() != code {
		p.differs("%s", answer.outcome())
	}
}

// unavailable are codes of what an account or a zone does not have. They say
// nothing of a fact.
var unavailable = []string{
	"InvalidDataDiskCategory", "OperationDenied.NoStock", "Zone.NotOnSale", "QuotaExceed", "InvalidPerformanceLevel.ValueNotSupported", "InvalidAccountStatus",
	"InvalidInstanceType.", "InstanceDiskLimitExceeded", "ResourcesNotInSameZone", "IncorrectInstanceStatus", "OperationDenied.ZoneNotSupport",
}

// had ends the probe unless a call succeeded or was refused with one of some
// codes. If the account or the zone lacks something, the fact is not asked.
func (p *Probe) had(what string, answer reply, codes ...string) reply {
	if slices.Contains(codes, answer.code()) {
		return answer
	}
	if slices.ContainsFunc(unavailable, func(prefix string) bool { return strings.HasPrefix(answer.code(), prefix) }) {
		p.skip("%s was %s", what, answer.outcome())
	}
	return p.ok(answer)
}

// create makes a disk of 20 GiB, whatever else pairs say.
func (p *Probe) create(pairs ...string) string {
	answer := p.had("CreateDisk", p.ask("CreateDisk",
		append([]string{"ZoneId", p.Zone, "DiskCategory", "cloud_essd", "Size", "20", "DiskName", RunTag}, pairs...)...))
	return answer.body.text("DiskId")
}

// show returns a disk as DescribeDisks shows it; nil if it does not.
func (p *Probe) show(id string) row {
	if list := p.ok(p.ask("DescribeDisks", "DiskIds", idList(id))).rows("Disks", "Disk"); len(list) == 1 {
		return list[0]
	}
	return nil
}

// changeLimit is how long a change of state may take.
const changeLimit = 5 * time.Minute

// until repeats a look until it is satisfied: often at first, then every
// second. It returns whether it was in time.
func (p *Probe) until(limit time.Duration, satisfied func() bool) bool {
	ends := time.Now().Add(limit)
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if satisfied() {
			return true
		}
		if time.Now().After(ends) {
			return false
		}
		p.sleep(wait)
	}
}

// await waits until a disk is in a state.
func (p *Probe) await(id, status string) row {
	var d row
	if !p.until(changeLimit, func() bool { d = p.show(id); return d.text("Status") == status }) {
		p.stop("the disk is %q after %v, not %s", d.text("Status"), changeLimit, status)
	}
	return d
}

// ready makes a disk and waits until it can be used.
func (p *Probe) ready(pairs ...string) string {
	id := p.create(pairs...)
	p.await(id, "Available")
	return id
}

// attach attaches a disk. ECS may refuse that for a while after the disk was
// made, and while the instance is busy.
func (p *Probe) attach(id string) {
	var answer reply
	p.until(time.Minute, func() bool {
		answer = p.ask("AttachDisk", "DiskId", id, "InstanceId", p.Instance)
		return answer.code() != "IncorrectDiskStatus.Initializing" && answer.code() != "InvalidOperation.Conflict"
	})
	p.had("AttachDisk", answer)
}

// attached makes a disk and attaches it.
func (p *Probe) attached(pairs ...string) string {
	id := p.ready(pairs...)
	p.attach(id)
	p.await(id, "In_use")
	return id
}

// detach starts to detach a disk, which is Detaching then.
func (p *Probe) detach(id string) {
	p.ok(p.ask("DetachDisk", "DiskId", id, "InstanceId", p.Instance))
}

// ownTags are the tags of a disk besides those of the client.
func (p *Probe) ownTags(d row) map[string]string {
	tags := d.tags()
	delete(tags, RunTag)
	delete(tags, InstanceTag)
	return tags
}

// attempts is how often something is tried that depends on the moment.
const attempts = 3

// token returns a client token that nobody has used.
func token() string { return RunTag + "-" + nonce() }

func repeated(n int, text string) []string { return slices.Repeat([]string{text}, n) }

// manyTags are n tags as parameters.
func manyTags(n int) []string {
	var pairs []string
	for i := range n {
		pairs = tagPairs(pairs, "k"+strconv.Itoa(i), "v")
	}
	return pairs
}
