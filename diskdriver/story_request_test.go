package diskdriver

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/params"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/topology"
)

// createRequest reads the words of a create command:
//
//	size=20Gi limit=30Gi    capacity_range
//	zones=a,b               requisite and preferred, in that order, under both keys
//	preferred=b requisite=a,b
//	key=private|well-known  the only key of the terms
//	term=KEY:VALUE,KEY:VALUE   a requisite term as it is
//	takes=cloud_essd,...    labels of the selected node, in the first preferred term
//	fs=xfs mount=noatime mount=... mode=... block access (none) timeout=10s
//	mkfs=-m+1               parameter mkfsOptions, with + for spaces
//	mutable.NAME=VALUE
//	anything else           a parameter of the class
func (s *story) createRequest(name string, words []string) *csi.CreateVolumeRequest {
	if name == `""` {
		name = ""
	}
	req := &csi.CreateVolumeRequest{
		Name: name, Parameters: map[string]string{}, MutableParameters: map[string]string{},
		VolumeCapabilities: []*csi.VolumeCapability{s.capability(words)},
	}
	keys := []string{topology.ZoneKey, topology.WellKnownZoneKey}
	var requisite, preferred, takes []string
	var terms []*csi.Topology
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "size":
			capacityOf(req).RequiredBytes = s.bytes(value)
		case "limit":
			capacityOf(req).LimitBytes = s.bytes(value)
		case "zones":
			requisite, preferred = strings.Split(value, ","), strings.Split(value, ",")
		case "preferred":
			preferred = strings.Split(value, ",")
		case "requisite":
			requisite = strings.Split(value, ",")
		case "key":
			keys = map[string][]string{"private": {topology.ZoneKey}, "well-known": {topology.WellKnownZoneKey}}[value]
		case "term":
			segments := map[string]string{}
			for pair := range strings.SplitSeq(value, ",") {
				k, v, _ := strings.Cut(pair, ":")
				segments[k] = v
			}
			terms = append(terms, &csi.Topology{Segments: segments})
		case "takes":
			takes = strings.Split(value, ",")
		case "mkfs":
			req.Parameters["mkfsOptions"] = strings.ReplaceAll(value, "+", " ")
		case "fs", "mount", "mode", "block", "access", "timeout", "ro", "upstream": // read elsewhere
		case "source":
			req.VolumeContentSource = contentSource(value)
		default:
			if name, ok := strings.CutPrefix(key, "mutable."); ok {
				req.MutableParameters[name] = value
			} else if key == params.SnapshotParameter {
				req.Parameters[key] = fullID(value)
			} else {
				req.Parameters[key] = value
			}
		}
	}
	if len(requisite)+len(preferred)+len(terms) > 0 {
		req.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: append(zoneTerms(requisite, keys), terms...), Preferred: zoneTerms(preferred, keys)}
	}
	for _, category := range takes {
		req.AccessibilityRequirements.Preferred[0].Segments[disk.NodeTypeLabel+category] = "available"
	}
	return req
}

func (s *story) validateRequest(id string, words []string) *csi.ValidateVolumeCapabilitiesRequest {
	create := s.createRequest("any", words)
	return &csi.ValidateVolumeCapabilitiesRequest{VolumeId: s.id(id), VolumeCapabilities: create.GetVolumeCapabilities(), Parameters: create.GetParameters()}
}

func (s *story) listRequest(words []string) *csi.ListVolumesRequest {
	req := &csi.ListVolumesRequest{}
	if len(words) > 0 {
		req.MaxEntries = int32(s.number(words[0]))
	}
	if len(words) > 1 {
		req.StartingToken = words[1]
		if id, ok := strings.CutPrefix(words[1], "after:d-"); ok {
			req.StartingToken = "after:" + s.id("d-"+id)
		}
	}
	return req
}

func (s *story) publishRequest(words []string) *csi.ControllerPublishVolumeRequest {
	req := &csi.ControllerPublishVolumeRequest{VolumeId: s.id(words[0]), VolumeCapability: s.capability(words)}
	for _, word := range words[1:] {
		switch {
		case strings.HasPrefix(word, "i-"):
			req.NodeId = word
		case word == "ro":
			req.Readonly = true
		}
	}
	return req
}

func (s *story) unpublishRequest(words []string) *csi.ControllerUnpublishVolumeRequest {
	req := &csi.ControllerUnpublishVolumeRequest{VolumeId: s.id(words[0])}
	if len(words) > 1 && strings.HasPrefix(words[1], "i-") {
		req.NodeId = words[1]
	}
	return req
}

func (s *story) expandRequest(words []string) *csi.ControllerExpandVolumeRequest {
	create := s.createRequest("any", words[1:])
	return &csi.ControllerExpandVolumeRequest{VolumeId: s.id(words[0]), CapacityRange: create.GetCapacityRange(), VolumeCapability: s.capability(words[1:])}
}

