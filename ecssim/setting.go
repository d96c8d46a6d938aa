package ecssim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/topodisk/topodisk/ecssim/actions"
	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/state"
)

// Setting is one behaviour that sources disagree on, or that differs from
// account to account: a field of Config whose values are written as text. The
// flags of ecs-simulator, the facts and their page share this table.
type Setting struct {
	Name    string   // of the flag without its dashes, and in reports
	Field   string   // of Config, such as Doubts.InUseCode
	Values  []string // that are allowed; of a list, its elements
	List    bool     // any of Values, joined by commas, or "none"
	Means   string
	Default string

	get func(*Config) string
	set func(*Config, string)
}

// none is the value of a list without elements.
const none = "none"

// Get returns the value that a Config has.
func (s Setting) Get(c Config) string { return s.get(&c) }

// Set puts a value into a Config. "+x" and "-x" add an element to a list and
// take one out. The error is a *ConfigError.
func (s Setting) Set(c *Config, value string) error {
	if s.List {
		elements, err := s.elements(s.get(c), value)
		if err != nil {
			return err
		}
		value = strings.Join(elements, ",")
	} else if !slices.Contains(s.Values, value) {
		return config.Invalid(s.Field, value, s.Allowed())
	}
	s.set(c, value)
	return nil
}

// Allowed says which values there are.
func (s Setting) Allowed() string {
	if s.List {
		return none + " or a list of " + config.List(s.Values)
	}
	return config.OneOf(s.Values)
}

