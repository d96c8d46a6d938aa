package params

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/golden"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const parametersPage = "../../docs/parameters.md"

// TestTheParametersPageIsCurrent holds docs/parameters.md against the tables
// that read parameters.
func TestTheParametersPageIsCurrent(t *testing.T) {
	golden.Page(t, parametersPage, parametersText())
}

// TestTheChineseParametersPageIsCurrent holds docs/zh/parameters.md against the same tables, and testdata/zh.yaml.
func TestTheChineseParametersPageIsCurrent(t *testing.T) {
	golden.ChinesePage(t, "../../docs/zh/parameters.md", parametersText(), "testdata/zh.yaml", "Rule", "File systems")
}

func TestEveryParameterSaysWhatItMeans(t *testing.T) {
	checkUses(t, "StorageClass", classKeys)
	checkUses(t, "VolumeAttributesClass", mutableKeys)
	checkUses(t, "VolumeSnapshotClass", snapshotKeys)
	checkUses(t, "VolumeGroupSnapshotClass", groupKeys)
}

func checkUses[P any](t *testing.T, class string, table keyTable[P]) {
	t.Helper()
	for name, k := range table {
		_, known := table[k.same]
		switch {
		case k.same != "" && !known:
			t.Errorf("%s %s: its other name %s is in no row", class, name, k.same)
		case k.same != "" || k.idle != "" || k.barred != "":
		case k.means == "":
			t.Errorf("%s %s: what it means is not said", class, name)
		case k.by != "" && k.values+k.without+k.rule != "":
			t.Errorf("%s %s: %s writes it, so users need no values", class, name, k.by)
		case k.by == "" && (k.values == "" || k.without == "" || k.rule == ""):
			t.Errorf("%s %s: the values, what holds without it or the rule's source are not said: %+v", class, name, k.use)
		}
	}
}

const parametersIntro = `# Parameters

<!-- Made from the tables in diskdriver/params that read the parameters, by make docs-update. -->

This page lists every parameter that disk-driver knows, by class. [storageclass.md](storageclass.md) says how to use them, and
describes those that disk-provisioner reads itself.

Parameters are checked strictly. With an unknown name or a bad value no disk is created: the error names the parameter, its value
and what is allowed. A parameter with an empty value is ignored. With disk-driver's flag
` + "`--unknown-parameters=warn`" + ` unknown names are ignored, with a line in its log. This does not apply to changes of an
existing volume, because a change must be complete. Bad values are always refused.

Yes is ` + "`true`, `t`, `yes`, `1` or `enabled`, no is `false`, `f`, `no`, `0` or `disabled`" + `, in upper or lower case. The last column is the source of
the rule: an action of the ECS API and its field, or a field of CSI.
`

func parametersText() string {
	return parametersIntro +
		section("StorageClass", "", classKeys) +
		section("VolumeAttributesClass", "At creation these override the StorageClass. A change of an existing volume is first tested with a dry run in ECS, so that a\nrefused change has no effect.", mutableKeys) +
		section("VolumeSnapshotClass", "", snapshotKeys) +
		section("VolumeGroupSnapshotClass", "", groupKeys) +
		mkfsOptionsIntro + optionRows(mkfsOptions()) +
		mountOptionsIntro + optionRows(disk.MountOptions()) +
		typesSection()
}

const mkfsOptionsIntro = `
## Options of mkfs

` + "`mkfsOptions`" + ` has options as on the command line of mkfs, such as ` + "`-O project,quota -m 1`" + `. The driver reads each of them, checks its value and
makes a new command line. Options that are not in the table are refused, and so is an option of another file system: no disk is created,
and the error names the option and what is allowed. A number whose range has ` + "`k`, `m`, `g` or `t`" + ` may end in one of these.

Nothing may name a file, a directory or a device. The node plugin refuses to format with such options for volumes that are older than
this list, too; with other options it formats them, and logs a warning. disk-driver's flag ` + "`--allow-mkfs-option`" + ` (chart:
` + "`allowMkfsOptions`" + `) allows more, such as ` + "`-E packed_meta_blocks`" + `. These are passed to mkfs unchecked.
`

const mountOptionsIntro = `
## Mount options

A StorageClass has these in its field ` + "`mountOptions`" + `, each as an element of its own. Others are refused when a volume is created.

No option may name a file or a device, mount something else than the disk as a whole, or let an error stop the node: ` + "`logdev`, `rtdev`,\n`journal_path`, `usrjquota`, `grpjquota`, `loop`, `offset`, `bind`, `remount`, `sb`, `errors=panic`, `abort`" + ` and similar ones. The node plugin refuses them
for volumes that are older than this list, too; it mounts with other options, and logs a warning. disk-driver's flag
` + "`--allow-mount-option`" + ` (chart: ` + "`allowMountOptions`" + `) allows more, such as ` + "`norecovery`" + `, and ` + "`errors=panic`" + `. These are passed to mount
unchecked. Whether a kernel takes an option depends on its version and configuration.
`

