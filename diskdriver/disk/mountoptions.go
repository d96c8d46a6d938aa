package disk

import (
	"math"
	"slices"
	"strings"
	"unicode"
)

// mountRow are options of mount, with a value or alone.
func mountRow(filesystems []string, takes values, names ...string) []Option {
	return inList(filesystems, "", takes, names...)
}

var anyFilesystem = Filesystems()

// mountOptions are the options of mount that a class may set. None names a file or a device, mounts something else or lets an error
// stop the node; norecovery and noload aren't there because a file system without its journal's changes isn't whole.
var mountOptions = slices.Concat(
	mountRow(anyFilesystem, nil, "_netdev", "async", "atime", "bsdgroups", "defaults", "dev", "diratime", "dirsync", "discard", "exec", "grpid",
		"grpquota", "iversion", "lazytime", "noatime", "nodev", "nodiratime", "nodiscard", "noexec", "nofail", "nogrpid", "noiversion",
		"nolazytime", "noquota", "norelatime", "nostrictatime", "nosuid", "quota", "relatime", "ro", "rw", "seclabel", "strictatime", "suid",
		"sync", "sysvgroups", "usrquota"),
	mountRow(anyFilesystem, selinuxContext, "context", "defcontext", "fscontext", "rootcontext"),

	mountRow(ext3And4, nil, "acl", "block_validity", "bsddf", "i_version", "minixdf", "no_mbcache", "noacl", "noauto_da_alloc", "nobarrier",
		"noblock_validity", "noinit_itable", "nombcache", "nouser_xattr", "user_xattr"),
	mountRow(onlyExt4, nil, "delalloc", "dioread_lock", "dioread_nolock", "inlinecrypt", "journal_async_commit", "journal_checksum",
		"no_prefetch_block_bitmaps", "nodelalloc", "nodioread_nolock", "nojournal_checksum", "prefetch_block_bitmaps"),
	orAbsent("default", mountRow(ext3And4, onOff, "auto_da_alloc", "barrier")),
	mountRow(ext3And4, number{0, 86400, false, false}, "commit"),
	mountRow(ext3And4, oneOf{"journal", "ordered", "writeback"}, "data"),
	mountRow(ext3And4, oneOf{"abort", "ignore"}, "data_err"),
	mountRow(ext3And4, oneOf{"continue", "remount-ro"}, "errors"),
	orAbsent("default", mountRow(ext3And4, number{0, 1000, false, false}, "init_itable")),
	mountRow(ext3And4, number{1, 1 << 30, false, true}, "inode_readahead_blks"),
	mountRow(ext3And4, number{0, 7, false, false}, "journal_ioprio"),
	mountRow(ext3And4, number{0, 60000000, false, false}, "max_batch_time", "min_batch_time"),
	mountRow(ext3And4, number{0, math.MaxInt32, false, false}, "max_dir_size_kb", "resgid", "resuid", "stripe"),
	mountRow(onlyExt4, onOff, "mb_optimize_scan"),
	orAbsent("default", mountRow(ext4AndXFS, oneOf{"always", "inode", "never"}, "dax")),
	mountRow(ext4AndXFS, nil, "prjquota"),

	mountRow(onlyXFS, nil, "attr2", "filestreams", "gqnoenforce", "gquota", "ikeep", "inode32", "inode64", "largeio", "noalign", "noattr2",
		"noikeep", "nolargeio", "nouuid", "pqnoenforce", "pquota", "qnoenforce", "swalloc", "uqnoenforce", "uquota", "wsync"),
	mountRow(onlyXFS, number{4096, 1 << 30, true, true}, "allocsize"),
	mountRow(onlyXFS, number{2, 8, false, false}, "logbufs"),
	mountRow(onlyXFS, number{16 << 10, 256 << 10, true, true}, "logbsize"),
	mountRow(onlyXFS, number{0, math.MaxInt32, false, false}, "sunit", "swidth"),
)

// MountOptions returns the options of mount that a class may set.
func MountOptions() []Option { return slices.Clone(mountOptions) }

