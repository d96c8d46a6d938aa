package attempt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/internal/outofstock"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/test/golden"
)

// TestTranscripts runs the transcripts of testdata. A line that is not indented is a
// step; the lines below it are what is done to the world, in this order: to the driver,
// the journal, the API server, the events of objects and the queues. -update writes
// those lines anew.
//
//	claim [old] [not-leading] [secrets] [anywhere] [retain] [source=NAME] [node=NAME] [codes=CODE,...] ...
//
// begins a scenario: a new Record, and the claim that its events show. The claim is
// younger than the process's leadership unless it is old, or the process does not
// lead; its class names a Secret; any topology will do; its class retains volumes; it is filled from a source;
// a node is selected, node-1 unless another is named, and none with node=; these codes
// reschedule, too. The words of ClaimChanged may follow.
//
// All other steps are events, as they stand in logs (text.go). What they carry
// follows the claim; what a result says is in these words:
//
//	ClaimChanged [deleting] [lost] [bound=PV] [node=NAME] [label=VALUE]   changes the claim for the events that follow, too
//	Started [before]                                               before the last change of the claim
//	VolumeSeen PV [foreign] [deleting] [finalizer], VolumeGone PV
//	Resolved VERDICT [PV] [err="..."] [of-claim] [waits-for=OBJECT] [transient]
//	                                                               an error with Ready is why the driver need not be asked
//	VolumeChecked [wanting] [why="..."] [err="..."], NodeChecked [gone], ClaimChecked [gone], NodeRemoved [err="..."]
//	Protected, Written, SecretsRead [err="..."] [waits-for=OBJECT] [transient]
//	Written [refusal="..."]                                        why the driver need not be asked
//	Answer ID [size=BYTES] [sibling=STATE [unselected]]            20 are asked for; awaited or refused
//	SiblingsChecked [sibling=STATE]
//	Answer [code=CODE [out-of-stock]] [err="..."] [not-asked]      neither: a volume without an ID
//	VolumeSaved PV [deleting] [finalizer], VolumeSaved err="..." [refused]
//	VolumeDeleted ID [err="..."] [owner=PV] [kept="..."]
//
// +DURATION before an event lets time pass first; alone it is the end of a pause. As
// in a Table, each event of a watch is followed by a Tick.
func TestTranscripts(t *testing.T) {
	for _, file := range transcriptFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := play(file, string(want))
			if err != nil {
				t.Fatal(err)
			}
			if golden.Update() {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the transcript is another one now (-update accepts it):\n%s", diff)
			}
		})
	}
}

func TestInvalidTranscriptsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"Started":                                  "no claim",
		"claim\nBegun":                             "unknown event",
		"claim\nStarted soon":                      "unknown word",
		"claim green":                              "unknown word",
		"claim codes=Sometimes":                    "unknown code",
		"claim\nWritten":                           "no result of New",
		"claim\nStarted\nResolved Perhaps":         "unknown verdict",
		"claim\nStarted\nResolved Ready err=no":    `unknown word "err=no"`,
		"claim\nStarted\n+soon":                    "invalid duration",
		"claim\nStarted\nAnswer d-1":               "no result of Resolving",
		"claim\nStarted\nResolved Ready transient": "", // is understood
	} {
		_, _, err := play("story.txt", text)
		at := fmt.Sprintf("story.txt:%d: ", 1+strings.Count(text, "\n"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), at) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %s%s", text, err, at, want)
		}
	}
}

func transcriptFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	return files
}

// allSteps returns the steps of all transcripts.
func allSteps(t *testing.T) (all []step) {
	t.Helper()
	for _, file := range transcriptFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, steps, err := play(file, string(text))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, steps...)
	}
	return all
}

// step is an event of a transcript and what it has led to.
type step struct {
	from    Phase
	event   Event
	to      Phase
	actions []Action
	open    bool // the journal may have the request by then
	due     bool // it was the Tick that has led to another phase: a pause was over
}

