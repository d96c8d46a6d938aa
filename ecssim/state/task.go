package state

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The states of a task.
const (
	TaskProcessing = "Processing"
	TaskFinished   = "Finished"
	TaskFailed     = "Failed"
)

// TaskStates are the values that DescribeTasks takes for TaskStatus.
var TaskStates = []string{"Deleted", TaskFailed, TaskFinished, "Paused", "Pending", TaskProcessing}

// Task is a change that takes its time.
type Task struct {
	Seq      int // in the order of creation
	ID       string
	Change   SpecChange
	Status   string
	Created  time.Time
	Finished time.Time
}

// task returns a task, nil if it does not exist.
func (r *Region) task(id string) *Task {
	for _, t := range r.tasks {
		if t.ID == id {
			return t
		}
	}
	return nil
}

// keptTasks is how many tasks there are at most, but for those that are
// Processing. No public source says how long ECS keeps them.
const keptTasks = 1000

// AddTask adds a task and gives it its ID, and drops the oldest that has ended if there are many.
func (r *Region) AddTask(t *Task) {
	r.tasksMade++
	t.Seq, t.ID = r.tasksMade, r.ids.resource(taskPrefix)
	r.Touch(t.ID)
	r.tasks = append(r.tasks, t)
	if len(r.tasks) <= keptTasks {
		return
	}
	if i := slices.IndexFunc(r.tasks, func(t *Task) bool { return t.Status != TaskProcessing }); i >= 0 {
		r.Touch(r.tasks[i].ID)
		r.tasks = slices.Delete(r.tasks, i, i+1)
	}
}

// DiskSpec is what ModifyDiskSpec changes of a disk.
type DiskSpec struct {
	Zone, Category, Level string
	IOPS                  int
}

// String is the category with the level or the provisioned IOPS, if any.
func (c DiskSpec) String() string {
	if c.IOPS != 0 {
		return fmt.Sprintf("%s %d IOPS", c.Category, c.IOPS)
	}
	return strings.TrimSpace(c.Category + " " + c.Level)
}

// Spec is what ModifyDiskSpec could change of the disk.
func (d *Disk) Spec() DiskSpec { return DiskSpec{d.Zone, d.Category, d.Level, d.ProvisionedIOPS} }

// SpecChange is a change of a disk's spec that is asked for.
type SpecChange struct {
	Disk     *Disk
	From, To DiskSpec
}

// Cooling is the time after a change in which there can't be another.
type Cooling struct {
	Until time.Time
	Free  bool // one change of the IOPS alone may come all the same
}

// TaskState is a change of a disk's spec that takes its time.
type TaskState struct {
	ID       string     `json:"id"`
	Disk     string     `json:"disk"`
	From     string     `json:"from"`   // category and level
	To       string     `json:"to"`     // category and level
	Status   string     `json:"status"` // Processing, Finished or Failed
	Created  time.Time  `json:"created"`
	Finished *time.Time `json:"finished,omitempty"`
}

// TaskStates lists the tasks, the oldest first.
func (r *Region) TaskStates() []TaskState {
	list := []TaskState{}
	for _, t := range r.tasks {
		list = append(list, t.Export())
	}
	return list
}

// Export returns the task as it is.
func (t *Task) Export() TaskState {
	st := TaskState{
		ID: t.ID, Disk: t.Change.Disk.ID, From: t.Change.From.String(), To: t.Change.To.String(), Status: t.Status, Created: t.Created,
	}
	if !t.Finished.IsZero() {
		finished := t.Finished
		st.Finished = &finished
	}
	return st
}
