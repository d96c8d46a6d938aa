package disk

import (
	"math"
	"slices"
	"strings"
)

// Option is an option of mkfs or of mount that a StorageClass may set.
type Option struct {
	Flag        string   // of mkfs, such as -E; none of an option of mount
	Name        string   // of the setting in the flag's list, or of the option of mount; none if the flag is no list
	filesystems []string // that have it
	takes       values   // nil: it takes no value
	absent      string   // what the option means without a value; empty: a value is required
	idle        bool     // taken, and never passed on
}

// Has says whether a file system has the option.
func (o Option) Has(filesystem string) bool { return slices.Contains(o.filesystems, filesystem) }

// Values says which values are allowed.
func (o Option) Values() string {
	switch {
	case o.idle:
		return "no effect: the driver formats by force, with an internal log, and never discards"
	case o.takes == nil:
		return "no value"
	case o.absent != "":
		return o.takes.String() + ", or no value"
	}
	return o.takes.String()
}

// Words returns the values that are allowed, if they are a list of words.
func (o Option) Words() []string {
	words, _ := o.takes.(oneOf)
	return slices.Clone(words)
}

// Pattern is a regular expression (RE2) that matches the option's name and value in each way that is allowed.
func (o Option) Pattern() string {
	pattern := strings.ReplaceAll(o.Name, ".", "[.]")
	pattern = strings.ReplaceAll(pattern, "^", `\^`)
	switch {
	case o.takes == nil:
		return pattern
	case o.Name == "":
		return o.takes.pattern()
	case o.absent != "":
		return pattern + "(?:=" + o.takes.pattern() + ")?"
	}
	return pattern + "=" + o.takes.pattern()
}

var (
	ext3And4   = []string{"ext3", "ext4"}
	onlyExt4   = []string{"ext4"}
	onlyXFS    = []string{"xfs"}
	ext4AndXFS = []string{"ext4", "xfs"}
)

// program is how a mkfs reads its command line (getopt).
type program struct {
	filesystem, name string
	alone            string            // flags without a value
	valued           string            // flags with one
	lists            string            // of these, those whose value is a list of settings, separated by commas
	files            string            // of these, those whose value is a file or a directory
	others           map[string]string // settings that name a file or a device, by flag: names between spaces
}

// programs are mkfs.ext3 and mkfs.ext4 of e2fsprogs 1.47 and mkfs.xfs of xfsprogs 6.1. Later ones have no other flags that name files.
var programs = map[string]program{
	"ext3": ext("ext3"), "ext4": ext("ext4"),
	"xfs": {
		filesystem: "xfs", name: "mkfs.xfs", alone: "CfKNqV", valued: "bcdilLmnprs", lists: "bcdilmnrs", files: "cpr",
		others: map[string]string{"-d": " name file ", "-l": " logdev name file internal "},
	},
}

func ext(filesystem string) program {
	return program{
		filesystem: filesystem, name: "mkfs." + filesystem, alone: "cDFjKnqSvV", valued: "bCdeEgGiIJlLmMNoOrRstTUz", lists: "EJOR", files: "dlz",
		others: map[string]string{"-J": " device "},
	}
}

// oneFlag is a flag of mkfs that is no list: with one value, or alone.
func oneFlag(filesystems []string, flag string, takes values) Option {
	return Option{filesystems: filesystems, Flag: flag, takes: takes}
}

// inList is a setting in the list that a flag takes; several settings have one row.
func inList(filesystems []string, flag string, takes values, names ...string) (all []Option) {
	for _, name := range names {
		all = append(all, Option{filesystems: filesystems, Flag: flag, Name: name, takes: takes})
	}
	return all
}

// orAbsent has options take no value, too, and mean something then.
func orAbsent(means string, all []Option) []Option {
	for i := range all {
		all[i].absent = means
	}
	return all
}

