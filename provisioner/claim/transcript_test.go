package claim

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/internal/outofstock"
	"github.com/topodisk/topodisk/provisioner/csiconn"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/test/golden"
	"github.com/topodisk/topodisk/topology"
)

// TestTranscripts runs the transcripts of testdata. A line that is not indented is a step; the lines below it are what is done to the world,
// in this order: to the driver, the journal, the API server, the events of objects and the queue. -update writes those lines anew.
//
//	claim [old] [not-leading] [secrets] [anywhere] [retain] [source=NAME] [node=NAME] [codes=CODE,...] ...
//
// begins a scenario: a new Syncer, and the claim that the cache shows. The claim is younger than the process's leadership unless it is old, or
// the process does not lead; its class names a Secret; any topology will do; its class retains volumes; it is filled from a source; a node is
// selected, node-1 unless another is named, and none with node=; these codes reschedule, too. The words of ClaimChanged may follow.
//
// These steps are what watches, an operator and time bring:
//
//	Started, Recovered, Woken, SiblingChanged, EndRequested, ClaimGone
//	ClassChanged [replaced]                                                it was deleted and made again
//	ClaimChanged [deleting] [lost] [bound=PV] [node=NAME] [label=VALUE]   without a word it is shown once more
//	VolumeSeen PV [foreign] [deleting], VolumeGone PV
//	Siblings [awaited|refused] [unselected]                                what the other claims of the Pod mean from now on
//
// The others answer what sync waits for:
//
//	Resolved Ready|Invalid|NotYet|NotNow|NodeUnready|NodeGone|NoTopology|NodeNotAllowed|SiblingFirst|SiblingRefused [err="..."] [transient]
//	Resolved Ready [sold-out] [of-claim]                           the driver has refused an equal request, or this claim, a moment ago
//	VolumeChecked [wanting] [err="..."], NodeChecked [gone], NodeRemoved [err="..."]
//	Protected, Written, SecretsRead [err="..."]
//	Written [sold-out]                                             the driver has refused an equal request meanwhile
//	Answer ID [size=BYTES]                                         20 are asked for
//	Answer [code=CODE [out-of-stock]] [err="..."] [not-asked]      neither: a volume without an ID
//	VolumeSaved, VolumeSaved err="..." [refused]
//	VolumeDeleted [err="..."] [owner=PV] [kept="..."]
//
// +DURATION before a step lets time pass first; alone it is nothing but that.
func TestTranscripts(t *testing.T) {
	golden.Transcripts(t, func(t *testing.T, file, text string) string {
		played, err := play(file, text)
		must(t, err)
		return played
	})
}

func TestInvalidTranscriptsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"Started":                           "no claim",
		"claim\nBegun":                      "unknown step",
		"claim\nStarted soon":               "unknown word",
		"claim green":                       "unknown word",
		"claim codes=Sometimes":             "unknown code",
		"claim\nWritten":                    "nothing waits for Written",
		"claim\nStarted\nResolved Perhaps":  "unknown verdict",
		"claim\nStarted\n+soon":             "invalid duration",
		"claim\nStarted\nAnswer d-1":        "Resolve waits, not for Answer",
		"claim\nStarted\nResolved err=\"no": `unknown verdict`,
	} {
		_, err := play("story.txt", text)
		at := fmt.Sprintf("story.txt:%d: ", 1+strings.Count(text, "\n"))
		if err == nil || !strings.HasPrefix(err.Error(), at) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s%s", text, err, at, want)
		}
	}
}

// play runs a transcript, and returns it with what happens now.
func play(file, text string) (string, error) {
	var out strings.Builder
	var s *scenario
	defer func() { s.stop() }()
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue // what the last run led to
		}
		fmt.Fprintln(&out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		a := &arguments{rest: argument.FindAllString(line, -1)}
		var err error
		switch {
		case a.rest[0] == "claim":
			s.stop()
			s, err = newScenario(a)
		case s == nil:
			err = errors.New("no claim has been named")
		default:
			err = s.do(a)
		}
		if err != nil {
			return "", fmt.Errorf("%s:%d: %w", file, number, err)
		}
		for _, done := range s.log {
			fmt.Fprintf(&out, "  %s\n", done)
		}
		s.log = nil
	}
	return out.String(), nil
}

