package params

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// space is what separates the words of mkfsOptions (strings.Fields).
const space = `[\s\p{Z}\x{0b}\x{85}]`

// mkfsPattern is a regular expression for all options of mkfs that a class may have for a file system. The chart puts what the
// operator allows in place of the marks: of <item -E> what the list of a flag may have, of <flag -D> a flag without a value, and of
// <value -g> one with a value.
func mkfsPattern(filesystem string) string {
	alone, items := "", map[string][]string{}
	var flags []string
	for _, o := range disk.MkfsOptionsOf(filesystem) {
		if o.Name == "" && o.Pattern() == "" {
			alone += o.Flag[1:]
			continue
		}
		if items[o.Flag] == nil {
			flags = append(flags, o.Flag)
		}
		items[o.Flag] = append(items[o.Flag], o.Pattern())
	}
	slices.Sort(flags)
	knownAlone, valued, lists := disk.MkfsFlags(filesystem)
	words := []string{"[" + alone + "]+"}
	for _, flag := range flags {
		letter, value := flag[1:], "(?:"+strings.Join(items[flag], "|")
		if flag == "-E" {
			letter = "[ER]" // the old name
		}
		if strings.Contains(lists, flag[1:]) {
			value += "<item " + flag + ">)"
			value += "(?:," + value + ")*"
		} else {
			value += ")"
		}
		words = append(words, "["+alone+"]*"+letter+space+"*"+value)
	}
	pattern := "-(?:" + strings.Join(words, "|") + ")"
	for _, letter := range knownAlone {
		pattern += fmt.Sprintf("<flag -%c>", letter)
	}
	for _, letter := range valued {
		if !strings.ContainsRune(lists, letter) {
			pattern += fmt.Sprintf("<value -%c>", letter)
		}
	}
	return "^" + space + "*(?:(?:" + pattern + ")(?:" + space + "+|$))*$"
}

// mkfsRule says in CEL that VALUE is allowed for the file system of the class, or for any if it names none.
func mkfsRule() string {
	filesystem := "[" + param("csi.storage.k8s.io/fstype") + ", " + param("fsType") + ", " + param("fstype") + "]"
	return fmt.Sprintf("VALUE.size() <= %d && (!('xfs' in %s) && VALUE.matches(r'%s') || !('ext3' in %s || 'ext4' in %s) && VALUE.matches(r'%s'))",
		disk.LongestMkfsOptions, filesystem, mkfsPattern("ext4"), filesystem, filesystem, mkfsPattern("xfs"))
}

// mountPattern is a regular expression for all mount options that a class may have. The chart puts what the operator allows in place
// of <mount>.
func mountPattern() string {
	var patterns []string
	for _, o := range disk.MountOptions() {
		patterns = append(patterns, o.Pattern())
	}
	return "^(?:" + strings.Join(patterns, "|") + "<mount>)$"
}

// mountRule refuses mount options that no class may have.
func mountRule() admissionRule {
	return admissionRule{
		Expression: fmt.Sprintf("variables.mountOptions.size() <= %d && variables.mountOptions.all(o, o.size() <= %d && o.matches(r'%s'))",
			disk.MostMountOptions, disk.LongestMountOption, mountPattern()),
		Message: "mountOptions: allowed are those that docs/parameters.md of topodisk lists",
		Refuses: map[string]string{}, RefusesMounts: []string{"logdev=/dev/vdb"},
	}
}

// compiled is a pattern where the operator allows nothing more.
func compiled(pattern string) *regexp.Regexp {
	return regexp.MustCompile(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(pattern, ""))
}

// The API server refuses nothing that the driver takes, and takes nothing that names a file or a device.
func FuzzAdmissionOfOptionsIsTheDrivers(f *testing.F) {
	for _, text := range []string{
		"-O project,quota -m 1", "-qjb4k", "-FKq", "-R stride=4,discard\u0085-E\u3000lazy_itable_init", "-E stride=4,stripe-width=8 -L data", "-O ^64bit,bigalloc -C 1m",
		"-mreflink=1,bigtime=0", "-f -K -d su=64k,sw=4 -l internal,size=64m -i size=1k,maxpct=5 -n version=2", "-m crc -s size=4k -L a.b-c", "-l logdev=vdb", "-J device=a", "-d pods",
		"-z undo", "-e panic", "-e continue", "vdb", "-m 1 vdb", "-q- a", "-T news -N 4096 -I 256 -G 16 -i 64k",
	} {
		for _, filesystem := range disk.Filesystems() {
			f.Add(filesystem, text)
		}
	}
	patterns := map[string]*regexp.Regexp{"ext3": compiled(mkfsPattern("ext4")), "ext4": compiled(mkfsPattern("ext4")), "xfs": compiled(mkfsPattern("xfs"))}
	mount := compiled(mountPattern())
	f.Fuzz(func(t *testing.T, filesystem, text string) {
		if pattern := patterns[filesystem]; pattern != nil && len(text) <= disk.LongestMkfsOptions {
			_, err := disk.ParseMkfsOptions(filesystem, text, disk.AllowedOptions{})
			if err == nil && !pattern.MatchString(text) {
				t.Errorf("%s: the driver takes %q", filesystem, text)
			}
			if _, _, err := disk.ReadMkfsOptions(filesystem, text, disk.AllowedOptions{}); err != nil && pattern.MatchString(text) {
				t.Errorf("%s: the API server takes %q: %v", filesystem, text, err)
			}
		}
		if disk.CheckMountOption("", text, disk.AllowedOptions{}) == nil && !mount.MatchString(text) {
			t.Errorf("the driver takes the mount option %q", text)
		}
		if err := disk.BarMountOption(text, disk.AllowedOptions{}); err != nil && mount.MatchString(text) {
			t.Errorf("the API server takes the mount option %q: %v", text, err)
		}
	})
}

func TestAdmissionTakesEveryMountOption(t *testing.T) {
	pattern := compiled(mountPattern())
	for _, o := range disk.MountOptions() {
		for _, value := range append(o.Words(), "4096", `"a:b:c:s0:c1,c2"`, "a:b:c:s0", "64k") {
			for _, option := range []string{o.Name, o.Name + "=" + value} {
				if disk.CheckMountOption("", option, disk.AllowedOptions{}) == nil && !pattern.MatchString(option) {
					t.Errorf("%s is refused", option)
				}
			}
		}
	}
}
