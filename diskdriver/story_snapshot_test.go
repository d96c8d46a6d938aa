package diskdriver

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// doSnapshots runs the commands of stories that are about snapshots, groups of
// them and changes of disks; false if it is none of them.
//
//	snapshot NAME VOLUME [zones=a,b] [term=KEY:VALUE] key=value...  CreateSnapshot; keys are parameters
//	delete-snapshot ID, get-snapshot ID
//	list-snapshots [of=VOLUME] [id=ID] [max=N] [token=T]
//	group NAME VOLUME,... key=value...  CreateVolumeGroupSnapshot
//	delete-group ID [ID,...], get-group ID [ID,...]
//	modify VOLUME key=value...         ControllerModifyVolume
//	sweep, snapshots                   temporary ones are swept; those of ECS
//	auto-snapshot VOLUME               ECS makes one by itself
func (s *story) doSnapshots(verb string, rest []string) (answer string, known bool) {
	switch verb {
	case "snapshot":
		req := &csi.CreateSnapshotRequest{Name: fullID(rest[0]), SourceVolumeId: s.id(rest[1]), Parameters: parametersOf(rest[2:])}
		req.AccessibilityRequirements = s.createRequest("any", rest[2:]).GetAccessibilityRequirements()
		delete(req.Parameters, "zones")
		delete(req.Parameters, "term")
		answer = s.call("CreateSnapshot", req, rest...)
	case "delete-snapshot":
		answer = s.call("DeleteSnapshot", &csi.DeleteSnapshotRequest{SnapshotId: s.id(rest[0])}, rest...)
	case "get-snapshot":
		answer = s.call("GetSnapshot", &csi.GetSnapshotRequest{SnapshotId: s.id(rest[0])})
	case "list-snapshots":
		answer = s.call("ListSnapshots", s.listSnapshotsRequest(rest))
	case "group":
		req := &csi.CreateVolumeGroupSnapshotRequest{Name: fullID(rest[0]), SourceVolumeIds: s.ids(rest[1]), Parameters: parametersOf(rest[2:])}
		answer = s.call("CreateVolumeGroupSnapshot", req, rest...)
	case "delete-group":
		answer = s.call("DeleteVolumeGroupSnapshot", &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: s.id(rest[0]), SnapshotIds: s.ids(rest[1:]...)})
	case "get-group":
		answer = s.call("GetVolumeGroupSnapshot", &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: s.id(rest[0]), SnapshotIds: s.ids(rest[1:]...)})
	case "modify":
		answer = s.call("ControllerModifyVolume", &csi.ControllerModifyVolumeRequest{VolumeId: s.id(rest[0]), MutableParameters: parametersOf(rest[1:])}, rest...)
	case "sweep":
		for _, c := range s.driver.accounts.all() {
			c.sweep(s.t.Context(), s.driver.inflight)
		}
	case "auto-snapshot":
		_, err := s.sim.AddAutoSnapshot(s.id(rest[0]))
		s.must(err)
	case "snapshots":
		answer = s.snapshots()
	default:
		return "", false
	}
	return answer, true
}

// givenSnapshots sets how long snapshots and changes take; false if it is none
// of that.
func (s *story) givenSnapshots(name string, d time.Duration) bool {
	l := &s.config.Latency
	fields := map[string]*time.Duration{
		"cut": &l.SnapshotCut, "usable": &l.SnapshotUsable, "done": &l.SnapshotDone,
		"available": &l.Available, "modify": &l.Modify, "burst-ready": &l.BurstReady, "cool": &l.CoolCategory, "order": &l.Order,
	}
	if fields[name] == nil {
		return false
	}
	*fields[name] = d
	return true
}

// parametersOf reads key=value words, but for the timeout.
func parametersOf(words []string) map[string]string {
	parameters := map[string]string{}
	for _, word := range words {
		if name, value, _ := strings.Cut(word, "="); name != "timeout" {
			parameters[name] = value
		}
	}
	return parameters
}

func (s *story) listSnapshotsRequest(words []string) *csi.ListSnapshotsRequest {
	req := &csi.ListSnapshotsRequest{}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "of":
			req.SourceVolumeId = s.id(value)
		case "id":
			req.SnapshotId = s.id(value)
		case "max":
			req.MaxEntries = int32(s.number(value))
		case "token":
			if req.StartingToken = value; value == "next" {
				req.StartingToken = s.next
			}
		default:
			s.t.Fatalf("%q is no part of a list of snapshots", word)
		}
	}
	return req
}