// scenario is one claim, and what its steps carry.
type scenario struct {
	*stage
	log      []string
	claim    *v1.PersistentVolumeClaim
	secrets  bool
	anywhere bool
	retain   bool
	replaced int // how often the class was
}

// stop ends the worker that waits for an answer.
func (s *scenario) stop() {
	for s != nil && s.pending != nil {
		s.answer(crash{})
	}
}

func newScenario(a *arguments) (*scenario, error) {
	a.word()
	now := time.Unix(1_700_000_000, 0)
	s := &scenario{secrets: a.has("secrets"), anywhere: a.has("anywhere"), retain: a.has("retain")}
	created, leading := now, now.Add(-time.Minute)
	if a.has("old") {
		created = created.Add(-time.Hour)
	}
	if a.has("not-leading") {
		leading = time.Time{}
	}
	config := Config{Timeout: time.Minute, RetryStart: time.Second, RetryMax: 5 * time.Minute, NodeGrace: time.Minute, Workers: 1, DriverKnowsUse: true}
	for _, name := range strings.FieldsFunc(a.value("codes"), func(r rune) bool { return r == ',' }) {
		code, err := codeNamed(name)
		if err != nil {
			return nil, err
		}
		config.RescheduleCodes = append(config.RescheduleCodes, code)
	}
	s.stage = newStage(config, now, s.note)
	s.leadingSince = leading
	s.claim = &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "data", UID: testUID, ResourceVersion: "1", CreationTimestamp: metav1.NewTime(created),
		Annotations: map[string]string{request.AnnSelectedNode: "node-1", request.AnnStorageProvisioner: "disk"},
	}, Spec: v1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("essd")}}
	if name := a.value("source"); name != "" {
		s.claim.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: name}
	}
	if err := s.Classes.Add(s.class()); err != nil {
		return nil, err
	}
	s.changeClaim(a)
	return s, errors.Join(a.end(), s.Claims.Add(s.claim))
}

// transcribed are the events that transcripts have words of their own for, by their reasons.
var transcribed = map[string]*regexp.Regexp{
	`Notify err="MESSAGE"`:  regexp.MustCompile(`^Event ProvisioningFailed "failed to provision volume with StorageClass \\"essd\\": (.*)"$`),
	`NotifyCleanup MESSAGE`: regexp.MustCompile(`^Event ProvisioningCleanupFailed ".*; volume (.* could not be deleted again: .*)"$`),
	`Report MESSAGE`:        regexp.MustCompile(`^Event ProvisioningSucceeded "Successfully provisioned volume (.*)"$`),
	`ReportHeld MESSAGE`:    regexp.MustCompile(`^Event ProvisioningHeld "volume (\S+) .*"$`),
	"ReportEnd":             regexp.MustCompile(`^Event ProvisioningEnded "(.*)"$`),
	`ReportKept MESSAGE`:    regexp.MustCompile(`^Event VolumeKept "disk (\S+) .*"$`),
	`RejectEnd "MESSAGE"`:   regexp.MustCompile(`^Event ProvisioningNotEnded ".* is rejected: (.*)"$`),
}

// note notes what is done to the world.
func (s *scenario) note(what string) {
	for word, event := range transcribed {
		if m := event.FindStringSubmatch(what); m != nil {
			what = strings.ReplaceAll(word, "MESSAGE", m[1])
		}
	}
	s.log = append(s.log, what)
}

