package nodefacts

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/topology"
)

// Self is the node that this process runs on, as Kubernetes knows it.
type Self struct {
	client kubernetes.Interface
	name   string // of the Node
	driver string
	limits Limits
}

// Limits say how many disks of the driver a node takes, where that is not for
// ECS and the node's disks alone to say.
type Limits struct {
	// Volumes is the number itself; 0: what the instance takes less what
	// others have.
	Volumes int
	// Reserved is how many of the instance's places are kept for disks that
	// aren't the driver's. Those that are attached are counted in: the larger
	// number holds. Without effect beside Volumes.
	Reserved int
}

// NewSelf returns the node with the name of its Node object, which runs a CSI
// driver. It calls nothing.
func NewSelf(client kubernetes.Interface, node, driver string, limits Limits) *Self {
	return &Self{client: client, name: node, driver: driver, limits: limits}
}

// Node returns who and where the node is and how many disks of the driver it
// takes, by what its Node object and the Limits say. Disks that the node sees,
// known by their serial numbers, and that Kubernetes doesn't know of take
// places that the driver can't have. It is Pending until the controller has
// published what only ECS knows.
func (s *Self) Node(ctx context.Context, serials []string) (disk.Node, error) {
	node, err := s.client.CoreV1().Nodes().Get(ctx, s.name, metav1.GetOptions{})
	if err != nil {
		return disk.Node{}, disk.Errorf(disk.Unreachable, "read Node %s: %w", s.name, err)
	}
	id, region := identify(node)
	if id == "" {
		return disk.Node{}, disk.Errorf(disk.Blocked, "Node %s names no ECS instance: spec.providerID is %q; allowed is <region>.<instance ID>, or without a provider ID the label %s", s.name, node.Spec.ProviderID, disk.InstanceLabel)
	}
	facts, known := Of(node)
	if !known || facts.DataDisks == 0 && s.limits.Volumes == 0 {
		return disk.Node{}, disk.Errorf(disk.Pending, "Node %s has no annotation %s of instance %s as it runs now, with dataDisks; the controller of the driver (--node-facts) publishes it", s.name, Annotation, id)
	}
	places, err := s.allowedVolumes(ctx, id, facts, node, serials)
	if err != nil {
		return disk.Node{}, err
	}
	return disk.Node{ID: id, Segments: segments(node, facts, region), MaxVolumes: int64(places)}, nil
}

// allowedVolumes returns how many disks of the driver the node takes besides those of
// others. None is an error, for Kubernetes would take it for no limit.
func (s *Self) allowedVolumes(ctx context.Context, id disk.InstanceID, facts Facts, node *corev1.Node, serials []string) (int, error) {
	if s.limits.Volumes > 0 {
		return s.limits.Volumes, nil
	}
	others, err := s.unknownDisks(ctx, node, serials)
	if err != nil {
		return 0, err
	}
	free := facts.DataDisks - max(len(others), s.limits.Reserved)
	switch {
	case free > 0:
		return free, nil
	case s.limits.Reserved > len(others):
		return 0, disk.Errorf(disk.Blocked, "instance %s takes %d data disks, and --reserved-attachments=%d leaves no place for a volume; allowed are fewer than %d", id, facts.DataDisks, s.limits.Reserved, facts.DataDisks)
	}
	return 0, disk.Errorf(disk.Blocked, "instance %s takes %d data disks, and has as many that are not the driver's: %s", id, facts.DataDisks, strings.Join(others, ", "))
}

// segments returns the node's topology. Its zone is ECS's; a well-known label
// that says something else is left alone and not reported, for what is
// reported has to be the label.
func segments(node *corev1.Node, facts Facts, region string) map[string]string {
	all := map[string]string{topology.ZoneKey: string(facts.Zone)}
	for key, value := range map[string]string{topology.WellKnownZoneKey: string(facts.Zone), topology.RegionKey: region} {
		switch label := node.Labels[key]; {
		case value == "" && label != "":
			all[key] = label
		case value == "":
		case label == "" || label == value:
			all[key] = value
		default:
			klog.InfoS("A label of the Node is not what ECS says of its instance, and is not reported", "node", node.Name, "label", key, "value", label, "ecs", value)
		}
	}
	return all
}

// unknownDisks returns the serial numbers of disks that Kubernetes has attached
// none of the driver's volumes by. A disk's serial number is its ID without d-
// (ECS, DescribeDisks, SerialNumber).
func (s *Self) unknownDisks(ctx context.Context, node *corev1.Node, serials []string) ([]string, error) {
	prefix := fmt.Sprintf("kubernetes.io/csi/%s^d-", s.driver)
	ours := map[string]bool{}
	for _, volume := range node.Status.VolumesInUse {
		ours[strings.TrimPrefix(string(volume), prefix)] = true
	}
	for _, volume := range node.Status.VolumesAttached {
		ours[strings.TrimPrefix(string(volume.Name), prefix)] = true
	}
	var unknown []string
	for _, serial := range serials {
		if ours[serial] {
			continue
		}
		is, err := s.hasAttachment(ctx, disk.ID("d-"+serial))
		if err != nil {
			return nil, err
		}
		if !is {
			unknown = append(unknown, serial)
		}
	}
	return unknown, nil
}

// hasAttachment says whether Kubernetes has a volume on the node, attaches it
// or detaches it; while it attaches and detaches, the Node's status does not
// list the volume.
func (s *Self) hasAttachment(ctx context.Context, id disk.ID) (bool, error) {
	name := attachmentName(id, s.driver, s.name)
	_, err := s.client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, disk.Errorf(disk.Unreachable, "read VolumeAttachment %s of disk %s, which Node %s sees: %w", name, id, s.name, err)
	}
	return true, nil
}

// attachmentName returns the name that Kubernetes gives to the VolumeAttachment
// of a driver's volume and a node (k8s.io/kubernetes, pkg/volume/csi).
func attachmentName(id disk.ID, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(id)+driver+node)))
}
