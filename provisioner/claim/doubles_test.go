package claim

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/topodisk/topodisk/internal/unused"
	"github.com/topodisk/topodisk/provisioner/deletion"
	"github.com/topodisk/topodisk/provisioner/lib6"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/provisioner/watch"
)

const testUID = types.UID("0f1e")

// stage has a Syncer look at one claim while all others that it works with are doubles: sync stops at each question to one of them until the
// test answers it.
type stage struct {
	*Syncer
	now    time.Time
	done   func(what string) // is called with what is done to the world
	judged judgement
	end    string // why an operator wants the record ended

	questions chan *question
	ended     chan struct{}
	pending   *question // that was asked and not answered
	working   bool
	queued    bool
	wakeAt    time.Time // when the delaying queue brings the claim; zero: not
}

// question is one that sync waits for.
type question struct {
	name  string // of what is asked for
	about any
	reply chan any
}

// crash as an answer ends the goroutine that has asked.
type crash struct{}

func newStage(config Config, now time.Time, done func(string)) *stage {
	g := &stage{now: now, done: done, questions: make(chan *question), ended: make(chan struct{})}
	config.Options = request.Options{DriverName: "disk", PVNameSource: request.VolumeID}
	clock := func() time.Time { return g.now }
	g.Syncer = New(config, Dependencies{
		Driver: stageDriver{g}, Deleter: stageDeleter{g}, Journal: stageJournal{g}, Protection: stageProtection{g}, Objects: watch.NewObjects(nil),
		Refusals: stock.New(clock), Events: stageEvents{g}, Registry: prometheus.NewRegistry(), Upstream: lib6.NewMetrics(), Now: clock,
		Claims:  cache.NewIndexer(cache.MetaNamespaceKeyFunc, watch.ClaimIndexers()),
		Volumes: cache.NewIndexer(cache.MetaNamespaceKeyFunc, watch.VolumeIndexers()),
		Classes: cache.NewStore(cache.MetaNamespaceKeyFunc), Nodes: cache.NewStore(cache.MetaNamespaceKeyFunc),
	})
	g.queue.ShutDown()
	g.queue, g.api, g.siblings, g.newRequest = stageQueue{g: g}, stageAPI{g}, stageSiblings{g}, g.resolve
	g.reportConflict = func(context.Context, *request.Request) { done("ReportConflict") }
	return g
}

// begin has a worker take the claim if it is queued.
func (g *stage) begin() {
	if g.working || !g.queued {
		return
	}
	g.working, g.queued = true, false
	go func() {
		defer func() { g.ended <- struct{}{} }()
		g.work(context.Background(), testUID)
	}()
	g.await()
}

// await waits until the worker asks something or has ended.
func (g *stage) await() {
	select {
	case g.pending = <-g.questions:
	case <-g.ended:
		g.working = false
	}
}

// answer answers the question, and lets the worker go on until the next one.
func (g *stage) answer(reply any) {
	q := g.pending
	g.pending = nil
	q.reply <- reply
	g.await()
}

// ask asks a question and waits for the answer.
func (g *stage) ask(name string, about any) any {
	q := &question{name, about, make(chan any)}
	g.questions <- q
	reply := <-q.reply
	if reply == (crash{}) {
		runtime.Goexit()
	}
	return reply
}

// pass lets time pass.
func (g *stage) pass(d time.Duration) {
	g.now = g.now.Add(d)
	if !g.wakeAt.IsZero() && !g.now.Before(g.wakeAt) {
		g.wakeAt, g.queued = time.Time{}, true
	}
}

func asError(reply any) error {
	err, _ := reply.(error)
	return err
}

type stageQueue struct {
	workqueue.TypedDelayingInterface[types.UID]
	g *stage
}

func (q stageQueue) Add(types.UID)      { q.g.queued = true }
func (q stageQueue) ShuttingDown() bool { return false }
func (q stageQueue) AddAfter(_ types.UID, d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("a pause of %v", d))
	}
	q.g.done("RequeueAfter " + d.Round(time.Millisecond).String())
	if at := q.g.now.Add(d); q.g.wakeAt.IsZero() || at.Before(q.g.wakeAt) { // as a delaying queue does
		q.g.wakeAt = at
	}
}