// elements reads the value of a list, or a change of the present one.
func (s Setting) elements(now, value string) ([]string, error) {
	list := splitList(value)
	change := value[:min(1, len(value))]
	if change == "+" || change == "-" {
		list = []string{value[1:]}
	}
	for _, e := range list {
		if !slices.Contains(s.Values, e) {
			return nil, config.Invalid(s.Field, e, s.Allowed())
		}
	}
	switch change {
	case "+":
		list = append(splitList(now), list...)
	case "-":
		list = slices.DeleteFunc(splitList(now), func(e string) bool { return e == list[0] })
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// splitList returns the elements of a list's value.
func splitList(value string) []string {
	if value == "" || value == none {
		return []string{}
	}
	return strings.Split(value, ",")
}

// Settings returns all settings, those of Doubts first.
func Settings() []Setting {
	list := []Setting{
		choice("in-use-code", "Doubts.InUseCode", actions.InUseCodes, "the code of AttachDisk for a disk that is In_use",
			func(c *Config) *string { return &c.Doubts.InUseCode }),
		choice("detached-code", "Doubts.DetachedCode", actions.DetachedCodes, "the code of DetachDisk for a disk that is attached to nothing",
			func(c *Config) *string { return &c.Doubts.DetachedCode }),
		conflictStatus(),
		truth("refuse-attach-while-detaching", "Doubts.RefuseAttachWhileDetaching", "AttachDisk refuses a disk that is Detaching from the same instance, with IncorrectDiskStatus; otherwise it accepts the call, without effect",
			func(c *Config) *bool { return &c.Doubts.RefuseAttachWhileDetaching }),
		truth("hide-detaching", "Doubts.HideDetaching", "DescribeDisks leaves the instance of a disk that is Detaching out of its Attachments",
			func(c *Config) *bool { return &c.Doubts.HideDetaching }),
		truth("list-attaching", "Doubts.ListAttaching", "DescribeDisks names the instance of a disk that is Attaching in its Attachments",
			func(c *Config) *bool { return &c.Doubts.ListAttaching }),
		truth("refuse-less-than-snapshot", "Doubts.RefuseLessThanSnapshot", "CreateDisk refuses a Size below that of the snapshot, with InvalidDiskSize.TooSmall; otherwise the disk has the snapshot's size",
			func(c *Config) *bool { return &c.Doubts.RefuseLessThanSnapshot }),
		list("snapshot-unattached", "Doubts.SnapshotUnattached", slices.Sorted(maps.Keys(state.Categories)), "the categories of which CreateSnapshot accepts a disk that was never attached",
			func(c *Config) *[]string { return &c.Doubts.SnapshotUnattached }, actions.DefaultUnattached),
		list("refuse-creating", "Doubts.RefuseCreating", actions.CreatingActions, "the actions that refuse a disk that is Creating, with IncorrectDiskStatus",
			func(c *Config) *[]string { return &c.Doubts.RefuseCreating }, nil),
		truth("forgive-unknown-disk", "ForgiveUnknownDisk", "DeleteDisk of a disk that does not exist succeeds; otherwise it is InvalidDiskId.NotFound",
			func(c *Config) *bool { return &c.ForgiveUnknownDisk }),
		truth("forgive-unknown-snapshot", "Doubts.ForgiveUnknownSnapshot", "DeleteSnapshot of a snapshot that does not exist succeeds; otherwise it is InvalidSnapshotId.NotFound",
			func(c *Config) *bool { return &c.Doubts.ForgiveUnknownSnapshot }),
		truth("no-task-for-level", "Doubts.NoTaskForLevel", "ModifyDiskSpec that keeps the category takes effect immediately and returns no TaskId",
			func(c *Config) *bool { return &c.Doubts.NoTaskForLevel }),
		truth("refuse-shared-online-resize", "Doubts.RefuseSharedOnlineResize", "ResizeDisk refuses Type=online for a disk with MultiAttach",
			func(c *Config) *bool { return &c.Doubts.RefuseSharedOnlineResize }),
		choice("resize-limit-code", "Doubts.ResizeLimitCode", actions.ResizeLimitCodes, "the code of ResizeDisk for a size that no disk of the category has; the second stands for InvalidDiskSize.TooSmall, too",
			func(c *Config) *string { return &c.Doubts.ResizeLimitCode }),
		truth("unknown-key-is-400", "Doubts.UnknownKeyIs400", "InvalidAccessKeyId.NotFound has status 400; otherwise 404",
			func(c *Config) *bool { return &c.Doubts.UnknownKeyIs400 }),
		choice("tags-as", "Doubts.TagsAs", actions.TagForms, "the names that tags have in the replies of Describe actions",
			func(c *Config) *string { return &c.Doubts.TagsAs }),
		truth("bind-failed-tokens", "BindFailedTokens", "a refused call uses up its ClientToken",
			func(c *Config) *bool { return &c.BindFailedTokens }),
		queues(),
		choice("sold-out-code", "SoldOutCode", state.SoldOutCodes, "the code of CreateDisk when a category is sold out",
			func(c *Config) *string { return &c.SoldOutCode }),
		choice("throttle-code", "Throttle.Code", faults.ThrottleCodes, "the code of a call beyond its limit",
			func(c *Config) *string { return &c.Throttle.Code }),
	}
	for i := range list {
		list[i].Default = list[i].Get(Config{})
	}
	return list
}

// choice is a setting of one of some values, the first by default.
func choice(name, field string, values []string, means string, at func(*Config) *string) Setting {
	return Setting{
		Name: name, Field: field, Values: values, Means: means,
		get: func(c *Config) string { return cmp.Or(*at(c), values[0]) },
		set: func(c *Config, value string) { *at(c) = value },
	}
}

// truth is a setting that is false by default.
func truth(name, field, means string, at func(*Config) *bool) Setting {
	return Setting{
		Name: name, Field: field, Values: []string{"false", "true"}, Means: means,
		get: func(c *Config) string { return strconv.FormatBool(*at(c)) },
		set: func(c *Config, value string) { *at(c) = value == "true" },
	}
}

// list is a setting of any of some values; nil stands for the default.
func list(name, field string, values []string, means string, at func(*Config) *[]string, fallback []string) Setting {
	return Setting{
		Name: name, Field: field, Values: values, List: true, Means: means,
		get: func(c *Config) string {
			now := *at(c)
			if now == nil {
				now = fallback
			}
			return cmp.Or(strings.Join(now, ","), none)
		},
		set: func(c *Config, value string) { *at(c) = splitList(value) },
	}
}

func conflictStatus() Setting {
	return Setting{
		Name: "conflict-status", Field: "Doubts.ConflictStatus", Values: []string{"403", "409"}, Means: "the HTTP status of InvalidOperation.Conflict",
		get: func(c *Config) string { return strconv.Itoa(cmp.Or(c.Doubts.ConflictStatus, 403)) },
		set: func(c *Config, value string) { c.Doubts.ConflictStatus, _ = strconv.Atoi(value) },
	}
}

func queues() Setting {
	return Setting{
		Name: "queues", Field: "Queues", Values: actions.QueueProfiles, Means: "how many disks an instance attaches and detaches at a time: one of either, or 32 and 5",
		get: func(c *Config) string {
			switch c.Queues {
			case actions.Serial:
				return "serial"
			case actions.Parallel:
				return "parallel"
			}
			return fmt.Sprintf("%d and %d", c.Queues.Attach, c.Queues.Detach)
		},
		set: func(c *Config, value string) { c.Queues, _ = actions.QueueProfile(value) },
	}
}

// checkDoubts checks the values of Doubts, and fills the lists in that have a
// default.
func (c *Config) checkDoubts() error {
	for _, s := range Settings() {
		if !strings.HasPrefix(s.Field, "Doubts.") {
			continue
		}
		if err := s.Set(c, s.Get(*c)); err != nil {
			return err
		}
	}
	return nil
}

// live tells whether a setting can be changed while the simulator runs by
// ChangeSettings. The others are SetStockLevel's and SetThrottle's.
func (s Setting) live() bool { return s.Field != "SoldOutCode" && s.Field != "Throttle.Code" }

// SettingValues returns the settings that ChangeSettings takes, by name.
func (s *Server) SettingValues() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	values := map[string]string{}
	for _, setting := range Settings() {
		if setting.live() {
			values[setting.Name] = setting.Get(s.config)
		}
	}
	return values
}

// ChangeSettings changes settings by name, all of them or, with a
// *ConfigError, none.
func (s *Server) ChangeSettings(values map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, names := s.config, []string{}
	for _, setting := range Settings() {
		if !setting.live() {
			continue
		}
		names = append(names, setting.Name)
		if value, ok := values[setting.Name]; ok {
			if err := setting.Set(&changed, value); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(names, name) {
			return config.Invalid("settings", name, config.OneOf(names))
		}
	}
	s.config = changed
	s.service.Rules = changed.rules()
	return nil
}
