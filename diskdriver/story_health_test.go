package diskdriver

import (
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// doHealth runs the commands of stories that are about the health of disks, and
// of what people do to disks; false if it is none of them.
//
//	health ID             ControllerGetVolumeHealth
//	list-health [MAX [TOKEN]]
//	lock ID REASON...     by ECS; without a reason it is unlocked
//	tag ID N              somebody adds so many tags to a disk
//	zone ZONE N           stock of all its categories
func (s *story) doHealth(verb string, rest []string) (answer string, known bool) {
	switch verb {
	case "health":
		answer = s.call("ControllerGetVolumeHealth", &csi.ControllerGetVolumeHealthRequest{VolumeId: s.id(rest[0])})
	case "list-health":
		list := s.listRequest(rest)
		answer = s.call("ControllerListVolumeHealth", &csi.ControllerListVolumeHealthRequest{MaxEntries: list.GetMaxEntries(), StartingToken: list.GetStartingToken()})
	case "lock":
		s.must(s.sim.LockDisk(s.id(rest[0]), rest[1:]...))
	case "tag":
		words := []string{}
		for n := range s.number(rest[1]) {
			words = append(words, fmt.Sprintf("diskTags/t%d=", n))
		}
		answer = s.call("ControllerModifyVolume", &csi.ControllerModifyVolumeRequest{VolumeId: s.id(rest[0]), MutableParameters: parametersOf(words)})
	case "zone":
		for _, level := range s.sim.State().Stock {
			if level.Zone == "cn-hangzhou-"+rest[0] {
				s.must(s.sim.SetStock(level.Zone, level.Category, int(s.number(rest[1]))))
			}
		}
	default:
		return "", false
	}
	return answer, true
}

// renderHealth is render for the answers that are about health.
func renderHealth(response any) string {
	switch r := response.(type) {
	case *csi.ControllerGetVolumeHealthResponse:
		return "OK " + ills(r.GetVolumeHealth())
	case *csi.ControllerListVolumeHealthResponse:
		lines := []string{fmt.Sprintf("OK %d volumes, next token %q", len(r.GetEntries()), r.GetNextToken())}
		for _, h := range r.GetEntries() {
			lines = append(lines, "- "+ills(h))
		}
		return strings.Join(lines, "\n")
	}
	return "OK"
}

func ills(h *csi.VolumeHealth) string {
	if len(h.GetHealthStatuses()) == 0 {
		return h.GetVolumeId() + " has nothing"
	}
	var words []string
	for _, ill := range h.GetHealthStatuses() {
		words = append(words, fmt.Sprintf("%s %s (%s)", ill.GetStatus(), ill.GetReason(), ill.GetMessage()))
	}
	return h.GetVolumeId() + " is " + strings.Join(words, "; ")
}