// play runs a transcript, and returns it with what happens now.
func play(file, text string) (string, []step, error) {
	var out strings.Builder
	var all []step
	var s *scenario
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
		if a.rest[0] == "claim" {
			s, err = newScenario(a)
		} else if s == nil {
			err = errors.New("no claim has been named")
		} else {
			var done step
			if done, err = s.do(a); err == nil {
				all = append(all, done)
				s.print(&out, done)
			}
		}
		if err != nil {
			return "", nil, fmt.Errorf("%s:%d: %w", file, number, err)
		}
	}
	return out.String(), all, nil
}

// scenario is one Record, and what its events carry.
type scenario struct {
	record   *Record
	now      time.Time
	claim    *v1.PersistentVolumeClaim
	before   *v1.PersistentVolumeClaim // the last change
	secrets  bool
	anywhere bool
	retain   bool
}

func newScenario(a *arguments) (*scenario, error) {
	a.word()
	s := &scenario{now: time.Unix(1_700_000_000, 0), secrets: a.has("secrets"), anywhere: a.has("anywhere"), retain: a.has("retain")}
	created, leading := s.now, s.now.Add(-time.Minute)
	if a.has("old") {
		created = created.Add(-time.Hour)
	}
	if a.has("not-leading") {
		leading = time.Time{}
	}
	limits := &Limits{RetryStart: time.Second, RetryMax: 5 * time.Minute, NodeGrace: time.Minute, SiblingWait: 3 * time.Minute, LeadingSince: func() time.Time { return leading }}
	for _, name := range strings.FieldsFunc(a.value("codes"), func(r rune) bool { return r == ',' }) {
		code, err := codeNamed(name)
		if err != nil {
			return nil, err
		}
		limits.RescheduleCodes = append(limits.RescheduleCodes, code)
	}
	s.record = NewRecord(limits)
	s.claim = &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "data", UID: "0f1e", ResourceVersion: "1", CreationTimestamp: metav1.NewTime(created),
		Annotations: map[string]string{request.AnnSelectedNode: "node-1"},
	}, Spec: v1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("essd")}}
	if name := a.value("source"); name != "" {
		s.claim.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: name}
	}
	s.changeClaim(a)
	return s, a.end()
}

// changeClaim makes the claim another one if there are words for it.
func (s *scenario) changeClaim(a *arguments) {
	if len(a.rest) == 0 {
		return
	}
	s.before, s.claim = s.claim, s.claim.DeepCopy()
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

// do lets time pass and gives the Record an event.
func (s *scenario) do(a *arguments) (step, error) {
	if pause, ok := strings.CutPrefix(a.rest[0], "+"); ok {
		d, err := time.ParseDuration(pause)
		if err != nil {
			return step{}, err
		}
		s.now = s.now.Add(d)
		if a.word(); len(a.rest) == 0 {
			a.rest = []string{"Tick"}
		}
	}
	event, err := s.event(a.word(), a)
	if err != nil {
		return step{}, err
	}
	if err := a.end(); err != nil {
		return step{}, err
	}
	done := step{from: s.record.Phase(), event: event}
	phases := resultPhases[Name(event)]
	if phases != nil && !slices.Contains(phases, done.from) {
		return step{}, fmt.Errorf("%v is no result of %v", event, done.from)
	}
	done.actions = s.record.Step(event, s.now)
	done.due = s.record.Phase() == done.from
	if phases == nil && Name(event) != "Tick" {
		for _, action := range s.record.Step(Tick{}, s.now) {
			if !slices.ContainsFunc(done.actions, func(a Action) bool { return a.String() == action.String() }) {
				done.actions = append(done.actions, action)
			}
		}
	}
	done.to, done.open = s.record.Phase(), s.record.IsOpen()
	return done, done.check()
}

// check says what a step must never do, whatever the event.
func (s step) check() error {
	for i, action := range s.actions {
		phases := actionPhases[Name(action)]
		if phases == nil {
			continue
		}
		if i != len(s.actions)-1 || !slices.Contains(phases, s.to) {
			return fmt.Errorf("%v leads to %v with %v, which has a result", s.event, s.to, action)
		}
		if s.from.inAction() && resultPhases[Name(s.event)] == nil {
			return fmt.Errorf("%v leads to %v before %v is over", s.event, action, s.from)
		}
	}
	return nil
}

// resultPhases are the phases that an event is the result of, by its name; none for those of the watches.
var resultPhases = map[string][]Phase{
	"Resolved": {Resolving}, "VolumeChecked": {CheckingVolume}, "NodeChecked": {CheckingNode}, "Protected": {Protecting}, "Written": {Journaling},
	"SecretsRead": {ReadingSecrets}, "Answer": {Calling}, "VolumeSaved": {Saving}, "ClaimChecked": {CheckingClaim},
	"VolumeDeleted": {CleaningUp, Discarding, Deleting}, "NodeRemoved": {Unselecting}, "SiblingsChecked": {CheckingSiblings},
}

// actionPhases are the phases of the actions that have a result, by their names.
var actionPhases = map[string][]Phase{
	"Resolve": {Resolving}, "CheckVolume": {CheckingVolume}, "CheckNode": {CheckingNode}, "Protect": {Protecting}, "WriteJournal": {Journaling},
	"ReadSecrets": {ReadingSecrets}, "CallDriver": {Calling}, "SaveVolume": {Saving}, "CheckClaim": {CheckingClaim},
	"DeleteUnowned": {CleaningUp, Discarding, Deleting}, "RemoveSelectedNode": {Unselecting}, "CheckSiblings": {CheckingSiblings},
}

// print writes what a step has done to the world.
func (s *scenario) print(out *strings.Builder, done step) {
	for _, action := range done.actions {
		if !inside[Name(action)] {
			fmt.Fprintf(out, "  %v\n", action)
		}
	}
}

// inside are the actions, by their names, that nobody sees but this process: they read its caches, count for its metrics, or tell its
// other parts.
var inside = map[string]bool{
	"Resolve": true, "CheckSiblings": true, "Subscribe": true, "Unsubscribe": true, "Prefetch": true, "CancelPrefetch": true, "NoteServed": true,
	"NoteRefusal": true, "CountFailure": true, "CountAnswer": true, "CountSkipped": true, "CountReschedule": true, "CountLeakPrevented": true,
}

// event makes the event of a name from its words.
func (s *scenario) event(name string, a *arguments) (Event, error) {
	switch name {
	case "Started":
		if a.has("before") {
			return Started{s.before}, nil
		}
		return Started{s.claim}, nil
	case "ClaimChanged":
		s.changeClaim(a)
		return ClaimChanged{s.claim}, nil
	case "ClaimGone":
		return ClaimGone{}, nil
	case "VolumeSeen":
		return VolumeSeen{s.volume(a)}, nil
	case "VolumeGone":
		return VolumeGone{a.word()}, nil
	case "Woken":
		return Woken{}, nil
	case "SiblingChanged":
		return SiblingChanged{}, nil
	case "SiblingsChecked":
		return SiblingsChecked{a.siblings()}, nil
	case "ClassChanged":
		return ClassChanged{}, nil
	case "EndRequested":
		return EndRequested{"no proof"}, nil
	case "Tick":
		return Tick{}, nil
	case "Recovered":
		r := s.request()
		r.Claim = r.Claim.DeepCopy()
		r.Claim.ResourceVersion = "" // which the journal doesn't have
		return Recovered{r}, nil
	case "Resolved":
		return s.resolved(a)
	case "VolumeChecked":
		return VolumeChecked{Err: a.err(), Wanting: a.has("wanting")}, nil
	case "NodeChecked":
		return NodeChecked{Gone: a.has("gone")}, nil
	case "Protected":
		return Protected{Err: a.err(), WaitsFor: a.object()}, nil
	case "Written":
		e := Written{Err: a.err(), WaitsFor: a.object(), Transient: a.has("transient")}
		if refusal := a.value("refusal"); refusal != "" {
			e.Refusal = errors.New(refusal)
		}
		return e, nil
	case "SecretsRead":
		return SecretsRead{Err: a.err(), WaitsFor: a.object(), Secrets: s.secretValues()}, nil
	case "Answer":
		return s.answer(a)
	case "VolumeSaved":
		return s.saved(a), nil
	case "ClaimChecked":
		return ClaimChecked{Gone: a.has("gone")}, nil
	case "VolumeDeleted":
		e := VolumeDeleted{Err: a.err(), Owner: a.value("owner")}
		if why := a.value("kept"); why != "" {
			e.Kept = errors.New(why)
		}
		e.ID = a.word()
		return e, nil
	case "NodeRemoved":
		return NodeRemoved{Err: a.err()}, nil
	}
	return nil, fmt.Errorf("unknown event %q", name)
}

func (s *scenario) resolved(a *arguments) (Event, error) {
	name := a.word()
	verdict := Verdict(slices.Index(verdictNames[:], name))
	if verdict < 0 {
		return nil, fmt.Errorf("unknown verdict %q", name)
	}
	e := Resolved{Verdict: verdict, Err: a.err(), WaitsFor: a.object(), OfClaim: a.has("of-claim"), Transient: a.has("transient")}
	switch verdict {
	case Ready:
		e.Request, e.Secrets, e.Refusal, e.Err = s.request(), s.secretValues(), e.Err, nil
	case HasVolume:
		e.Volume = a.word()
	}
	return e, nil
}

func (s *scenario) answer(a *arguments) (Event, error) {
	e := Answer{Err: a.err(), NotAsked: a.has("not-asked"), Sent: s.now, Siblings: a.siblings()}
	if name := a.value("code"); name != "" {
		code, err := codeNamed(name)
		if err != nil {
			return nil, err
		}
		answered := status.New(code, "no")
		if a.has("out-of-stock") {
			answered = outofstock.Mark(answered)
		}
		e.Err = answered.Err()
	}
	if e.Err == nil {
		size := int64(20)
		if text := a.value("size"); text != "" {
			var err error
			if size, err = strconv.ParseInt(text, 10, 64); err != nil {
				return nil, err
			}
		}
		e.Response = &csi.CreateVolumeResponse{Volume: &csi.Volume{CapacityBytes: size, VolumeId: a.word()}}
	}
	return e, nil
}

func (s *scenario) saved(a *arguments) Event {
	if err := a.err(); err != nil {
		return VolumeSaved{Err: err, Refused: a.has("refused")}
	}
	return VolumeSaved{Volume: s.volume(a)}
}

// request is what the driver is asked for the claim as it is.
func (s *scenario) request() *request.Request {
	r := &request.Request{
		Claim: s.claim, Class: &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "essd", UID: types.UID("c1")}}, Node: selectedNode(s.claim),
		Create: &csi.CreateVolumeRequest{Name: "disk-0f1e", CapacityRange: &csi.CapacityRange{RequiredBytes: 20}},
	}
	if s.retain {
		r.Class.ReclaimPolicy = ptr.To(v1.PersistentVolumeReclaimRetain)
	}
	if !s.anywhere {
		r.Create.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"zone": "a"}}}}
	}
	if s.secrets {
		r.Secrets.Provisioner = &v1.SecretReference{Namespace: "shop", Name: "key"}
	}
	return r
}

func (s *scenario) secretValues() map[string]string {
	if s.secrets {
		return map[string]string{"token": "t"}
	}
	return nil
}

// volume is a PersistentVolume of the claim: that of its request, or a foreign one.
func (s *scenario) volume(a *arguments) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{}
	if !a.has("foreign") {
		pv.Annotations = map[string]string{request.AnnVolumeName: "disk-0f1e"}
	}
	if a.has("deleting") {
		pv.DeletionTimestamp = ptr.To(metav1.NewTime(s.now))
	}
	if a.has("finalizer") {
		pv.Finalizers = []string{request.Finalizer}
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

// siblings takes what the siblings mean.
func (a *arguments) siblings() Siblings {
	state := SiblingState(max(0, slices.Index(siblingStates[:], a.value("sibling"))))
	if state == NoneAwaited {
		return Siblings{}
	}
	return Siblings{State: state, Unselected: a.has("unselected"), Err: fmt.Errorf("claim logs is %s", siblingStates[state])}
}

// object takes the object that is waited for.
func (a *arguments) object() error {
	if name := a.value("waits-for"); name != "" {
		return errors.New(name)
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