// mkfsOptions are the options of mkfs of all file systems.
func mkfsOptions() (all []disk.Option) {
	seen := map[string]bool{}
	for _, filesystem := range []string{"ext4", "ext3", "xfs"} {
		for _, o := range disk.MkfsOptionsOf(filesystem) {
			if key := filesystemsOf(o) + o.Flag + o.Name; !seen[key] {
				seen[key] = true
				all = append(all, o)
			}
		}
	}
	return all
}

func filesystemsOf(o disk.Option) string {
	return strings.Join(slices.DeleteFunc(disk.Filesystems(), func(f string) bool { return !o.Has(f) }), ", ")
}

// optionRows is a table of options, with one row for all that differ in nothing but their names.
func optionRows(options []disk.Option) string {
	type kind struct{ filesystems, flag, values string }
	var kinds []kind
	names := map[kind][]string{}
	for _, o := range options {
		plain, off := strings.CutPrefix(o.Name, "^")
		if off {
			continue
		}
		values := o.Values()
		for _, word := range o.Words() {
			values = strings.Replace(values, word, "`"+word+"`", 1)
		}
		if slices.ContainsFunc(options, func(other disk.Option) bool { return other.Flag == o.Flag && other.Name == "^"+plain }) {
			values = "no value; with `^` before it the feature is switched off"
		}
		k := kind{filesystemsOf(o), o.Flag, values}
		if names[k] == nil {
			kinds = append(kinds, k)
		}
		names[k] = append(names[k], "`"+strings.TrimSpace(o.Flag+" "+plain)+"`")
	}
	rank := func(k kind) int {
		return slices.IndexFunc([]string{"ext3, ext4, xfs", "ext", ""}, func(prefix string) bool { return strings.HasPrefix(k.filesystems, prefix) })
	}
	slices.SortStableFunc(kinds, func(a, b kind) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(strings.ToLower(a.flag), strings.ToLower(b.flag)))
	})
	var lines []string
	for _, k := range kinds {
		slices.Sort(names[k])
		lines = append(lines, row(strings.Join(names[k], ", "), k.filesystems, k.values))
	}
	return rows("", lines, "Option", "File systems", "Values")
}

// section has a table for each fate that a parameter can have.
func section[P any](class, intro string, table keyTable[P]) string {
	var does, written, idle, barred []string
	for _, name := range slices.Sorted(maps.Keys(table)) {
		switch k := table[name]; {
		case k.same != "":
		case k.barred != "":
			barred = append(barred, row(names(table, name), k.barred))
		case k.idle != "":
			idle = append(idle, row(names(table, name), k.idle))
		case k.by != "":
			written = append(written, row(names(table, name), k.means, k.by))
		default:
			does = append(does, row(names(table, name), k.means, k.values, k.without, k.rule))
		}
	}
	text := "\n## " + class + "\n"
	if intro != "" {
		text += "\n" + intro + "\n"
	}
	return text +
		rows("", does, "Parameter", "Meaning", "Values", "Without it", "Rule") +
		rows("Refused, each with what to do instead:", barred, "Parameter", "Why") +
		rows("Accepted without effect; the log says so:", idle, "Parameter", "Why") +
		rows("Written by a sidecar, not by you:", written, "Parameter", "Meaning", "Written by")
}

// names is a parameter's name and those that mean the same.
func names[P any](table keyTable[P], name string) string {
	all := []string{"`" + table[name].written(name) + "`"}
	for _, other := range slices.Sorted(maps.Keys(table)) {
		if table[other].same == name {
			all = append(all, "`"+other+"`")
		}
	}
	return strings.Join(all, ", ")
}

func typesSection() string {
	var does, barred []string
	for _, c := range disk.KnownCategories() {
		t, _ := c.Traits()
		if t.Barred != "" {
			barred = append(barred, row("`"+string(c)+"`", t.Barred))
			continue
		}
		does = append(does, row("`"+string(c)+"`", sizesOf(t), traitsOf(t)))
	}
	return "\n## Disk types\n" +
		rows("", does, "Type", "Size", "Supports") +
		rows("Not supported:", barred, "Type", "Why") +
		"\nFile systems are " + strings.Join(disk.Filesystems(), ", ") + ". The size of a disk is a whole number of GiB.\n"
}

func sizesOf(t disk.Traits) string {
	if t.Levels == nil {
		return t.Size.String()
	}
	var words []string
	for _, level := range slices.Sorted(maps.Keys(t.Levels)) {
		words = append(words, fmt.Sprintf("%s: %s", level, t.Levels[level]))
	}
	return strings.Join(words, "; ")
}

func traitsOf(t disk.Traits) string {
	var words []string
	for word, has := range map[string]bool{
		"`performanceLevel`": t.Levels != nil, "`provisionedIops`": t.IOPS, "`burstingEnabled`": t.Bursting, "`multiAttach`": t.MultiAttach,
		"every zone of the region": t.Regional,
	} {
		if has {
			words = append(words, word)
		}
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// rows is a table with its heading, or nothing if it has no rows.
func rows(heading string, rows []string, columns ...string) string {
	if len(rows) == 0 {
		return ""
	}
	text := "\n"
	if heading != "" {
		text += heading + "\n\n"
	}
	return text + row(columns...) + strings.Repeat("|---", len(columns)) + "|\n" + strings.Join(rows, "")
}

func row(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }
