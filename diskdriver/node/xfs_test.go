package node

import (
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/test/need"
)

// features are what a superblock says that a kernel has to know (xfs_db, version).
func (r *rig) features(m *testDisk) string {
	r.t.Helper()
	_, names, _ := strings.Cut(r.sh("xfs_db", "-r", "-c", "version", m.loop), "=")
	return "," + strings.TrimSpace(names) + ","
}

// Linux 4.19 is the oldest that a node runs; it mounts no xfs with a feature that it doesn't know (D7).
func TestAnXFSHasTheFeaturesThatItsKernelsKnow(t *testing.T) {
	for _, row := range []struct {
		name         string
		has, lacks   string
		options, xfs string
	}{
		{name: "by default", has: "V5 CRC FINOBT SPARSE_INODES", lacks: "REFLINK RMAPBT INOBTCNT BIGTIME NREXT64"},
		{name: "lts_4.19", xfs: "lts_4.19", has: "FINOBT SPARSE_INODES", lacks: "REFLINK INOBTCNT BIGTIME"},
		{name: "latest", xfs: "latest", has: "V5 FINOBT SPARSE_INODES REFLINK INOBTCNT BIGTIME"},
		{name: "one is asked for", options: "-m reflink=1 -i size=1024", has: "REFLINK SPARSE_INODES", lacks: "INOBTCNT BIGTIME"},
		{name: "two in one word", options: "-mreflink=1,bigtime=1", has: "REFLINK BIGTIME", lacks: "INOBTCNT"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, m := newRigWithDisk(t)
			v := r.volume(m, asFileSystem("xfs"), func(w *testVolume) {
				for key, value := range map[string]string{disk.XFSFeaturesKey: row.xfs, disk.MkfsOptionsKey: row.options} {
					if value != "" {
						w.context[key] = value
					}
				}
			})
			r.ok(r.stage(v))
			got := r.features(m)
			for has, names := range map[bool]string{true: row.has, false: row.lacks} {
				for _, name := range strings.Fields(names) {
					if strings.Contains(got, ","+name+",") != has {
						t.Errorf("has %s is %v in %s", name, !has, got)
					}
				}
			}
		})
	}
}

func TestXFSFeaturesThatAreNoneAreRefused(t *testing.T) {
	r := newRig(t)
	v := r.volume(r.attach("s1", 1), asFileSystem("xfs"), func(w *testVolume) { w.context[disk.XFSFeaturesKey] = "newest" })
	r.refused(r.stage(v), disk.Invalid, `volume_context["xfsFeatures"]: "newest" is not allowed; allowed are lts_4.19, latest`)
}

// What the driver asks of mkfs.xfs is what xfsprogs itself says of Linux 4.19.
func TestXFSFeaturesAreThoseOfXfsprogs(t *testing.T) {
	need.Has(t, need.Program("mkfs.xfs"))
	const page = "/usr/share/xfsprogs/mkfs/lts_4.19.conf"
	text, err := os.ReadFile(page)
	if os.IsNotExist(err) {
		t.Skip(page + " is missing: this xfsprogs is older than 5.19")
	}
	if err != nil {
		t.Fatal(err)
	}
	setting := regexp.MustCompile(`(?m)^(\w+)=(\d)$`)
	want, got := map[string]string{}, map[string]string{}
	for _, found := range setting.FindAllStringSubmatch(string(text), -1) {
		want[found[1]] = found[2]
	}
	for _, word := range (disk.MkfsOptions{}).WithFeatures(disk.XFSLTS419).Words() {
		for _, one := range strings.Split(word, ",") {
			if found := setting.FindStringSubmatch(one); found != nil {
				got[found[1]] = found[2]
			}
		}
	}
	if !maps.Equal(want, got) {
		t.Errorf("the driver sets %v; %s says %v", got, page, want)
	}
}
