package disk

// Node is what a node plugin says of itself to Kubernetes.
type Node struct {
	ID       InstanceID
	Segments map[string]string // the node's topology: labels and their values
	// MaxVolumes is how many disks of the driver the node can have at a time,
	// at least 1.
	MaxVolumes int64
}
