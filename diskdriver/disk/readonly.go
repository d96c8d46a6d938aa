package disk

// ReadOnlyTag is the key of the tag that says that an instance may read a disk
// and not write to it. The instance's ID ends it; for none it is what all such
// keys begin with.
func ReadOnlyTag(instance InstanceID) string {
	return "csi.alibabacloud.com/read-only/" + string(instance)
}
