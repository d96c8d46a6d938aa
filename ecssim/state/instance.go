package state

import (
	"maps"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
)

// InstanceSpec is what is said of an instance when it is added.
type InstanceSpec struct {
	ID   string `json:"id"` // such as i-bp1a2b3c
	Zone string `json:"zone"`
	Type string `json:"type"` // such as ecs.g7.large
	// Status is one of Pending, Running, Starting, Stopping and Stopped;
	// empty is Running.
	Status string `json:"status,omitempty"`

	Role           string `json:"role,omitempty"`           // name of the RAM role whose keys the metadata service gives out
	TokensRequired bool   `json:"tokensRequired,omitempty"` // the metadata service takes requests in token mode only
	MetadataOff    bool   `json:"metadataOff,omitempty"`    // the metadata service is not there
}

// The states of an instance in which disks can be attached.
const (
	InstanceRunning = "Running"
	InstanceStopped = "Stopped"
)

// InstanceStates are the values that DescribeInstances takes for Status.
var InstanceStates = []string{"Pending", InstanceRunning, "Starting", "Stopping", InstanceStopped}

// Instance is an instance and what belongs to it.
type Instance struct {
	InstanceSpec
	Seq         int // in the order of the Config, then of AddInstance
	Kind        InstanceType
	Locked      bool // for security
	Started     time.Time
	Tags        TagSet
	Attachments []*Attachment // in the order of AttachDisk
}

// fleet is the instances and the types that are known.
type fleet struct {
	instances map[string]*Instance
	types     map[string]InstanceType
	made      int
}

func newFleet(c Config) fleet {
	f := fleet{instances: map[string]*Instance{}, types: c.types()}
	for _, i := range c.Instances {
		f.add(i, time.Time{}) // it has been there for long
	}
	return f
}

// add adds an instance of a type that is known.
func (f *fleet) add(i InstanceSpec, started time.Time) {
	if i.Status == "" {
		i.Status = InstanceRunning
	}
	f.made++
	f.instances[i.ID] = &Instance{
		InstanceSpec: i, Seq: f.made, Kind: f.types[i.Type], Started: started, Tags: NewTagSet(map[string]string{}, time.Time{}),
	}
}

// inOrder returns the instances in the order of the Config, then of AddInstance.
func (f fleet) inOrder() []*Instance {
	return slices.SortedFunc(maps.Values(f.instances), func(a, b *Instance) int { return a.Seq - b.Seq })
}

// InstanceState is an instance as it is.
type InstanceState struct {
	InstanceSpec
	Locked    bool     `json:"locked,omitempty"` // for security
	System    string   `json:"systemDisk"`       // ID of its system disk
	Disks     []string `json:"disks"`            // IDs of the data disks that are attached, or on their way
	Attaching int      `json:"attaching"`
	Detaching int      `json:"detaching"`
	DiskLimit int      `json:"diskLimit"` // of cloud disks, its system disk included
}

// InstanceChange is what SetInstance changes; nil leaves a thing as it is.
type InstanceChange struct {
	Status *string `json:"status"` // one of Pending, Running, Starting, Stopping and Stopped
	Locked *bool   `json:"locked"` // for security: refuses attaches and detaches with InstanceLockedForSecurity
}

// AddInstance adds an instance, as if it had just started. The error is a
// *config.Error.
func (r *Region) AddInstance(i InstanceSpec, now time.Time) error {
	known := Config{Zones: r.config.Zones, Instances: []InstanceSpec{i}, InstanceTypes: r.InstanceTypes()}
	if err := known.checkInstances(); err != nil {
		return err
	}
	if r.Instance(i.ID) != nil {
		return config.Invalid("id", i.ID, "an instance ID that does not exist yet")
	}
	r.fleet.add(i, now)
	r.Touch(i.ID)
	r.bootDisk(r.Instance(i.ID), now)
	return nil
}

// SetInstance changes an instance. Disks stay attached to one that stops; a
// guest that runs again has the devices in their present size. The error is a
// *config.Error.
func (r *Region) SetInstance(id string, change InstanceChange, now time.Time) error {
	if change.Status != nil && !slices.Contains(InstanceStates, *change.Status) {
		return config.Invalid("status", *change.Status, config.OneOf(InstanceStates))
	}
	i := r.Instance(id)
	if i == nil {
		return r.noInstance("id", id)
	}
	r.Touch(id)
	if change.Locked != nil {
		i.Locked = *change.Locked
	}
	if change.Status != nil {
		i.become(*change.Status, now)
	}
	return nil
}

