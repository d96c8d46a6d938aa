package disk

import (
	"strings"
	"testing"
)

func TestFilesystemsOf32BitsHaveAMost(t *testing.T) {
	for name, row := range map[string]struct {
		size       GiB
		filesystem string
		options    string
		want       string // part of the error; empty: none
	}{
		"ext3":                             {16383, "ext3", "", ""},
		"ext3 too large":                   {16384, "ext3", "", "16384 GiB is not allowed for ext3; allowed are up to 16383 GiB"},
		"ext4":                             {65536, "ext4", "", ""},
		"ext4 with other options":          {65536, "ext4", "-b 4096 -O ^has_journal,quota -m 0", ""},
		"ext4 without 64bit":               {16383, "ext4", "-O ^64bit", ""},
		"ext4 without 64bit too large":     {16384, "ext4", "-O ^64bit", "parameter mkfsOptions"},
		"ext4 in one word":                 {16384, "ext4", "-m0 -O^64bit", "parameter mkfsOptions"},
		"ext4 among other features":        {16384, "ext4", "-O quota,^64bit,^metadata_csum -m 0", "parameter mkfsOptions"},
		"ext4 with the last word for it":   {16384, "ext4", "-O ^64bit -O quota,64bit", ""},
		"ext4 whose label looks like that": {16384, "ext4", "-L ^64bit", ""},
		"xfs":                              {65536, "xfs", "-O ^64bit", ""},
		"a block volume":                   {65536, "", "", ""},
	} {
		options, _, _ := ReadMkfsOptions(row.filesystem, row.options, AllowedOptions{})
		err := CheckFormat(row.size, row.filesystem, options)
		if (err == nil) != (row.want == "") || err != nil && (KindOf(err) != OutOfRange || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	for size, want := range map[GiB]bool{16384: true, 16385: false} {
		if err := CheckGrowth(size, "ext3"); (err == nil) != want || CheckGrowth(size, "ext4") != nil {
			t.Errorf("growth to %d GiB: %v", size, err)
		}
	}
}
