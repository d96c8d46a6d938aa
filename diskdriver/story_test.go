package diskdriver

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/topodisk/topodisk/diskdriver/attachment"
	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/internal/affinity"
	"github.com/topodisk/topodisk/internal/unused"
	"github.com/topodisk/topodisk/test/golden"
)

const cluster = "c1"

// TestStories runs the transcripts of testdata: each line that begins with "> "
// is a command, and the lines below it are what it leads to: the calls that
// reach ECS, then the driver's answer. The driver, the ECS client and the SDK
// are real; ECS is simulated on the wire, and the clock is the bubble's.
//
//	given key=value...      settings of ECS, before anything else
//	create NAME [upstream] key=value...  CreateVolume, as disk-provisioner or csi-provisioner asks; keys below, any other is a class parameter
//	delete ID, validate ID key=value..., get ID, list [MAX [TOKEN]]
//	publish ID NODE [ro] key=value..., unpublish ID [NODE]
//	expand ID size=30Gi limit=40Gi [block]
//	capacity [zones=a] key=value...
//	publish and unpublish with & at the end: the next command comes while the call waits
//	await                   what has become of these calls, in their order, and when they failed; until then reads are left out
//	instance ID running|stopped|gone
//	by-hand attach|detach ID NODE, by-hand untag ID KEY   what somebody does in the console, to its end
//	unstick ID              what a fault holds up comes to its end
//	known ID key=value...   what the driver is told of an instance: zone, type, takes, refuses
//	stock ZONE CATEGORY N   sold out at 0
//	fault DO key=value...   ACTION, count, code, status, message
//	ecs up|down|wrong-key|no-faults
//	advance DURATION, restart, disks
//	replica NAME            who has the calls from now on: another process, which began with the first
//
// The words as=other and secret.KEY=VALUE give a request secrets.
func TestStories(t *testing.T) {
	golden.Transcripts(t, func(t *testing.T, _, text string) (told string) {
		synctest.Test(t, func(t *testing.T) { told = string(tell(t, []byte(text), otherwise{})) })
		return told
	})
}

// tell runs a story and returns it with what happens now, if need be in an ECS
// that is otherwise.
func tell(t *testing.T, text []byte, o otherwise) []byte {
	s := &story{t: t, otherwise: o, config: ecssim.Config{
		Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-a", "cn-hangzhou-b", "cn-hangzhou-c"},
		AccessKeys:    map[string]string{"story": "secret"},
		InstanceTypes: []ecssim.InstanceType{{ID: "ecs.old.large", DiskQuantity: 5, NVMe: "unsupported", NotIOOptimized: true, Categories: []string{"cloud", "cloud_efficiency"}}},
		Instances: []ecssim.Instance{
			{ID: "i-a1", Zone: "cn-hangzhou-a", Type: "ecs.g6.large"}, {ID: "i-a2", Zone: "cn-hangzhou-a", Type: "ecs.g6.large"},
			{ID: "i-b1", Zone: "cn-hangzhou-b", Type: "ecs.g6.large"}, {ID: "i-old", Zone: "cn-hangzhou-a", Type: "ecs.old.large"},
			{ID: "i-nvme1", Zone: "cn-hangzhou-a", Type: "ecs.g7se.large"}, {ID: "i-nvme2", Zone: "cn-hangzhou-a", Type: "ecs.g7se.large"},
		},
		Latency: ecssim.Latency{Attach: 2 * time.Second, Detach: 3 * time.Second, API: map[string]time.Duration{"CreateDisk": 500 * time.Millisecond, "DescribeDisks": 100 * time.Millisecond}},
	}}
	var out bytes.Buffer
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "  ") {
			continue // the outcome of the last telling
		}
		fmt.Fprintln(&out, line)
		if command, ok := strings.CutPrefix(line, "> "); ok {
			for _, outcome := range folded(strings.Split(s.do(strings.Fields(command)), "\n")) {
				fmt.Fprintf(&out, "  %s\n", plain(outcome))
			}
		}
	}
	return out.Bytes()
}

// folded makes one line of reads that are repeated until something shows: how
// often is not the stories' concern.
func folded(lines []string) []string {
	var all []string
	const again = ", and again"
	for _, line := range lines {
		last := len(all) - 1
		switch {
		case line == "":
		case last >= 0 && strings.HasPrefix(line, "ECS") && strings.Contains(line, ": Describe") && strings.TrimSuffix(all[last], again) == line:
			all[last] = line + again
		default:
			all = append(all, line)
		}
	}
	return all
}