// changeClaim makes the claim another one if there are words for it.
func (s *scenario) changeClaim(a *arguments) {
	if len(a.rest) == 0 {
		return
	}
	s.claim = s.claim.DeepCopy()
	version, _ := strconv.Atoi(s.claim.ResourceVersion)
	s.claim.ResourceVersion = strconv.Itoa(version + 1)
	if a.has("deleting") {
		s.claim.DeletionTimestamp = ptr.To(metav1.NewTime(s.now))
	}
	if a.has("lost") {
		s.claim.Status.Phase = v1.ClaimLost
	}
	if pv := a.value("bound"); pv != "" {
		s.claim.Spec.VolumeName = pv
	}
	if label := a.value("label"); label != "" {
		s.claim.Labels = map[string]string{"label": label}
	}
	if a.has("node=") {
		delete(s.claim.Annotations, request.AnnSelectedNode)
	} else if node := a.value("node"); node != "" {
		s.claim.Annotations[request.AnnSelectedNode] = node
	}
}

// do lets time pass and takes a step.
func (s *scenario) do(a *arguments) error {
	if pause, ok := strings.CutPrefix(a.rest[0], "+"); ok {
		d, err := time.ParseDuration(pause)
		if err != nil {
			return err
		}
		s.pass(d)
		if a.word(); len(a.rest) == 0 {
			s.continues()
			return nil
		}
	}
	name := a.word()
	question, isAnswer := questions[name]
	if isAnswer {
		switch {
		case s.pending == nil:
			return fmt.Errorf("nothing waits for %s", name)
		case s.pending.name != question:
			return fmt.Errorf("%s waits, not for %s", s.pending.name, name)
		}
		reply, err := s.reply(name, a)
		if err = errors.Join(err, a.end()); err != nil {
			return err
		}
		s.answer(reply)
		s.asked()
		s.continues()
		return nil
	}
	if err := s.happen(name, a); err != nil {
		return err
	}
	if err := a.end(); err != nil {
		return err
	}
	s.continues()
	return nil
}

// continues works off the queue.
func (s *scenario) continues() {
	for s.queued && !s.working {
		s.begin()
		s.asked()
	}
}

// asked notes what is asked for, and answers what transcripts don't show: the Secret of a new request is read together with all else that it
// is made of.
func (s *scenario) asked() {
	for s.pending != nil {
		open := s.claims[testUID].request != nil
		switch q := s.pending; q.name {
		case "Resolve":
		case "ReadSecrets":
			if !open {
				s.answer(nil)
				continue
			}
			s.note(q.name)
		case "CallDriver":
			call := q.about.(call)
			text := "CallDriver " + call.Name
			if call.first {
				text += " first"
			}
			if len(call.Secrets) > 0 {
				text += " with-secrets"
			}
			s.note(text)
		case "WriteJournal":
			s.note("WriteJournal " + s.claims[testUID].request.Create.Name)
		case "SaveVolume":
			s.note("SaveVolume " + q.about.(*v1.PersistentVolume).Name)
		case "CheckVolume", "CheckNode", "DeleteUnowned", "RemoveSelectedNode":
			s.note(fmt.Sprintf("%s %v", q.name, q.about))
		default:
			s.note(q.name)
		}
		return
	}
}

// questions are what steps answer.
var questions = map[string]string{
	"Resolved": "Resolve", "VolumeChecked": "CheckVolume", "NodeChecked": "CheckNode", "Protected": "Protect", "Written": "WriteJournal",
	"SecretsRead": "ReadSecrets", "Answer": "CallDriver", "VolumeSaved": "SaveVolume", "VolumeDeleted": "DeleteUnowned",
	"NodeRemoved": "RemoveSelectedNode",
}

