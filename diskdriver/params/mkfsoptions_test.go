package params

import (
	"strings"
	"testing"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func TestMkfsOptionsAreOfTheVolumesFileSystem(t *testing.T) {
	for _, row := range []struct{ filesystem, options, want, refused string }{
		{"ext4", "", "", ""},
		{"ext4", "-m 1", "-m 1", ""},
		{"xfs", "-m 1", "", `parameter mkfsOptions: option -m of mkfs.xfs: "1" is not allowed`},
		{"ext4", "-m reflink=1", "", `parameter mkfsOptions: option -m of mkfs.ext4: "reflink=1" is not allowed`},
		{"ext3", "-O extent", "", `option -O of mkfs.ext3: "extent" is not allowed`},
		{"", "-O extent", "-O extent", ""},
		{"", "-m reflink=1", "-m reflink=1", ""},
		{"", "-l logdev=/dev/vdb", "", `option -l of mkfs.ext4: "logdev=/dev/vdb" is not allowed`},
	} {
		class, err := Parse(map[string]string{"mkfsOptions": row.options}, nil, Refuse)
		if err != nil {
			t.Fatal(err)
		}
		got, err := class.MkfsOptionsFor(row.filesystem, disk.AllowedOptions{})
		if row.refused == "" && (err != nil || got.String() != row.want) {
			t.Errorf("%s %s: got %q, %v", row.filesystem, row.options, got, err)
		}
		if row.refused != "" && (disk.KindOf(err) != disk.Invalid || !strings.Contains(err.Error(), row.refused)) {
			t.Errorf("%s %s: got %q, %v, want %q", row.filesystem, row.options, got, err, row.refused)
		}
	}
}