// requestIDs and the nonces of tags are hidden.
var (
	requestIDs = regexp.MustCompile(`[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}`)
	nonces     = regexp.MustCompile(`in-use-[A-Z2-7]{26}`)
)

func plain(line string) string {
	return nonces.ReplaceAllString(requestIDs.ReplaceAllString(plainIDs(line), "R"), "in-use-N")
}

// story is a simulated ECS and the driver's process of the moment.
type story struct {
	t         *testing.T
	config    ecssim.Config
	otherwise otherwise
	sim       *ecssim.Server
	other     *ecssim.Server // another account
	driver    *Driver
	replicas  map[string]*Driver
	doubted   sync.Map // names that there may be a disk of
	force     bool
	adopted   []string
	sources   []string
	// anySnapshot lets a class name any snapshot.
	anySnapshot bool
	waiting     attachment.Limit
	begun       []<-chan string // answers to calls that were not awaited
	extra       disk.Tags
	down        bool
	key         string
	told        map[*ecssim.Server]int // calls in the ledger that were told
	next        string                 // token of the last list of snapshots
	secret      map[string]string      // of the command's request
	known       map[disk.InstanceID]disk.Instance
	regions     map[disk.InstanceID]string // of instances, as their Nodes say
	caller      any                        // of the process of the moment
}

func (s *story) do(words []string) string {
	verb, rest := words[0], s.secretsOf(words[1:])
	if verb == "given" {
		s.given(rest)
		return ""
	}
	if s.driver == nil {
		s.start()
	}
	var answer string
	alone := len(s.begun) == 0
	switch verb {
	case "create":
		answer = s.call("CreateVolume", s.createRequest(rest[0], rest[1:]), rest...)
	case "delete":
		answer = s.call("DeleteVolume", &csi.DeleteVolumeRequest{VolumeId: s.id(rest[0])}, rest...)
	case "publish":
		answer = s.call("ControllerPublishVolume", s.publishRequest(rest), rest...)
	case "unpublish":
		answer = s.call("ControllerUnpublishVolume", s.unpublishRequest(rest), rest...)
	case "expand":
		answer = s.call("ControllerExpandVolume", s.expandRequest(rest), rest...)
	case "instance":
		s.must(s.instance(rest[0], rest[1]))
	case "by-hand":
		s.must(s.byHand(rest[0], disk.ID(s.id(rest[1])), rest[2]))
	case "known":
		s.learn(disk.InstanceID(rest[0]), rest[1:])
	case "get":
		answer = s.call("ControllerGetVolume", &csi.ControllerGetVolumeRequest{VolumeId: s.id(rest[0])})
	case "capacity":
		answer = s.call("GetCapacity", s.capacityRequest(rest))
	case "await":
		answer = s.await()
	case "unstick":
		s.sim.Unstick(s.id(rest[0]))
	case "list":
		answer = s.call("ListVolumes", s.listRequest(rest))
	case "validate":
		answer = s.call("ValidateVolumeCapabilities", s.validateRequest(rest[0], rest[1:]))
	case "stock":
		n, err := strconv.Atoi(rest[2])
		s.must(err)
		zone := "cn-hangzhou-" + rest[0]
		if rest[0] == "region" {
			zone = ""
		}
		s.must(s.sim.SetStock(zone, rest[1], n))
	case "fault":
		s.must(s.account().AddFault(s.fault(rest)))
	case "ecs":
		s.turn(rest[0])
	case "advance":
		d, err := time.ParseDuration(rest[0])
		s.must(err)
		time.Sleep(d)
	case "restart":
		s.newProcess()
	case "replica":
		s.driver, s.caller = s.replicas[rest[0]], new(byte)
	case "extra-tags":
		s.extra = disk.Tags{}
		for word := range strings.SplitSeq(rest[0], ",") {
			key, value, _ := strings.Cut(word, "=")
			s.extra[key] = value
		}
		s.newProcess()
	case "disks":
		answer = s.disks()
	default:
		var known bool
		if answer, known = s.doSnapshots(verb, rest); !known {
			answer, known = s.doHealth(verb, rest)
		}
		if !known {
			s.t.Fatalf("%q is no command", verb)
		}
	}
	if alone && len(s.begun) == 0 {
		return s.calls() + answer
	}
	return withoutReads(s.calls()) + answer
}