// happen has something happen that nobody waits for.
func (s *scenario) happen(name string, a *arguments) error {
	switch name {
	case "Started":
		s.Start(s.claim)
	case "Recovered":
		r := s.request()
		r.Claim = r.Claim.DeepCopy()
		r.Claim.ResourceVersion = "" // which the journal doesn't have
		s.Recover(r)
	case "Woken":
		s.Wake(testUID)
	case "ClassChanged":
		if a.has("replaced") {
			s.replaced++
			if err := s.Classes.Update(s.class()); err != nil {
				return err
			}
		}
		s.ClassChanged("essd")
	case "Siblings":
		s.judged = judgement{}
		if a.has("refused") {
			s.judged.refused = errors.New("claim logs is refused")
		}
		if a.has("awaited") {
			s.judged.awaited = errors.New("claim logs is awaited")
		}
		s.judged.unselected = a.has("unselected")
	case "SiblingChanged":
		s.siblingChanged()
	case "EndRequested":
		s.end = "no proof"
		s.EndRequested(string(testUID), s.end)
	case "ClaimChanged":
		old := s.claim
		s.changeClaim(a)
		if err := s.Claims.Update(s.claim); err != nil {
			return err
		}
		s.ClaimChanged(old, s.claim)
	case "ClaimGone":
		if err := s.Claims.Delete(s.claim); err != nil {
			return err
		}
		s.ClaimGone(s.claim)
	case "VolumeSeen":
		pv := s.volume(a)
		if err := s.Volumes.Add(pv); err != nil {
			return err
		}
		s.VolumeChanged(nil, pv)
	case "VolumeGone":
		pv := s.volume(a)
		if err := s.Volumes.Delete(pv); err != nil {
			return err
		}
		s.VolumeGone(pv)
	default:
		return fmt.Errorf("unknown step %q", name)
	}
	return nil
}

// reply makes an answer from its words.
func (s *scenario) reply(name string, a *arguments) (any, error) {
	err := a.err()
	switch name {
	case "Resolved":
		return s.resolved(a, err)
	case "Written":
		if a.has("sold-out") {
			s.Refusals.Refused(wantOf(s.request()), 0, s.now)
		}
	case "Answer":
		return s.answered(a, err)
	case "VolumeSaved":
		if a.has("refused") {
			err = &apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Message: err.Error()}}
		}
	case "VolumeDeleted":
		if pv := a.value("owner"); pv != "" {
			err = errOwned(pv)
		}
		if why := a.value("kept"); why != "" {
			err = errKept(why)
		}
	case "VolumeChecked":
		if err == nil {
			return a.has("wanting"), nil
		}
	case "NodeChecked":
		return a.has("gone"), nil
	case "NodeRemoved":
		if err == nil {
			version, _ := strconv.Atoi(s.claim.ResourceVersion)
			if s.claim.Annotations[request.AnnSelectedNode] == s.pending.about { // else it was changed since
				version++
			}
			return strconv.Itoa(version), nil
		}
	}
	return err, nil
}

func (s *scenario) resolved(a *arguments, err error) (any, error) {
	asked := s.request()
	asked.Claim = s.pending.about.(*v1.PersistentVolumeClaim)
	placed := func(reason topology.Reason) (any, error) { return &topology.Error{Reason: reason, Err: err}, nil }
	switch name := a.word(); name {
	case "Ready":
		want := wantOf(asked)
		s.Refusals.Served(want, s.now) // what was refused before
		switch {
		case a.has("sold-out"):
			s.Refusals.Refused(want, 0, s.now)
		case a.has("of-claim"):
			s.Refusals.RefusedClaim(want, s.now)
		}
		return asked, nil
	case "NotNow":
		return errNotOurs, nil
	case "NotYet":
		if a.has("transient") {
			return &csiconn.NotAsked{Err: err}, nil
		}
		return err, nil
	case "Invalid":
		return placed(topology.Invalid)
	case "NodeUnready":
		return placed(topology.NodeUnready)
	case "NodeGone":
		return placed(topology.NodeGone)
	case "NoTopology":
		return placed(topology.NoTopology)
	case "NodeNotAllowed":
		return placed(topology.NodeNotAllowed)
	case "SiblingFirst":
		return &failure{kind: siblingFirst, err: err}, nil
	case "SiblingRefused":
		return &failure{kind: reschedules, err: err}, nil
	default:
		return nil, fmt.Errorf("unknown verdict %q", name)
	}
}

