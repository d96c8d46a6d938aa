package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/topodisk/topodisk/internal/escape"
	"github.com/topodisk/topodisk/internal/sleep"
	"github.com/topodisk/topodisk/provisioner/claim"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/request"
)

// The commands on the journal need neither the driver nor the Lease.

// Journal is the journal, as it was when it was read.
type Journal struct {
	config Config
	client kubernetes.Interface
	store  *journal.Store
	all    []JournalRecord
}

// JournalRecord is the request for a claim in the journal.
type JournalRecord struct {
	UID       string           // of the claim
	ConfigMap string           // that holds it
	Request   *request.Request // nil if this version can't read it
	Problem   error            // why it can't
	EndReason string           // of a request to end it that is pending
}

// RefusedError names what is wrong with an operator's request, and what is allowed.
type RefusedError struct{ Field, Value, Allowed string }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s is %q; %s", e.Field, e.Value, e.Allowed)
}

// refuse returns an error about a claim's UID.
func refuse(uid, allowed string, args ...any) *RefusedError {
	return &RefusedError{"CLAIM-UID", uid, fmt.Sprintf(allowed, args...)}
}

// ErrNotEnded says that a request to end a record was written but not granted.
var ErrNotEnded = errors.New("the record is not ended")

// ReadJournal reads the journal. Config needs DriverName and Namespace.
func ReadJournal(ctx context.Context, config Config, client kubernetes.Interface) (*Journal, error) {
	j := &Journal{config: config, client: client, store: newStore(client, nil, config, func() {})}
	records, err := j.store.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("the journal can't be read: %w", err)
	}
	for uid, text := range records {
		record := JournalRecord{UID: uid}
		record.ConfigMap, record.EndReason = j.store.Record(uid)
		record.Request, record.Problem = request.Decode(text)
		j.all = append(j.all, record)
	}
	slices.SortFunc(j.all, func(x, y JournalRecord) int {
		return cmp.Or(cmp.Compare(x.claim(), y.claim()), cmp.Compare(x.UID, y.UID))
	})
	return j, nil
}

// claim returns the claim's namespace and name.
func (r JournalRecord) claim() string {
	if r.Request == nil {
		return "?"
	}
	return r.Request.Claim.Namespace + "/" + r.Request.Claim.Name
}

// of returns the record of a claim, by its UID.
func (j *Journal) of(uid string) (JournalRecord, error) {
	i := slices.IndexFunc(j.all, func(record JournalRecord) bool { return record.UID == uid })
	if i < 0 {
		return JournalRecord{}, refuse(uid, "allowed are the UIDs of the journal's %d records: see `disk-provisioner journal list`", len(j.all))
	}
	return j.all[i], nil
}

// List prints a line for each record. With events it reads the last outcome from the
// claims' events, which disk-provisioner's own account may not list.
func (j *Journal) List(ctx context.Context, out io.Writer, events bool) error {
	out = escape.NewWriter(out)
	fmt.Fprintf(out, "%d records in namespace %s for driver %s\n", len(j.all), j.config.Namespace, j.config.DriverName)
	if len(j.all) == 0 {
		return nil
	}
	last, err := j.lastFailures(ctx, "", events)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CLAIM-UID\tCLAIM\tVOLUME\tCLASS\tNODE\tCLAIM CREATED\tLAST OUTCOME")
	for _, record := range j.all {
		if record.Request == nil {
			fmt.Fprintf(table, "%s\t?\t?\t?\t?\t?\tunreadable: %s\n", record.UID, shown(record.Problem.Error()))
			continue
		}
		q := record.Request
		row := []string{record.UID, record.claim(), q.Create.Name, q.Class.Name, cmp.Or(q.Node, "-"), created(q), lastOutcome(record, last)}
		for i := range row {
			row[i] = shown(row[i])
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}

// shown returns a text as one cell of a table.
func shown(text string) string { return escape.Line(text, longestEvent) }

func created(q *request.Request) string {
	if q.Claim.CreationTimestamp.IsZero() {
		return "?"
	}
	return q.Claim.CreationTimestamp.UTC().Format(time.RFC3339)
}

// lastOutcome describes the last attempt of a record in one line; last is nil if
// events were not read.
func lastOutcome(record JournalRecord, last map[string]v1.Event) string {
	event, found := last[record.UID]
	text := "no event"
	switch {
	case last == nil:
		text = "not read; see --events"
	case found:
		text = event.Message
	}
	if record.EndReason != "" {
		text += "; to be ended: " + record.EndReason
	}
	return text
}

// lastFailures returns the last ProvisioningFailed event by claim UID: of one claim or, if
// uid is empty, of all; nil if events are not to be read.
func (j *Journal) lastFailures(ctx context.Context, uid string, events bool) (map[string]v1.Event, error) {
	if !events {
		return nil, nil //nolint:nilnil // that is no error
	}
	selector := fields.Set{"reason": claim.ReasonFailed}
	if uid != "" {
		selector["involvedObject.uid"] = uid
	}
	list, err := j.client.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: selector.String()})
	if err != nil {
		return nil, fmt.Errorf("the last outcome can't be read: %w", err)
	}
	claims := map[string]string{}
	for _, record := range j.all {
		claims[record.UID] = record.claim()
	}
	last := map[string]v1.Event{}
	for _, e := range list.Items {
		uid := string(e.InvolvedObject.UID)
		if e.Namespace+"/"+e.InvolvedObject.Name != claims[uid] {
			continue // whoever may write events of another namespace says nothing about the claim
		}
		if before, ok := last[uid]; !ok || before.LastTimestamp.Before(&e.LastTimestamp) {
			last[uid] = e
		}
	}
	return last, nil
}