// withoutReads leaves out which disks each read is for: calls that wait at a time share reads as it happens.
func withoutReads(calls string) string {
	var kept strings.Builder
	for line := range strings.Lines(calls) {
		if !strings.Contains(line, ": Describe") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func (s *story) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// given changes the settings of ECS.
func (s *story) given(words []string) {
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		if name == "max-waiting" {
			n, err := strconv.Atoi(value)
			s.must(err)
			s.waiting = attachment.Limit(n)
			continue
		}
		var d time.Duration
		if value != "" {
			var err error
			d, err = time.ParseDuration(value)
			s.must(err)
		}
		switch name {
		case "visible":
			s.config.Latency.Visible = d
		case "tags-visible":
			s.config.Latency.TagsVisible = d
		case "initializing":
			s.config.Latency.Initializing = d
		case "attach":
			s.config.Latency.Attach = d
		case "attach-shown":
			s.config.Latency.AttachShown = d
		case "detach":
			s.config.Latency.Detach = d
		case "hidden-detach":
			s.config.Doubts.HideDetaching = true
		case "refuse-creating":
			s.config.Doubts.RefuseCreating = ecssim.CreatingActions
		case "force-regional":
			s.force = true
		case "allow-snapshot-parameter":
			s.anySnapshot = true
		case "bind-failed-tokens":
			s.config.BindFailedTokens = true
		default:
			if !s.givenSnapshots(name, d) {
				s.t.Fatalf("%q is no setting", name)
			}
		}
	}
}

func (s *story) start() {
	var err error
	s.otherwise.apply(&s.config)
	s.sim, err = ecssim.New(s.config)
	s.must(err)
	s.other, err = ecssim.New(otherAccount(s.config))
	s.must(err)
	underPolicy(s.t, s.sim, cluster)
	underPolicy(s.t, s.other, cluster)
	s.told = make(map[*ecssim.Server]int)
	s.key = "secret"
	s.replicas = make(map[string]*Driver)
	for _, name := range []string{"B", "A"} {
		s.newProcess()
		s.replicas[name] = s.driver
	}
}

// newProcess starts the driver as after a crash: with nothing remembered.
func (s *story) newProcess() {
	client, err := ecs.NewClient(ecs.Config{Region: s.config.Region, ClusterID: cluster, Credentials: s, Transport: s})
	s.must(err)
	s.driver, err = New(Config{Version: "story", Region: s.config.Region, ClusterID: cluster, ForceRegional: s.force, Adopted: s.adopted, RestoreFrom: s.sources, AllowSnapshotParameter: s.anySnapshot, MostWaiting: s.waiting, ExtraTags: s.extra, Accounts: opener{client}, Nodes: s}, client)
	s.must(err)
}

// Get returns the access key, right or wrong.
func (s *story) Get(context.Context) (credentials.Keys, error) {
	return credentials.Keys{AccessKeyID: "story", AccessKeySecret: s.key}, nil
}

// RoundTrip is the way to ECS.
func (s *story) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.down {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	return ecssim.Accounts{s.sim, s.other}.RoundTrip(req)
}

func (s *story) turn(how string) {
	switch how {
	case "down":
		s.down = true
	case "up":
		s.down, s.key = false, "secret"
	case "wrong-key":
		s.key = "another"
	case "no-faults":
		s.sim.ClearFaults()
	default:
		s.t.Fatalf("ecs can't be turned %q", how)
	}
}

func (s *story) fault(words []string) ecssim.Fault {
	f := ecssim.Fault{Do: words[0], Count: 1}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		var err error
		switch name {
		case "action":
			f.Action = value
		case "category":
			f.Params = map[string]string{"DiskCategory": value}
		case "count":
			f.Count, err = strconv.Atoi(value)
		case "skip":
			f.Skip, err = strconv.Atoi(value)
		case "percent":
			f.Percent, err = strconv.Atoi(value)
		case "for":
			f.For, err = time.ParseDuration(value)
		case "hide":
			for short := range strings.SplitSeq(value, ",") {
				f.Hide = append(f.Hide, fullID(short))
			}
		case "lag":
			f.Lag, err = time.ParseDuration(value)
		case "status":
			f.Status, err = strconv.Atoi(value)
		case "code":
			f.Code = value
		case "delay-before":
			f.DelayBefore, err = time.ParseDuration(value)
		case "delay-after":
			f.DelayAfter, err = time.ParseDuration(value)
		default:
			s.t.Fatalf("%q is no part of a fault", name)
		}
		s.must(err)
	}
	return f
}