// switches are settings that are on or off, and on without a value.
func switches(filesystems []string, flag string, names ...string) []Option {
	return orAbsent("1", inList(filesystems, flag, onOff, names...))
}

// features are settings of -O, and each with ^ before it to switch it off.
func features(filesystems []string, names ...string) (all []Option) {
	for _, name := range names {
		all = append(all, inList(filesystems, "-O", nil, name, "^"+name)...)
	}
	return all
}

const mostBlocks = math.MaxUint32

// journalFeature can't be switched off: without a journal nothing makes a file system whole after a node has died.
const journalFeature = "has_journal"

// mkfsOptions are the options of mkfs that a class may set. None names a file or a device, and none makes a file system that its
// kernel can't mount for writing and the driver not repair: so no ^has_journal, journal_dev or read-only. One that gives every
// volume of a class the same identity (-U) isn't there either.
var mkfsOptions = slices.Concat(
	[]Option{
		oneFlag(ext3And4, "-b", number{1024, 4096, true, true}),
		oneFlag(onlyExt4, "-C", number{2048, 256 << 20, true, true}),
		oneFlag(ext3And4, "-e", oneOf{"continue", "remount-ro"}),
		oneFlag(onlyExt4, "-G", number{1, 65536, false, true}),
		oneFlag(ext3And4, "-i", number{1024, 64 << 20, true, false}),
		oneFlag(ext3And4, "-I", number{128, 4096, true, true}),
		oneFlag(ext3And4, "-j", nil),
		{filesystems: ext3And4, Flag: "-F", idle: true}, // the driver adds it
		{filesystems: ext3And4, Flag: "-K", idle: true}, // is -E nodiscard, which the driver adds
		oneFlag(ext3And4, "-L", label(16)),
		oneFlag(ext3And4, "-m", percent{50}),
		oneFlag(ext3And4, "-N", number{16, math.MaxUint32, false, false}),
		oneFlag(ext3And4, "-q", nil),
		oneFlag(ext3And4, "-T", oneOf{"big", "default", "floppy", "huge", "largefile", "largefile4", "news", "small"}),
		oneFlag(ext3And4, "-v", nil),
		{filesystems: ext3And4, Flag: "-E", Name: "discard", idle: true},
		{filesystems: ext3And4, Flag: "-E", Name: "nodiscard"},
	},
	inList(onlyExt4, "-E", oneOf{"utf8", "utf8-12.1"}, "encoding"),
	switches(onlyExt4, "-E", "lazy_itable_init"),
	switches(ext3And4, "-E", "lazy_journal_init"),
	inList(ext3And4, "-E", number{0, 2, false, false}, "num_backup_sb"),
	inList(ext3And4, "-E", number{1, mostBlocks, false, false}, "resize", "stride", "stripe-width", "stripe_width"),
	inList(ext3And4, "-J", number{1, 10240000, false, false}, "size"),
	features(ext3And4, "dir_index", "ext_attr", "filetype", "large_file", "resize_inode", "sparse_super", "sparse_super2"),
	features(onlyExt4, "64bit", "bigalloc", "casefold", "dir_nlink", "ea_inode", "encrypt", "extent", "extents", "extra_isize", "fast_commit",
		"flex_bg", "huge_file", "inline_data", "large_dir", "meta_bg", "metadata_csum", "metadata_csum_seed", "orphan_file", "project", "quota",
		"stable_inodes", "uninit_bg", "verity"),
	inList(ext3And4, "-O", nil, journalFeature),

	[]Option{
		{filesystems: onlyXFS, Flag: "-f", idle: true}, // the driver adds it
		{filesystems: onlyXFS, Flag: "-K"},
		oneFlag(onlyXFS, "-L", label(12)),
		oneFlag(onlyXFS, "-q", nil),
	},
	inList(onlyXFS, "-b", number{1024, 65536, true, true}, "size"),
	inList(onlyXFS, "-d", number{1, 1000000, false, false}, "agcount"),
	inList(onlyXFS, "-d", number{16 << 20, 1 << 40, true, false}, "agsize"),
	inList(onlyXFS, "-d", number{0, math.MaxUint32, false, false}, "cowextsize", "extszinherit", "sunit", "swidth"),
	switches(onlyXFS, "-d", "daxinherit", "noalign"),
	inList(onlyXFS, "-d", number{512, 32768, true, true}, "sectsize"),
	inList(onlyXFS, "-d", number{0, 1 << 30, true, false}, "su"),
	inList(onlyXFS, "-d", number{1, 65536, false, false}, "sw"),
	switches(onlyXFS, "-i", "align", "nrext64", "projid32bit", "sparse"),
	inList(onlyXFS, "-i", number{0, 2, false, false}, "attr"),
	inList(onlyXFS, "-i", number{0, 100, false, false}, "maxpct"),
	inList(onlyXFS, "-i", number{4, 128, false, true}, "perblock"),
	inList(onlyXFS, "-i", number{256, 2048, true, true}, "size"),
	[]Option{{filesystems: onlyXFS, Flag: "-l", Name: "internal", takes: oneOf{"1"}, absent: "1", idle: true}},
	switches(onlyXFS, "-l", "lazy-count"),
	inList(onlyXFS, "-l", number{2 << 20, 2047 << 20, true, false}, "size"),
	inList(onlyXFS, "-l", number{0, 256 << 10, true, false}, "su"),
	inList(onlyXFS, "-l", number{0, 512, false, false}, "sunit"),
	inList(onlyXFS, "-l", number{1, 2, false, false}, "version"),
	switches(onlyXFS, "-m", "bigtime", "crc", "finobt", "inobtcount", "reflink", "rmapbt"),
	switches(onlyXFS, "-n", "ftype"),
	inList(onlyXFS, "-n", number{4096, 65536, true, true}, "size"),
	inList(onlyXFS, "-n", oneOf{"2"}, "version"),
	inList(onlyXFS, "-s", number{512, 32768, true, true}, "size"),
)