// Show prints a record: its request, which has no secret, and claim and PersistentVolume
// as they are now. About events see List.
func (j *Journal) Show(ctx context.Context, out io.Writer, uid string, events bool) error {
	out = escape.NewWriter(out)
	record, err := j.of(uid)
	if err != nil {
		return err
	}
	last, err := j.lastFailures(ctx, uid, events)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s:\t%s\n", name, shown(fmt.Sprintf(format, args...)))
	}
	row("claim UID", "%s", record.UID)
	row("ConfigMap", "%s/%s", j.config.Namespace, record.ConfigMap)
	if record.Request == nil {
		row("unreadable", "%v", record.Problem)
		return table.Flush()
	}
	q := record.Request
	row("claim", "%s, created %s", record.claim(), created(q))
	row("volume name", "%s", q.Create.Name)
	row("class", "%s", q.Class.Name)
	row("node", "%s", cmp.Or(q.Node, "none selected"))
	if ref := q.Secrets[request.ProvisionerSecret]; ref != nil {
		row("Secret", "%s/%s", ref.Namespace, ref.Name)
	}
	state, _, err := j.claimNow(ctx, q.Claim)
	if err != nil {
		state = fmt.Sprintf("unknown: %v", err)
	}
	row("claim now", "%s", state)
	pv, _, err := j.volumeOf(ctx, record)
	switch {
	case err != nil:
		row("PersistentVolume now", "unknown: %v", err)
	case pv != nil:
		row("PersistentVolume now", "%s, %s", pv.Name, pv.Status.Phase)
	default:
		row("PersistentVolume now", "none")
	}
	row("last outcome", "%s", lastOutcome(record, last))
	if event, ok := last[uid]; ok {
		row("reported", "%d times, last %s", max(event.Count, 1), event.LastTimestamp.UTC().Format(time.RFC3339))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "request:\n%s\n", protojson.MarshalOptions{Multiline: true, Indent: "  "}.Format(q.Create))
	return err
}

// claimNow returns the claim's present state, and whether it still needs a volume.
func (j *Journal) claimNow(ctx context.Context, claim *v1.PersistentVolumeClaim) (state string, wants bool, err error) {
	now, err := j.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "gone", false, nil
	case err != nil:
		return "", false, err
	case now.UID != claim.UID:
		return fmt.Sprintf("gone; another claim has its name, with UID %s", now.UID), false, nil
	case now.DeletionTimestamp != nil:
		return string(now.Status.Phase) + ", is being deleted", false, nil
	case now.Spec.VolumeName != "":
		return fmt.Sprintf("%s, its volumeName is %s", now.Status.Phase, now.Spec.VolumeName), false, nil
	}
	return string(now.Status.Phase), request.NeedsVolume(now), nil
}

// volumeOf returns the PersistentVolume of a record's volume, else one that was made by hand for its claim, or nil.
func (j *Journal) volumeOf(ctx context.Context, record JournalRecord) (pv *v1.PersistentVolume, isSaved bool, err error) {
	volumes, err := j.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, false, err
	}
	for i := range volumes.Items {
		one := &volumes.Items[i]
		if record.Request.IsSavedAs(one) {
			return one, true, nil
		}
		if string(request.ClaimUID(one)) == record.UID {
			pv = one
		}
	}
	return pv, false, nil
}

// End asks the leader to end a record, and waits until it has. It returns a RefusedError
// if that is not allowed, and ErrNotEnded if the leader has not ended it.
func (j *Journal) End(ctx context.Context, uid, reason string, wait time.Duration) error {
	record, err := j.of(uid)
	if err != nil {
		return err
	}
	if record.Request == nil {
		return &RefusedError{"the record's form", record.Problem.Error(), "allowed are records that this version reads: use the version that wrote it"}
	}
	pv, isSaved, err := j.volumeOf(ctx, record)
	if err != nil {
		return fmt.Errorf("whether a PersistentVolume stands for %s: %w", record.Request.Create.Name, err)
	}
	if isSaved {
		return refuse(uid, "PersistentVolume %s stands for its volume, and the leader ends the record by itself; allowed are records without one", pv.Name)
	}
	if _, wants, err := j.claimNow(ctx, record.Request.Claim); err != nil {
		return fmt.Errorf("whether claim %s still wants a volume: %w", record.claim(), err)
	} else if wants {
		return refuse(uid, "claim %s still wants a volume, so the request would begin again; allowed are records whose claim is deleted or bound", record.claim())
	}
	if err := j.store.RequestEnd(ctx, uid, reason); err != nil {
		return err
	}
	return j.awaitEnd(ctx, uid, wait)
}

// endPoll is the interval of checks whether a record is ended.
const endPoll = time.Second

// awaitEnd waits until the leader has ended the record or rejected that. A journal that can't be read is read again.
func (j *Journal) awaitEnd(ctx context.Context, uid string, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	for {
		now, err := ReadJournal(ctx, j.config, j.client)
		if err == nil {
			switch record, gone := now.of(uid); {
			case gone != nil:
				return nil //nolint:nilerr // the record is ended
			case record.EndReason == "":
				return fmt.Errorf("%w: the leader has rejected the request, or its version doesn't support it; see its log and the claim's events", ErrNotEnded)
			}
			err = fmt.Errorf("%w within %s: no leader has handled the request; the next leader will, with the same reason", ErrNotEnded, wait)
		}
		if !time.Now().Before(deadline) {
			return err
		}
		if err := sleep.For(ctx, endPoll); err != nil {
			return err
		}
	}
}
