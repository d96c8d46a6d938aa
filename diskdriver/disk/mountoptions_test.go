package disk

import (
	"slices"
	"strings"
	"testing"
)

// What guides for EBS, PD, Azure and Alibaba Cloud disks set, and the kubelet.
func TestOptionsOfMountThatPeopleUseAreAllowed(t *testing.T) {
	for filesystem, options := range map[string]string{
		"ext3": "noatime data=writeback commit=30 acl user_xattr errors=remount-ro nodev",
		"ext4": "noatime nodiratime discard nodiscard defaults barrier=0 barrier nobarrier data=ordered data=journal commit=60 journal_async_commit delalloc " +
			"nodelalloc errors=continue errors=remount-ro lazytime relatime ro rw nosuid nodev noexec _netdev nofail prjquota usrquota dax=never dax " +
			"stripe=128 init_itable=10 init_itable inode_readahead_blks=64 max_batch_time=15000 journal_ioprio=3 i_version " +
			`context=system_u:object_r:container_file_t:s0 context="system_u:object_r:container_file_t:s0:c1,c2" context="a_u:b_r:c_t:s0-s0:c0.c1023,c5"`,
		"xfs": "noatime nodiratime discard logbufs=8 logbsize=256k largeio inode64 swalloc prjquota pquota uqnoenforce nouuid allocsize=64m sunit=128 " +
			`swidth=512 noalign filestreams wsync attr2 ro seclabel fscontext="system_u:object_r:container_file_t:s0:c1,c2"`,
	} {
		for option := range strings.FieldsSeq(options) {
			for _, of := range []string{filesystem, ""} {
				if err := CheckMountOption(of, option, AllowedOptions{}); err != nil {
					t.Errorf("%s %s: %v", filesystem, option, err)
				}
			}
		}
	}
}

// barredOptions are options of mount that no volume may have, old or new.
var barredOptions = []string{
	"logdev=/dev/vdb", "rtdev=vdb", "journal_path=/dev/vdb", "journal_dev=0x801", "usrjquota=aquota.user", "grpjquota=aquota.group", "loop", "loop=/dev/loop1",
	"offset=4096", "sizelimit=1", "bind", "rbind", "move", "remount", "sb=131073", "X-mount.mkdir", "x-systemd.requires=a", "helper=a", "uhelper=a",
	"verity.hashdevice=a", "source=vdb", "errors=panic", "abort", "abort=1", "noatime,logdev=vdb", "a b", "a\nb", "", `data="ordered"`, `a\,b`, "unknown=/x",
	`context="a:b:c:s0,logdev=/dev/vdb,c1"`, `context="a:b:c:s0,abort,c1"`, `context="a:b:c:s0:c1,c2",abort`, `context="a:b:c:s0:c1`, "context=a:b:c:s0:c1,c2", "context", "context=",
	`fscontext=/etc`, `context="a:b:c:s0,c1" `,
}

func TestOptionsOfMountThatNameADeviceAreBarred(t *testing.T) {
	for _, option := range barredOptions {
		for _, err := range []error{BarMountOption(option, AllowedOptions{}), CheckMountOption("xfs", option, AllowedOptions{}), CheckMountOption("", option, AllowedOptions{})} {
			if KindOf(err) != Invalid || !strings.Contains(err.Error(), quoted(option)+" is not allowed") || !strings.Contains(err.Error(), "allow") {
				t.Errorf("%q: %v", option, err)
			}
		}
	}
	if err := BarMountOption("logdev=vdb", AllowedOptions{}); !strings.HasSuffix(err.Error(), "no option may name a file or a device, or mount something else") {
		t.Error(err)
	}
}

func TestUnknownOptionsOfMountAreForOldVolumes(t *testing.T) {
	for option, want := range map[string]string{
		"norecovery": "is not allowed for ext4; allowed are the options that docs/parameters.md lists, and those of --allow-mount-option", "no_such_option": "is not allowed",
		"inode64": "is not allowed for ext4", "noatime=1": "noatime takes no value", "commit=x": "allowed: a whole number from 0 to 86400", "commit": "is not allowed",
		"data=nonsense": "allowed: journal, ordered, writeback", "barrier=2": "allowed: 0, 1, or no value", "shared": "is not allowed",
		"commit=" + strings.Repeat("0", 300): "it has 307 characters, and up to 256 are allowed",
	} {
		if err := BarMountOption(option, AllowedOptions{}); err != nil {
			t.Errorf("%s: %v", option, err)
		}
		if err := CheckMountOption("ext4", option, AllowedOptions{}); KindOf(err) != Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", option, err, want)
		}
	}
}

func TestTheOperatorAllowsOptionsOfMount(t *testing.T) {
	allowed := allowing(t, nil, []string{"norecovery", "errors=panic", "fc_debug_max_replay", "jqfmt=vfsv1"})
	for _, option := range []string{"norecovery", "errors=panic", "fc_debug_max_replay=3", "jqfmt=vfsv1"} {
		if err := CheckMountOption("ext4", option, allowed); err != nil {
			t.Errorf("%s: %v", option, err)
		}
	}
	for _, option := range []string{"jqfmt=vfsv0", "abort", "fc_debug_max_replay=/dev/vdb", "norecovery,abort"} {
		if err := CheckMountOption("ext4", option, allowed); KindOf(err) != Invalid {
			t.Errorf("%s: %v", option, err)
		}
	}
}

// What is taken is one option to libmount, which heeds quotes, and to the kernel, which doesn't.
func FuzzOptionsOfMountNameNoDevice(f *testing.F) {
	for _, option := range append(slices.Clone(barredOptions), "noatime", `context="a:b:c:s0:c1,c2"`, "data=ordered", "logbsize=256k") {
		f.Add("ext4", option)
	}
	f.Fuzz(func(t *testing.T, filesystem, option string) {
		barred, refused := BarMountOption(option, AllowedOptions{}), CheckMountOption(filesystem, option, AllowedOptions{})
		if barred != nil && refused == nil {
			t.Errorf("%q is barred and allowed", option)
		}
		if barred != nil {
			return
		}
		for part := range strings.SplitSeq(option, ",") {
			name, _, _ := strings.Cut(part, "=")
			if slices.Contains([]string{"logdev", "rtdev", "journal_path", "journal_dev", "usrjquota", "grpjquota", "loop", "offset", "bind", "remount", "abort"}, name) {
				t.Errorf("%q is taken", option)
			}
		}
		if strings.ContainsAny(option, "/ \n\\'") || option == "errors=panic" {
			t.Errorf("%q is taken", option)
		}
	})
}