// capacityRequest reads the words of a capacity command as those of a create.
func (s *story) capacityRequest(words []string) *csi.GetCapacityRequest {
	create := s.createRequest("any", words)
	req := &csi.GetCapacityRequest{VolumeCapabilities: create.GetVolumeCapabilities(), Parameters: create.GetParameters()}
	if terms := append(create.GetAccessibilityRequirements().GetPreferred(), create.GetAccessibilityRequirements().GetRequisite()...); len(terms) > 0 {
		req.AccessibleTopology = terms[0]
	}
	return req
}

// instance stops or starts an instance, or takes it away.
func (s *story) instance(id, state string) error {
	if state == "gone" {
		return s.sim.RemoveInstance(id)
	}
	status := strings.ToUpper(state[:1]) + state[1:]
	return s.sim.SetInstance(id, ecssim.InstanceChange{Status: &status})
}

// byHand changes a disk without the driver.
func (s *story) byHand(what string, id disk.ID, with string) error {
	client, err := ecs.NewClient(ecs.Config{Region: s.config.Region, ClusterID: cluster, Credentials: s, Transport: s.sim})
	s.must(err)
	node := disk.InstanceID(with)
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Minute)
	defer cancel()
	switch what {
	case "attach":
		_, _, err = client.Attach(ctx, node, id, false)
	case "take": // from the instance that has it
		_, _, err = client.Attach(ctx, node, id, true)
	case "detach":
		_, _, err = client.Detach(ctx, node, id)
	case "untag":
		err = client.Untag(ctx, id, []string{with})
	default:
		s.t.Fatalf("nobody does %q by hand", what)
	}
	return err
}

func capacityOf(req *csi.CreateVolumeRequest) *csi.CapacityRange {
	if req.CapacityRange == nil {
		req.CapacityRange = &csi.CapacityRange{}
	}
	return req.CapacityRange
}

func (s *story) capability(words []string) *csi.VolumeCapability {
	mount := &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}
	vc := &csi.VolumeCapability{AccessType: mount, AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "fs":
			mount.Mount.FsType = value
		case "mount":
			mount.Mount.MountFlags = append(mount.Mount.MountFlags, value)
		case "block":
			vc.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		case "access":
			vc.AccessType = nil
		case "mode":
			mode, ok := csi.VolumeCapability_AccessMode_Mode_value[value]
			if !ok {
				s.t.Fatalf("%q is no access mode", value)
			}
			vc.AccessMode.Mode = csi.VolumeCapability_AccessMode_Mode(mode)
		}
	}
	return vc
}

func zoneTerms(zones, keys []string) []*csi.Topology {
	var terms []*csi.Topology
	for _, zone := range zones {
		segments := map[string]string{}
		for _, key := range keys {
			segments[key] = "cn-hangzhou-" + zone
		}
		terms = append(terms, &csi.Topology{Segments: segments})
	}
	return terms
}

// bytes reads 20Gi, 500Mi or a plain number.
func (s *story) bytes(word string) int64 {
	for suffix, unit := range map[string]int64{"Gi": 1 << 30, "Mi": 1 << 20} {
		if number, ok := strings.CutSuffix(word, suffix); ok {
			return s.number(number) * unit
		}
	}
	return s.number(word)
}

// learn reads the words of a known command. Without any, nothing is known.
func (s *story) learn(id disk.InstanceID, words []string) {
	if s.known == nil {
		s.known = map[disk.InstanceID]disk.Instance{}
	}
	var i disk.Instance
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "zone":
			i.Zone = disk.Zone("cn-hangzhou-" + value)
		case "type":
			i.Type = disk.InstanceType(value)
		case "takes":
			i.Takes = categoriesOf(value)
		case "refuses":
			i.Refuses = categoriesOf(value)
		default:
			s.t.Fatalf("%q is nothing to know", key)
		}
	}
	s.known[id] = i
}

func categoriesOf(list string) []disk.Category {
	var all []disk.Category
	for name := range strings.SplitSeq(list, ",") {
		all = append(all, disk.Category(name))
	}
	return all
}

// Instance returns what the story says is known.
func (s *story) Instance(id disk.InstanceID) (disk.Instance, bool) {
	i, ok := s.known[id]
	return i, ok
}

// Region returns what the story's Nodes say.
func (s *story) Region(id disk.InstanceID) string { return s.regions[id] }

func (s *story) disks() string {
	var out strings.Builder
	for _, d := range append(s.sim.Disks(), s.other.Disks()...) {
		fmt.Fprintf(&out, "%s %s %s %s %d GiB %s %v\n", d.ID, d.Name, d.Zone, strings.TrimSpace(d.Category+" "+d.PerformanceLevel), d.Size, d.ClientToken, d.Tags)
	}
	if out.Len() == 0 {
		return "no disks"
	}
	return out.String()
}

func (s *story) number(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	s.must(err)
	return n
}