// begin sends a request whose answer is not awaited yet.
func (s *story) begin(call func() string) {
	answer, began := make(chan string, 1), time.Now()
	go func() {
		said := call()
		if !strings.HasPrefix(said, "OK") { // how soon a read shows it is not the stories' concern
			said = fmt.Sprintf("after %s: %s", time.Since(began).Round(time.Second), said)
		}
		answer <- said
	}()
	synctest.Wait() // until it waits for ECS
	s.begun = append(s.begun, answer)
}

// await returns the answers to the calls that were begun.
func (s *story) await() string {
	var answers []string
	for _, answer := range s.begun {
		answers = append(answers, <-answer)
	}
	s.begun = nil
	return strings.Join(answers, "\n")
}

// call sends a request, and renders the answer.
func (s *story) call(method string, req proto.Message, words ...string) string {
	timeout := 150 * time.Second // csi-provisioner's flag --timeout in most installations
	for _, word := range words {
		if value, ok := strings.CutPrefix(word, "timeout="); ok {
			var err error
			timeout, err = time.ParseDuration(value)
			s.must(err)
		}
	}
	if last := len(words) - 1; last >= 0 && words[last] == "&" {
		s.begin(func() string { return s.call(method, req, words[:last]...) })
		return ""
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), timeout)
	defer cancel()
	s.addSecrets(req)
	create, creates := req.(*csi.CreateVolumeRequest)
	if _, doubted := s.doubted.Load(create.GetName()); creates && !doubted && !slices.Contains(words, "upstream") {
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(creation.FirstCallKey, "true"))
	}
	if slices.Contains(words, "only-unused") {
		sent, _ := metadata.FromOutgoingContext(unused.Only(ctx))
		ctx = metadata.NewIncomingContext(ctx, sent)
	}
	var where affinity.Affinity
	for _, word := range words {
		if zones, ok := strings.CutPrefix(word, "pv-zones="); ok {
			where.Zones = strings.Split(zones, ",")
		}
		if regions, ok := strings.CutPrefix(word, "pv-regions="); ok {
			where.Regions = strings.Split(regions, ",")
		}
	}
	if sent, told := metadata.FromOutgoingContext(affinity.With(ctx, where)); told && (where.Zones != nil || where.Regions != nil) {
		ctx = metadata.NewIncomingContext(ctx, sent)
	}
	response, err := invoke(attachment.WithCaller(ctx, s.caller), s.driver, method, req)
	if creates && (err == nil || sidecarsDo[status.Code(err)].provisioner == underWay) {
		s.doubted.Store(create.GetName(), true)
	}
	if r, ok := response.(*csi.ListSnapshotsResponse); ok {
		s.next = r.GetNextToken()
	}
	return render(response, err)
}

// invoke sends a request through all interceptors, as the gRPC server does.
func invoke(ctx context.Context, d *Driver, method string, req proto.Message) (any, error) {
	for _, m := range slices.Concat(csi.Controller_ServiceDesc.Methods, csi.GroupController_ServiceDesc.Methods) {
		if m.MethodName == method {
			return m.Handler(d.controller, ctx, func(in any) error {
				proto.Merge(in.(proto.Message), req)
				return nil
			}, through(d))
		}
	}
	panic(method + " is no method")
}