// ids reads lists of IDs.
func (s *story) ids(lists ...string) []string {
	var ids []string
	for _, list := range lists {
		for word := range strings.SplitSeq(list, ",") {
			ids = append(ids, s.id(word))
		}
	}
	return ids
}

// resourceIDs are the IDs of ECS, which are told by the order of creation: s-1
// is the first snapshot, and s-1* that of another account.
var (
	resourceIDs = regexp.MustCompile(`\b(d|s|ssg|t)-bp1([0-9a-z]{7})([0-9a-z]{10})`)
	shortID     = regexp.MustCompile(`^(d|s|ssg|t)-([0-9]+)(\*?)$`)
)

// plainIDs names what has an ID by the order of its creation.
func plainIDs(line string) string {
	return resourceIDs.ReplaceAllStringFunc(line, func(id string) string {
		kind, _, _ := strings.Cut(id, "-")
		n, _ := strconv.ParseInt(id[len(id)-10:], 36, 64)
		star := ""
		if !strings.HasSuffix(id[:len(id)-10], "0000000") {
			star = "*"
		}
		return fmt.Sprintf("%s-%d%s", kind, n, star)
	})
}

// fullID turns s-1 into the first snapshot's ID, and leaves other words alone.
func fullID(word string) string {
	parts := shortID.FindStringSubmatch(word)
	if parts == nil {
		return strings.Trim(word, `"`)
	}
	n, _ := strconv.ParseInt(parts[2], 10, 64)
	seed := map[string]string{"": "0000000", "*": "0000001"}[parts[3]]
	return fmt.Sprintf("%s-bp1%s%010s", parts[1], seed, strconv.FormatInt(n, 36))
}

// renderSnapshots is render for the answers that are about snapshots.
func renderSnapshots(response any) string {
	switch r := response.(type) {
	case *csi.CreateSnapshotResponse:
		return "OK " + shown(r.GetSnapshot())
	case *csi.GetSnapshotResponse:
		return "OK " + shown(r.GetSnapshot())
	case *csi.ListSnapshotsResponse:
		lines := []string{fmt.Sprintf("OK %d snapshots, more to come %t", len(r.GetEntries()), r.GetNextToken() != "")}
		for _, e := range r.GetEntries() {
			lines = append(lines, "- "+shown(e.GetSnapshot()))
		}
		return strings.Join(lines, "\n")
	case *csi.ControllerGetVolumeHealthResponse, *csi.ControllerListVolumeHealthResponse:
		return renderHealth(r)
	case *csi.CreateVolumeGroupSnapshotResponse:
		return "OK " + shownGroup(r.GetGroupSnapshot())
	case *csi.GetVolumeGroupSnapshotResponse:
		return "OK " + shownGroup(r.GetGroupSnapshot())
	}
	return "OK"
}

func shown(s *csi.Snapshot) string {
	text := fmt.Sprintf("%s of %s %g GiB of %s", s.GetSnapshotId(), s.GetSourceVolumeId(), float64(s.GetSizeBytes())/(1<<30), s.GetCreationTime().AsTime().Format("15:04:05"))
	if s.GetGroupSnapshotId() != "" {
		text += " in " + s.GetGroupSnapshotId()
	}
	if s.GetReadyToUse() {
		text += ", ready"
	}
	return text + ", usable in " + topologies(s.GetAccessibleTopology())
}

func shownGroup(g *csi.VolumeGroupSnapshot) string {
	lines := []string{fmt.Sprintf("%s of %s, ready %t", g.GetGroupSnapshotId(), g.GetCreationTime().AsTime().Format("15:04:05"), g.GetReadyToUse())}
	for _, s := range g.GetSnapshots() {
		lines = append(lines, "- "+shown(s))
	}
	return strings.Join(lines, "\n")
}

func (s *story) snapshots() string {
	var out strings.Builder
	for _, n := range append(s.sim.Snapshots(), s.other.Snapshots()...) {
		name := ""
		if strings.HasPrefix(n.Name, "archived-") { // others are those of their volume or snapshot
			name = n.Name + " "
		}
		fmt.Fprintf(&out, "%s %sof %s %s %v\n", n.ID, name, n.Disk, strings.TrimSpace(n.Status+" "+n.Group), n.Tags)
	}
	if out.Len() == 0 {
		return "no snapshots"
	}
	return out.String()
}

// contentSource reads s-1 as a snapshot and d-1 as a volume.
func contentSource(word string) *csi.VolumeContentSource {
	if strings.HasPrefix(word, "d-") {
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: fullID(word)}}}
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: fullID(word)}}}
}
