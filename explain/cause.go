package explain

// Cause is what holds an object up.
type Cause string

// The causes.
const (
	PodUnschedulable          Cause = "PodUnschedulable"          // for a reason other than storage
	NodeNameBypassesScheduler Cause = "NodeNameBypassesScheduler" // so nobody selects a node for the claim
	NoNodeInVolumeZone        Cause = "NoNodeInVolumeZone"        // none that takes the Pod
	ZoneSoldOut               Cause = "ZoneSoldOut"               // of the class's disk types, and no other zone will do
	VolumesInDifferentZones   Cause = "VolumesInDifferentZones"
	SelectedNodeGone          Cause = "SelectedNodeGone"
	AttachLimitReached        Cause = "AttachLimitReached"
	AutoscalerWouldNotHelp    Cause = "AutoscalerWouldNotHelp"
	DriverNotOnNode           Cause = "DriverNotOnNode"
	DriverNotReadyOnNode      Cause = "DriverNotReadyOnNode" // its startup taint is still there
	DiskTypeNotTaken          Cause = "DiskTypeNotTaken"     // by the node's instance type
	VolumeOnDeadNode          Cause = "VolumeOnDeadNode"
	VolumeInUse               Cause = "VolumeInUse" // by a Pod on another node, which is alive
	WaitsInAttachQueue        Cause = "WaitsInAttachQueue"
	HeldByFinalizer           Cause = "HeldByFinalizer"
	ResizePending             Cause = "ResizePending"
	ResizeInfeasible          Cause = "ResizeInfeasible"
	ModificationPending       Cause = "ModificationPending"
	ModificationInfeasible    Cause = "ModificationInfeasible"
	ModificationCoolingDown   Cause = "ModificationCoolingDown"
	CredentialsRefused        Cause = "CredentialsRefused"
	QuotaReached              Cause = "QuotaReached"
	CallsThrottled            Cause = "CallsThrottled"
	ParameterRefused          Cause = "ParameterRefused"
	VolumeKept                Cause = "VolumeKept"
	SnapshotNotReady          Cause = "SnapshotNotReady"
	SourceNotReady            Cause = "SourceNotReady" // the claim that a claim is filled from is not bound
	OtherDriver               Cause = "OtherDriver"    // serves the class
	NoProvisioner             Cause = "NoProvisioner"
	ZoneLabelsDisagree        Cause = "ZoneLabelsDisagree"
	WaitsForConsumer          Cause = "WaitsForConsumer"  // the claim waits for a Pod
	WaitsForPopulator         Cause = "WaitsForPopulator" // the claim's source is of a kind that disk-provisioner leaves to others
	BeingProvisioned          Cause = "BeingProvisioned"
	BeingAttached             Cause = "BeingAttached"
	DriverFailed              Cause = "DriverFailed" // with an error of no other cause

	ClaimNotFound             Cause = "ClaimNotFound"             // that the Pod names
	ClassNotFound             Cause = "ClassNotFound"             // that the claim names, or it names none and there is no default
	VolumeNotFound            Cause = "VolumeNotFound"            // that the claim is bound to
	VolumeOfOtherClaim        Cause = "VolumeOfOtherClaim"        // that the claim names
	AllowedTopologiesTooSmall Cause = "AllowedTopologiesTooSmall" // the class's leave the Pod no node
	BeingScheduled            Cause = "BeingScheduled"            // some node would do, and the scheduler has yet to see it
	PodNotStarted             Cause = "PodNotStarted"             // on its node, for a reason other than storage
	PermissionDenied          Cause = "PermissionDenied"          // ECS knows the driver's keys, and they may not do this
	BeingDetached             Cause = "BeingDetached"
	BeingDeleted              Cause = "BeingDeleted"
	NodeNotReady              Cause = "NodeNotReady" // and has no volume that others wait for
)