func render(response any, err error) string {
	if err != nil {
		return fmt.Sprintf("%s: %s", status.Code(err), status.Convert(err).Message())
	}
	switch r := response.(type) {
	case *csi.CreateVolumeResponse:
		v := r.GetVolume()
		text := fmt.Sprintf("OK %s %g GiB %v in %v", v.GetVolumeId(), float64(v.GetCapacityBytes())/(1<<30), v.GetVolumeContext(), topologies(v.GetAccessibleTopology()))
		if from := v.GetContentSource(); from != nil {
			text += " from " + from.GetSnapshot().GetSnapshotId() + from.GetVolume().GetVolumeId()
		}
		return text
	case *csi.ValidateVolumeCapabilitiesResponse:
		if r.GetConfirmed() == nil {
			return "not confirmed: " + r.GetMessage()
		}
		return "confirmed"
	case *csi.ControllerPublishVolumeResponse:
		about := maps.Clone(r.GetPublishContext())
		delete(about, disk.AttachedKey) // it would change with every step before
		return fmt.Sprintf("OK %v", about)
	case *csi.ControllerExpandVolumeResponse:
		return fmt.Sprintf("OK %g GiB, node expansion %v", float64(r.GetCapacityBytes())/(1<<30), r.GetNodeExpansionRequired())
	case *csi.GetCapacityResponse:
		if r.GetAvailableCapacity() == 0 {
			return "OK nothing"
		}
		return fmt.Sprintf("OK %d GiB, of %d to %d GiB each", r.GetAvailableCapacity()>>30, r.GetMinimumVolumeSize().GetValue()>>30, r.GetMaximumVolumeSize().GetValue()>>30)
	case *csi.ControllerGetVolumeResponse:
		return "OK " + listed(r.GetVolume(), r.GetStatus().GetPublishedNodeIds())
	case *csi.ListVolumesResponse:
		lines := []string{fmt.Sprintf("OK %d volumes, next token %q", len(r.GetEntries()), r.GetNextToken())}
		for _, e := range r.GetEntries() {
			lines = append(lines, "- "+listed(e.GetVolume(), e.GetStatus().GetPublishedNodeIds()))
		}
		return strings.Join(lines, "\n")
	}
	return renderSnapshots(response)
}

func listed(v *csi.Volume, nodes []string) string {
	text := fmt.Sprintf("%s %d GiB %v in %v on %v", v.GetVolumeId(), v.GetCapacityBytes()>>30, v.GetVolumeContext(), topologies(v.GetAccessibleTopology()), nodes)
	if from := v.GetContentSource(); from != nil {
		text += " from " + from.GetSnapshot().GetSnapshotId() + from.GetVolume().GetVolumeId()
	}
	return text
}

func topologies(terms []*csi.Topology) string {
	var words []string
	for _, term := range terms {
		words = append(words, fmt.Sprint(term.GetSegments()))
	}
	return strings.Join(words, " or ")
}

// id turns d-1 into the first disk's ID.
func (s *story) id(word string) string { return fullID(word) }

// calls tells what reached ECS since it was told last.
func (s *story) calls() string {
	return s.callsOf("ECS", s.sim) + s.callsOf("ECS of another account", s.other)
}

func (s *story) callsOf(who string, sim *ecssim.Server) string {
	var out strings.Builder
	all := sim.Calls()
	for _, c := range all[s.told[sim]:] {
		p := c.Params
		fmt.Fprintf(&out, "%s: %s", who, c.Action)
		for _, name := range []string{
			"ClientToken", "ZoneId", "DiskCategory", "PerformanceLevel", "Size", "NewSize", "Type", "DiskId", "InstanceId", "Force", "ResourceId.1", "Tag.1.Key", "TagKey.1", "DiskIds",
			"SnapshotId", "SnapshotIds", "SnapshotGroupId", "SnapshotGroupId.1", "DiskId.1", "DiskId.2", "DryRun", "ProvisionedIops", "BurstingEnabled", "TaskIds", "ResourceIds.1",
		} {
			if p[name] != "" && (name != "Tag.1.Key" || c.Action == "TagResources") && (name != "Force" || c.Action == "AttachDisk") {
				fmt.Fprintf(&out, " %s", p[name])
			}
		}
		if strings.HasPrefix(c.Action, "Describe") {
			for n := 1; p[fmt.Sprintf("Tag.%d.Key", n)] != ""; n++ {
				fmt.Fprintf(&out, " %s=%s", p[fmt.Sprintf("Tag.%d.Key", n)], p[fmt.Sprintf("Tag.%d.Value", n)])
			}
		}
		switch {
		case c.Code != "":
			fmt.Fprintf(&out, " -> %s", c.Code)
		case c.Action == "CreateDisk":
			fmt.Fprintf(&out, " -> %s", c.Disk)
		}
		if c.Fault != "" && c.Fault != c.Code {
			fmt.Fprintf(&out, " (%s)", c.Fault)
		}
		out.WriteByte('\n')
	}
	s.told[sim] = len(all)
	return out.String()
}