// MkfsOptionsOf returns the options of mkfs that a class may set for a file system.
func MkfsOptionsOf(filesystem string) []Option {
	return slices.DeleteFunc(slices.Clone(mkfsOptions), func(o Option) bool { return !o.Has(filesystem) })
}

// MkfsFlags returns the flags that the mkfs of a file system knows and that name no file, allowed or not: those without a value, those
// with one, and of these those with a list of settings.
func MkfsFlags(filesystem string) (alone, valued, lists string) {
	p := programs[filesystem]
	noFile := func(flag rune) rune {
		if strings.ContainsRune(p.files, flag) {
			return -1
		}
		return flag
	}
	return p.alone, strings.Map(noFile, p.valued), strings.Map(noFile, p.lists)
}

// mkfsOption finds an option of a file system.
func mkfsOption(filesystem, flag, name string) (Option, bool) {
	i := slices.IndexFunc(mkfsOptions, func(o Option) bool { return o.Flag == flag && o.Name == name && o.Has(filesystem) })
	if i < 0 {
		return Option{}, false
	}
	return mkfsOptions[i], true
}

// flags lists the flags that a class may set.
func (p program) flags() string {
	var flags []string
	for _, o := range MkfsOptionsOf(p.filesystem) {
		flags = append(flags, o.Flag)
	}
	slices.Sort(flags)
	return strings.Join(slices.Compact(flags), ", ")
}

// names lists the settings that a class may have in the list of a flag.
func (p program) names(flag string) string {
	var names []string
	for _, o := range MkfsOptionsOf(p.filesystem) {
		if o.Flag == flag && !strings.HasPrefix(o.Name, "^") {
			names = append(names, o.Name)
		}
	}
	slices.Sort(names)
	if flag == "-O" {
		return strings.Join(names, ", ") + ", and any but " + journalFeature + " with ^ before it"
	}
	return strings.Join(names, ", ")
}