func (s *scenario) answered(a *arguments, failed error) (any, error) {
	if name := a.value("code"); name != "" {
		code, err := codeNamed(name)
		if err != nil {
			return nil, err
		}
		answered := status.New(code, "no")
		if a.has("out-of-stock") {
			answered = outofstock.Mark(answered)
		}
		return answered.Err(), nil
	}
	if a.has("not-asked") {
		return &csiconn.NotAsked{Err: failed}, nil
	}
	if failed != nil {
		return failed, nil //nolint:nilerr // it is the answer
	}
	size := int64(20)
	if text := a.value("size"); text != "" {
		var err error
		if size, err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, err
		}
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{CapacityBytes: size, VolumeId: a.word()}}, nil
}

func (s *scenario) class() *storagev1.StorageClass {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "essd", UID: types.UID(fmt.Sprintf("c%d", 1+s.replaced))}}
	if s.retain {
		class.ReclaimPolicy = ptr.To(v1.PersistentVolumeReclaimRetain)
	}
	return class
}

// request is what the driver is asked for the claim as it is.
func (s *scenario) request() *request.Request {
	r := &request.Request{
		Claim: s.claim, Class: s.class(), Node: s.claim.Annotations[request.AnnSelectedNode],
		Create: &csi.CreateVolumeRequest{Name: "disk-0f1e", CapacityRange: &csi.CapacityRange{RequiredBytes: 20}},
	}
	if !s.anywhere {
		r.Create.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"zone": "a"}}}}
	}
	if s.secrets {
		r.Secrets = request.SecretRefs{request.ProvisionerSecret: &v1.SecretReference{Namespace: "shop", Name: "key"}}
	}
	return r
}

// volume is a PersistentVolume of the claim: that of its request, or a foreign one.
func (s *scenario) volume(a *arguments) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{UID: testUID}}}
	if !a.has("foreign") {
		pv.Annotations = map[string]string{request.AnnVolumeName: "disk-0f1e"}
	}
	if a.has("deleting") {
		pv.DeletionTimestamp = ptr.To(metav1.NewTime(s.now))
	}
	pv.Name = a.word()
	return pv
}

// codeNamed returns the gRPC code with a name.
func codeNamed(name string) (codes.Code, error) {
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		if code.String() == name {
			return code, nil
		}
	}
	return 0, fmt.Errorf("unknown code %q", name)
}

// argument is a word, or a name and a value in quotes.
var argument = regexp.MustCompile(`(?:[^\s"]|"[^"]*")+`)

// arguments are the words of a step that have not been understood yet.
type arguments struct{ rest []string }

// word takes the first word, which names a thing.
func (a *arguments) word() string {
	if len(a.rest) == 0 {
		return ""
	}
	word := a.rest[0]
	a.rest = a.rest[1:]
	return word
}

// has takes a word if it is there.
func (a *arguments) has(word string) bool {
	i := slices.Index(a.rest, word)
	if i < 0 {
		return false
	}
	a.rest = slices.Delete(a.rest, i, i+1)
	return true
}

// value takes key=value and returns the value, or nothing.
func (a *arguments) value(key string) string {
	for i, word := range a.rest {
		if value, ok := strings.CutPrefix(word, key+"="); ok {
			a.rest = slices.Delete(a.rest, i, i+1)
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// err takes an error, which is in quotes as in logs.
func (a *arguments) err() error {
	for _, word := range a.rest {
		if strings.HasPrefix(word, `err="`) {
			return errors.New(a.value("err"))
		}
	}
	return nil
}

// end returns an error if a word was not understood.
func (a *arguments) end() error {
	if len(a.rest) > 0 {
		return fmt.Errorf("unknown word %q", a.rest[0])
	}
	return nil
}
