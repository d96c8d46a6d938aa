package disk

// ReadOnlyTag is the key of the tag that says that an instance may read a disk
// and not write to it. The instance's ID ends it; for none it is what all such
// keys begin with.
func ReadOnlyTag(instance InstanceID) string {
	return "csi.alibabacloud.com/read-only/" + string(instance)
}

// The publish context: what the node needs to know of a disk to find and use it.
const (
	SerialKey   = "serialNumber" // as the guest sees it
	ReadOnlyKey = "readOnly"     // "true" if the node must not write; absent if it may
	SizeKey     = "sizeBytes"    // what the disk had when it was attached
	AttachedKey = "attachedTime" // when the disk was attached, which tells this attachment from others; absent if ECS doesn't say
	VolumeKey   = "volumeId"     // the disk that the context is of; absent before 0.2
	HistoryKey  = "state"        // a History; absent before 0.2, which counts as HistoryInUse
)

// History says whether a disk can hold data, by what was done to it and not by its bytes. It is kept in the tag HistoryTag. A disk
// without the tag counts as HistoryInUse. In the tag of a disk, HistoryInUse has a nonce after it (InUseMark).
type History string

// The histories.
const (
	HistoryNew   History = "new"    // made empty, and never published
	HistoryInUse History = "in-use" // published at least once, or not made empty
)

// InUseMark returns HistoryInUse as the value of HistoryTag. A read that shows the nonce is later than the call that set it.
func InUseMark(nonce string) string { return string(HistoryInUse) + "-" + nonce }

// UsedMark is InUseMark for a disk that somebody else may have written to before.
func UsedMark(nonce string) string { return "used-" + nonce }

// The volume context: what the node needs to know of a volume's class and birth.
const (
	FilesystemKey  = "fsType"      // for a volume whose capability names no file system
	MkfsOptionsKey = "mkfsOptions" // options of mkfs, which the node reads as MkfsOptions
	UncheckedKey   = "omitfsck"    // "true" if the file system is not checked before it is mounted
	OriginKey      = "origin"      // an Origin
	XFSFeaturesKey = "xfsFeatures" // an XFSFeatures; absent: XFSLTS419
)

// Origin says what a volume was made from. It is absent of volumes that
// topodisk didn't make.
type Origin string

// The origins.
const (
	OriginEmpty    Origin = "empty"
	OriginSnapshot Origin = "snapshot"
	OriginVolume   Origin = "volume"
)