// barredMounts name a file or a device, or mount something else than the volume's device as a whole. One that ends in - or . is barred
// with whatever follows.
var barredMounts = []string{
	"bind", "encryption", "grpjquota", "helper", "journal", "journal_dev", "journal_path", "logdev", "loop", "move", "offset", "rbind", "remount",
	"rtdev", "sb", "sizelimit", "source", "uhelper", "usrjquota", "verity.", "X-", "x-",
}

// isBarredMount says whether an option of mount names a file or a device, or mounts something else.
func isBarredMount(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	return strings.Contains(option, "/") || slices.ContainsFunc(barredMounts, func(barred string) bool {
		return name == barred || strings.ContainsAny(barred[len(barred)-1:], "-.") && strings.HasPrefix(name, barred)
	})
}

// BarMountOption refuses, Invalid, what no volume may be mounted with, however old it is: several options in one, those that name a
// file or a device or mount something else and, unless the operator allows them, those that let an error stop the node or the file
// system be dead from the start.
func BarMountOption(option string, allowed AllowedOptions) error {
	name, value, _ := strings.Cut(option, "=")
	o, known := mountOption("", name)
	switch {
	case known && o.takes == selinuxContext:
		if _, ok := o.takes.read(value); !ok {
			return Errorf(Invalid, "%s is not allowed; allowed: %s", quoted(option), o.Values())
		}
	case option == "" || hasSeparator(option):
		return Errorf(Invalid, "%s is not allowed: allowed is one option, with no comma, quote, space or line break", quoted(option))
	case isBarredMount(option):
		return Errorf(Invalid, "%s is not allowed: no option may name a file or a device, or mount something else", quoted(option))
	case (option == "errors=panic" || name == "abort") && !allowed.hasMount(option):
		return Errorf(Invalid, "%s is not allowed, for it stops the node or the file system; allowed are errors=continue, errors=remount-ro", quoted(option))
	}
	return nil
}

// hasSeparator says whether a text may be more than one option to a program or the kernel.
func hasSeparator(option string) bool {
	return strings.ContainsAny(option, `,"'\`) || strings.ContainsFunc(option, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) })
}

// LongestMountOption and MostMountOptions are how long an option of mount of a new volume may be, in bytes, and how many there may be.
const (
	LongestMountOption = 256
	MostMountOptions   = 50
)

// CheckMountOption refuses, Invalid, what BarMountOption does, and every option that is neither on the list for the file system nor
// allowed by the operator. The error names the option and what is allowed. An empty file system stands for any.
func CheckMountOption(filesystem, option string, allowed AllowedOptions) error {
	if err := BarMountOption(option, allowed); err != nil {
		return err
	}
	if len(option) > LongestMountOption {
		return tooLongError(option, LongestMountOption)
	}
	if allowed.hasMount(option) {
		return nil
	}
	name, value, given := strings.Cut(option, "=")
	o, known := mountOption(filesystem, name)
	switch {
	case !known:
		return Errorf(Invalid, "%s is not allowed%s; allowed are the options that docs/parameters.md lists, and those of --allow-mount-option",
			quoted(option), of(filesystem))
	case given && o.takes == nil:
		return Errorf(Invalid, "%s is not allowed: %s takes no value", quoted(option), name)
	case !given && (o.takes == nil || o.absent != ""):
		return nil
	}
	if _, ok := o.takes.read(value); !ok {
		return Errorf(Invalid, "%s is not allowed; allowed: %s", quoted(option), o.Values())
	}
	return nil
}

func of(filesystem string) string {
	if filesystem == "" {
		return ""
	}
	return " for " + filesystem
}

// mountOption finds an option of a file system, or of any.
func mountOption(filesystem, name string) (Option, bool) {
	i := slices.IndexFunc(mountOptions, func(o Option) bool { return o.Name == name && (filesystem == "" || o.Has(filesystem)) })
	if i < 0 {
		return Option{}, false
	}
	return mountOptions[i], true
}