func (g *stage) resolve(_ context.Context, claim *v1.PersistentVolumeClaim) (*request.Request, error) {
	switch reply := g.ask("Resolve", claim).(type) {
	case *request.Request:
		return reply, nil
	case error:
		return nil, reply
	}
	panic("no request")
}

type stageSiblings struct{ g *stage }

func (stageSiblings) mayAsk(*v1.PersistentVolumeClaim) error          { return nil }
func (s stageSiblings) judge(*request.Request, *csi.Volume) judgement { return s.g.judged }
func (s stageSiblings) wakeSiblings(*v1.PersistentVolumeClaim)        { s.g.done("WakeSiblings") }

// siblingChanged is what another claim of the Pod that gets further does.
func (g *stage) siblingChanged() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.claims[testUID]; e != nil && e.failure.awaitsSibling() {
		g.wake(testUID, e)
	}
}

type stageAPI struct{ g *stage }

func (a stageAPI) isNodeGone(_ context.Context, name string) bool {
	return a.g.ask("CheckNode", name).(bool)
}

func (a stageAPI) lacksVolume(_ context.Context, _ *v1.PersistentVolumeClaim, pv string) (bool, error) {
	reply := a.g.ask("CheckVolume", pv)
	lacks, _ := reply.(bool)
	return lacks, asError(reply)
}

func (a stageAPI) readSecret(context.Context, *v1.SecretReference) (map[string]string, error) {
	if err := asError(a.g.ask("ReadSecrets", nil)); err != nil {
		return nil, err
	}
	return map[string]string{"token": "t"}, nil
}

func (a stageAPI) save(_ context.Context, pv *v1.PersistentVolume) error {
	return asError(a.g.ask("SaveVolume", pv))
}

func (a stageAPI) removeSelectedNode(_ context.Context, _ *v1.PersistentVolumeClaim, node string) (string, error) {
	reply := a.g.ask("RemoveSelectedNode", node)
	version, _ := reply.(string)
	return version, asError(reply)
}

type stageDriver struct{ g *stage }

// call is a CreateVolume.
type call struct {
	*csi.CreateVolumeRequest
	first bool
}

func (d stageDriver) CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest, _ ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
	sent, _ := metadata.FromOutgoingContext(ctx)
	switch reply := d.g.ask("CallDriver", call{in, len(sent.Get(firstCallKey)) > 0}).(type) {
	case *csi.CreateVolumeResponse:
		return reply, nil
	case error:
		return nil, reply
	}
	panic("no answer")
}

type stageDeleter struct{ g *stage }

func (d stageDeleter) DeleteUnowned(_ context.Context, id string, _ map[string]string, _ func()) error {
	return asError(d.g.ask("DeleteUnowned", id))
}

// errOwned and errKept are what a Deleter says of a volume that it leaves alone.
func errOwned(pv string) error { return &deletion.OwnedError{PersistentVolume: pv} }

func errKept(why string) error { return unused.Refuse(status.New(codes.FailedPrecondition, why)).Err() }

type stageProtection struct{ g *stage }

func (p stageProtection) Protect(context.Context, *v1.PersistentVolumeClaim) error {
	return asError(p.g.ask("Protect", nil))
}

func (p stageProtection) Unprotect(types.UID) { p.g.done("Unprotect") }

type stageJournal struct{ g *stage }

func (j stageJournal) Put(_ context.Context, _ string, record []byte) error {
	return asError(j.g.ask("WriteJournal", record))
}

func (j stageJournal) Delete(string) { j.g.end = ""; j.g.done("EraseJournal") }
func (j stageJournal) Flush(context.Context, string) error {
	j.g.done("FlushJournal")
	return nil
}
func (j stageJournal) EndRequest(string) string { return j.g.end }
func (j stageJournal) RejectEnd(string)         { j.g.end = ""; j.g.done("RejectEnd") }
func (j stageJournal) Size() int                { return 0 }

// stageEvents tells events by their reasons.
type stageEvents struct{ g *stage }

func (e stageEvents) Event(_ kruntime.Object, _, reason, message string) {
	e.g.done(fmt.Sprintf("Event %s %q", reason, message))
}

func (e stageEvents) Eventf(object kruntime.Object, kind, reason, format string, args ...any) {
	e.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

func (e stageEvents) AnnotatedEventf(object kruntime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	e.Eventf(object, kind, reason, format, args...)
}
