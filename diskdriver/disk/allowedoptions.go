package disk

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// AllowedOptions are options of mkfs and mount that the operator allows beyond those of the lists. They are passed on as a class has
// them, so the operator answers for what they do. None can name a file, a directory or a device.
type AllowedOptions struct {
	mkfs  []mkfsSetting // with a value: that one alone
	mount []string
}

var (
	mkfsEntryForm  = regexp.MustCompile(`^-[A-Za-z]( [A-Za-z0-9_.:^=+-]+)?$`)
	mountEntryForm = regexp.MustCompile(`^[A-Za-z0-9_.-]+(=[A-Za-z0-9_.:+-]+)?$`)
)

// ParseAllowedOptions understands entries such as "-E packed_meta_blocks", "-O mmp" or "-g" of the flag --allow-mkfs-option, and
// such as "norecovery" of the flag --allow-mount-option. An entry without a value allows all of them. The error names the flag and the
// entry.
func ParseAllowedOptions(mkfs, mount []string) (AllowedOptions, error) {
	var a AllowedOptions
	for _, entry := range mkfs {
		if !mkfsEntryForm.MatchString(entry) {
			return a, fmt.Errorf("--allow-mkfs-option=%q is not allowed: allowed is a flag, or a flag and one setting of letters, digits and _.:^=+-, such as %q", entry, "-E packed_meta_blocks")
		}
		flag, text, _ := strings.Cut(entry, " ")
		if !namesNoFile(flag, text) {
			return a, fmt.Errorf("--allow-mkfs-option=%q is not allowed: no option may name a file, a directory or a device", entry)
		}
		a.mkfs = append(a.mkfs, mkfsSetting{flag: flag, value: text})
	}
	for _, entry := range mount {
		if !mountEntryForm.MatchString(entry) {
			return a, fmt.Errorf("--allow-mount-option=%q is not allowed: allowed is a name, or a name and a value of letters, digits and _.:+-, such as %q", entry, "norecovery")
		}
		if isBarredMount(entry) {
			return a, fmt.Errorf("--allow-mount-option=%q is not allowed: no option may name a file or a device, or mount something else", entry)
		}
		a.mount = append(a.mount, entry)
	}
	return a, nil
}

// namesNoFile says whether a setting names no file in some mkfs that knows the flag.
func namesNoFile(flag, text string) bool {
	name, _, _ := strings.Cut(text, "=")
	for _, filesystem := range Filesystems() {
		p := programs[filesystem]
		known := strings.Contains(p.alone+p.valued, flag[1:])
		if known && !strings.Contains(p.files, flag[1:]) && (text == "" || !strings.Contains(p.others[flag], " "+name+" ")) {
			return true
		}
	}
	return false
}

// hasMkfs says whether a setting of mkfs is allowed.
func (a AllowedOptions) hasMkfs(s mkfsSetting) bool {
	return slices.ContainsFunc(a.mkfs, func(allowed mkfsSetting) bool {
		return allowed.flag == s.flag && (allowed.value == "" || allowed.value == s.text() || s.name != "" && allowed.value == s.name)
	})
}

// hasMount says whether an option of mount is allowed.
func (a AllowedOptions) hasMount(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	return slices.Contains(a.mount, option) || slices.Contains(a.mount, name)
}