// Stop stops an instance.
func (r *Region) Stop(i *Instance, at time.Time) {
	i.become(InstanceStopped, at)
	r.Touch(i.ID)
}

// RemoveInstance releases an instance by its ID. The error is a *config.Error.
func (r *Region) RemoveInstance(id string, now time.Time) error {
	i := r.Instance(id)
	if i == nil {
		return r.noInstance("id", id)
	}
	r.Release(i, now, "release of instance "+id)
	return nil
}

// become gives the instance another status.
func (i *Instance) become(status string, at time.Time) {
	if status == InstanceRunning && i.Status != InstanceRunning {
		i.Started = at
		for _, a := range i.Attachments {
			a.GuestSize = a.Disk.Size
		}
	}
	i.Status = status
}

// Release removes an instance, as when a node is gone for good: its disks are
// Available at once, but for those that are deleted with it.
func (r *Region) Release(i *Instance, at time.Time, cause string) {
	r.Touch(i.ID)
	delete(r.fleet.instances, i.ID)
	for _, a := range slices.Clone(i.Attachments) {
		gone := a.Disk.DeleteWithInstance
		r.RemoveAttachment(a, at, cause)
		if gone {
			r.DeleteDisk(a.Disk)
		}
	}
}

// noInstance is the error of a request about an unknown instance.
func (r *Region) noInstance(field, id string) error {
	var ids []string
	for _, i := range r.fleet.inOrder() {
		ids = append(ids, i.ID)
	}
	return config.Invalid(field, id, config.OneOf(ids))
}

// InstanceStates lists the instances that exist, in the order of the Config, then
// of AddInstance.
func (r *Region) InstanceStates() []InstanceState {
	list := []InstanceState{}
	for _, i := range r.fleet.inOrder() {
		list = append(list, i.Export())
	}
	return list
}

// LockReasons are the reasons for which the instance is locked.
func (i *Instance) LockReasons() []string {
	if i.Locked {
		return []string{"security"}
	}
	return nil
}

// Export returns the instance as it is.
func (i *Instance) Export() InstanceState {
	st := InstanceState{
		InstanceSpec: i.InstanceSpec, Locked: i.Locked, Disks: []string{}, DiskLimit: i.Kind.DiskQuantity,
		Attaching: i.InPhase(DiskAttaching), Detaching: i.InPhase(DiskDetaching),
	}
	for _, a := range i.Attachments {
		if a.Disk.System {
			st.System = a.Disk.ID
		} else {
			st.Disks = append(st.Disks, a.Disk.ID)
		}
	}
	return st
}

// systemSize is the size of a system disk in GiB.
const systemSize = 40

// bootedBefore is how long before New the Config's instances were started.
const bootedBefore = 24 * time.Hour

// systemCategories are what a system disk can be, the preferred first.
var systemCategories = []string{"cloud_essd", "cloud_auto", "cloud_essd_entry", "cloud_ssd", "cloud_efficiency", "cloud"}

// bootDisk gives an instance its system disk, of a category that its type
// takes.
func (r *Region) bootDisk(i *Instance, at time.Time) {
	cause := "start of instance " + i.ID
	d := &Disk{
		ID: r.ids.systemDisk(), Zone: i.Zone, Category: i.Kind.systemCategory(), Size: systemSize, Largest: systemSize,
		System: true, Created: at, Creating: true, Tags: NewTagSet(map[string]string{}, time.Time{}),
	}
	if d.Category == "cloud_essd" {
		d.Level = "PL1"
	}
	r.disks.add(d)
	r.Note(d, at, cause)
	d.Creating = false
	r.Note(d, at, cause)
	a := &Attachment{
		Disk: d, Instance: i, Device: "/dev/xvda", Phase: DiskAttaching, Cause: cause, Since: at, Attached: at, DeviceAt: at, GuestSize: systemSize,
	}
	r.AddAttachment(a)
	r.Turn(a, DiskInUse, at, cause)
	d.DeleteWithInstance = true
}

// systemCategory is the category of the system disks of the type's instances.
func (t InstanceType) systemCategory() string {
	if i := slices.IndexFunc(systemCategories, t.Takes); i >= 0 {
		return systemCategories[i]
	}
	return t.Categories[0]
}

// Data returns the instance's attachments but that of its system disk.
func (i *Instance) Data() []*Attachment {
	var list []*Attachment
	for _, a := range i.Attachments {
		if !a.Disk.System {
			list = append(list, a)
		}
	}
	return list
}
