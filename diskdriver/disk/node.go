package disk

import "regexp"

// InstanceLabel names a node's instance where the cloud provider's controller
// doesn't run, which fills in spec.providerID.
const InstanceLabel = "alibabacloud.com/ecs-instance-id"

var (
	instanceForm   = regexp.MustCompile(`^i-[A-Za-z0-9]+$`)
	providerIDForm = regexp.MustCompile(`^(?:alicloud://)?([a-z0-9-]+)[./](i-[A-Za-z0-9]+)$`)
)

// InstanceOfNode returns the ECS instance that a Node with this spec.providerID
// and InstanceLabel stands for, and its region if the Node says so; empty if it
// stands for none. A provider ID is <region>.<instance>, perhaps with
// alicloud:// before it; the label counts only without one.
func InstanceOfNode(providerID, label string) (id InstanceID, region string) {
	if m := providerIDForm.FindStringSubmatch(providerID); m != nil {
		return InstanceID(m[2]), m[1]
	}
	if providerID == "" && instanceForm.MatchString(label) {
		return InstanceID(label), ""
	}
	return "", ""
}

// Node is what a node plugin says of itself to Kubernetes.
type Node struct {
	ID       InstanceID
	Segments map[string]string // the node's topology: labels and their values
	// MaxVolumes is how many disks of the driver the node can have at a time,
	// at least 1.
	MaxVolumes int64
}
