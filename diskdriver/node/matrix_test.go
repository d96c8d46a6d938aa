package node

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/test/need"
)

// filling is what is on a disk of the matrix.
type filling struct {
	fsType string // that the volume asks for; empty: ext4
	gib    int64  // of the disk; 0: 1
	hidden bool   // the kernel shows no partition
	fill   func(r *rig, m *testDisk)
}

// matrixUUID is the UUID that the mark of a format names.
const matrixUUID = "5b1c2a4e-9d3f-4f6a-8c21-0123456789ab"

// fillings are the rows of testdata/matrix.txt.
var fillings = map[string]filling{
	"blank":                               {fill: func(*rig, *testDisk) {}},
	"random bytes":                        {fill: func(_ *rig, m *testDisk) { m.scramble() }},
	"ext4 with files":                     {fill: used("ext4")},
	"ext3 with files":                     {fsType: "ext3", fill: used("ext3")},
	"xfs with files":                      {fsType: "xfs", fill: used("xfs")},
	"ext4 never mounted":                  {fill: made("ext4")},
	"xfs never mounted":                   {fsType: "xfs", fill: made("xfs")},
	"ext4, cut short by power loss":       {fill: powerLost("ext4")},
	"xfs, cut short by power loss":        {fsType: "xfs", fill: powerLost("xfs")},
	"interrupted mkfs.ext4":               {fill: after(made("ext4"), func(_ *rig, m *testDisk) { m.write(0, make([]byte, 4096)) })},
	"interrupted mkfs.xfs":                {fsType: "xfs", fill: after(made("xfs"), func(_ *rig, m *testDisk) { m.write(126, []byte{1}) })},
	"ext4, head lost":                     {fill: after(used("ext4"), headLost)},
	"ext4, one bit of its superblock":     {fill: after(used("ext4"), bitFlipped(1024+0x60))},
	"ext4, one bit of a group descriptor": {fill: after(used("ext4"), bitFlipped(4096+8))},
	"ext4, group descriptors lost":        {fill: after(used("ext4"), func(_ *rig, m *testDisk) { m.write(4096, make([]byte, 4096)) })},
	"ext4, tail lost":                     {fill: after(used("ext4"), tailLost)},
	"ext4 without backups, head lost":     {fill: after(used("ext4", "-O", "sparse_super2", "-E", "num_backup_sb=0"), headLost)},
	"ext4 bigalloc, head lost":            {gib: 4, fill: after(used("ext4", "-O", "bigalloc"), headLost)},
	"ext4 in a partition, table lost":     {fill: after(inPartition, headLost512)},
	"ext4 in the only partition":          {fill: inPartition},
	"xfs, head lost":                      {fsType: "xfs", fill: after(used("xfs"), headLost)},
	"xfs of 6 groups, head lost":          {fsType: "xfs", gib: 3, fill: after(used("xfs", "-d", "agcount=6"), headLost)},
	"xfs of 7 groups, head lost":          {fsType: "xfs", gib: 3, fill: after(used("xfs", "-d", "agcount=7"), headLost)},
	"xfs of 12 groups, head lost":         {fsType: "xfs", gib: 3, fill: after(used("xfs", "-d", "agcount=12"), headLost)},
	"xfs, one bit of its superblock":      {fsType: "xfs", fill: after(used("xfs"), bitFlipped(100+20))},
	"xfs, tail lost":                      {fsType: "xfs", fill: after(used("xfs"), tailLost)},
	"raw data at 2 MiB":                   {gib: 20, fill: func(_ *rig, m *testDisk) { m.write(2<<20, []byte(strings.Repeat("a row of a table\n", 32<<20/17))) }},
	"text in the middle":                  {fill: func(_ *rig, m *testDisk) { m.write(m.size/samples*700, []byte("data")) }},
	"ext4 that holds an image with ZFS labels": {fill: after(used("ext4"), func(_ *rig, m *testDisk) {
		for i := range int64(32) { // the uberblocks of the first label, in blocks that ext4 doesn't use, as if they were a file's
			m.write(128<<10+i<<10+600<<20, zfsUberblock())
			m.write(m.size-(256<<10)+(128<<10)+i<<10, zfsUberblock())
		}
	})},
	"btrfs":                      {fill: func(_ *rig, m *testDisk) { m.write(64<<10+64, []byte("_BHRfS_M")) }},
	"swap":                       {fill: func(r *rig, m *testDisk) { r.sh("mkswap", m.loop) }},
	"LVM":                        {fill: func(_ *rig, m *testDisk) { m.write(512, lvmLabel()) }},
	"LUKS":                       {fill: func(_ *rig, m *testDisk) { m.write(0, append([]byte("LUKS\xba\xbe\x00\x01"), make([]byte, 4088)...)) }},
	"MD RAID 1.0":                {fill: func(_ *rig, m *testDisk) { m.write(m.size-8<<10, raidSuperblock(m.size/512-16)) }},
	"MD RAID 1.2":                {fill: func(_ *rig, m *testDisk) { m.write(4<<10, raidSuperblock(8)) }},
	"empty partition table, gpt": {fill: func(r *rig, m *testDisk) { r.partition(m) }},
	"partition table that the kernel ignores": {hidden: true, fill: func(r *rig, m *testDisk) { r.partition(m, ",") }},
	"two partitions": {fill: func(r *rig, m *testDisk) { r.partition(m, ",500M", ",") }},
}

// after fills a disk, and fills it further.
func after(steps ...func(r *rig, m *testDisk)) func(r *rig, m *testDisk) {
	return func(r *rig, m *testDisk) {
		for _, step := range steps {
			step(r, m)
		}
	}
}

// made is what a format that the mark names has left.
func made(fsType string) func(r *rig, m *testDisk) {
	return func(r *rig, m *testDisk) {
		call, err := r.server.mkfs(volumeUse{}, formatMark{fsType: fsType, uuid: uuid.MustParse(matrixUUID)}, device{path: m.loop}, m.loop)
		r.ok(err)
		r.sh(call[0], call[1:]...)
	}
}

// used makes a file system that holds files.
func used(fsType string, options ...string) func(r *rig, m *testDisk) {
	return func(r *rig, m *testDisk) {
		r.sh("mkfs."+fsType, append(append([]string{"-q"}, options...), m.loop)...)
		r.fillFiles(m.loop, fsType)
	}
}

// fillFiles writes files to the file system on a device.
func (r *rig) fillFiles(device, fsType string) {
	r.t.Helper()
	at := r.t.TempDir()
	r.sh("mount", "-t", fsType, device, at)
	for i := range 200 {
		r.put(filepath.Join(at, fmt.Sprintf("file-%d", i)), strings.Repeat(fmt.Sprintf("kept %d\n", i), 500))
	}
	r.sh("umount", at)
}

// powerLost makes a file system whose journal has to be replayed.
func powerLost(fsType string) func(r *rig, m *testDisk) {
	return after(made(fsType), func(r *rig, m *testDisk) {
		at, copied := r.t.TempDir(), filepath.Join(r.t.TempDir(), "copy")
		r.sh("mount", "-t", fsType, m.loop, at)
		r.put(filepath.Join(at, "file"), "kept")
		r.sh("sync", "-f", at)
		r.sh("cp", "--sparse=always", m.file, copied)
		r.sh("umount", at)
		r.sh("dd", "if="+copied, "of="+m.loop, "bs=1M", "conv=sparse,fsync", "status=none")
	})
}

// inPartition makes an ext4 with files in the only partition, at 1 MiB.
func inPartition(r *rig, m *testDisk) {
	r.partition(m, ",")
	r.sh("mkfs.ext4", "-q", m.loop+"p1")
	r.fillFiles(m.loop+"p1", "ext4")
}

func headLost(_ *rig, m *testDisk) { m.write(0, make([]byte, 1<<20)) }

func headLost512(r *rig, m *testDisk) {
	r.sh("partx", "--delete", m.loop)
	m.write(0, make([]byte, 1<<20))
	m.write(m.size-(64<<10), make([]byte, 64<<10))
}

// tailLost is what ECS never does: the disk has become smaller.
func tailLost(r *rig, m *testDisk) {
	m.truncate(m.size - disk.BytesPerGiB/2)
	r.sh("losetup", "--set-capacity", m.loop)
}

func bitFlipped(at int64) func(*rig, *testDisk) {
	return func(r *rig, m *testDisk) {
		f, err := os.OpenFile(m.loop, os.O_RDWR, 0)
		r.ok(err)
		defer func() { _ = f.Close() }()
		content := make([]byte, 1)
		_, err = f.ReadAt(content, at)
		r.ok(err)
		m.write(at, []byte{content[0] ^ 4})
	}
}

func zfsUberblock() []byte {
	block := make([]byte, 1<<10)
	copy(block, []byte{0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0, 0x1c, 0, 0, 0, 0, 0, 0, 0})
	return block
}

func lvmLabel() []byte {
	label := make([]byte, 512)
	copy(label, "LABELONE\x01\x00\x00\x00\x00\x00\x00\x00")
	copy(label[24:], "LVM2 001")
	copy(label[20:], []byte{32, 0, 0, 0})
	return label
}

func raidSuperblock(sector int64) []byte {
	block := make([]byte, 4<<10)
	copy(block, []byte{0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0})
	for i := range 8 {
		block[144+i] = byte(sector >> (8 * i))
	}
	return block
}

// histories are the columns of testdata/matrix.txt.
var histories = map[string]func(r *rig, m *testDisk, v *testVolume){
	"new":    func(*rig, *testDisk, *testVolume) {},
	"in-use": func(_ *rig, _ *testDisk, v *testVolume) { usedBefore(v) },
	"static": func(_ *rig, _ *testDisk, v *testVolume) {
		usedBefore(v)
		delete(v.context, disk.OriginKey)
	},
	"restored": func(_ *rig, _ *testDisk, v *testVolume) {
		usedBefore(v)
		origin(disk.OriginSnapshot)(v)
	},
	"marked": func(_ *rig, _ *testDisk, v *testVolume) { usedBefore(v) }, // the mark is there
	"copied": func(_ *rig, m *testDisk, v *testVolume) {
		usedBefore(v)
		origin(disk.OriginSnapshot)(v)
		m.mark("another", v.capability.GetMount().GetFsType())
	},
	"reimaged": func(r *rig, _ *testDisk, v *testVolume) {
		v.publish[disk.AttachedKey] = time.Now().Add(-2 * time.Minute).UTC().Format(time.RFC3339)
		r.ok(os.RemoveAll(r.server.records.dir))
		r.restart()
	},
	"recorded": func(r *rig, m *testDisk, _ *testVolume) { r.ok(r.server.records.note(m.serial)) },
}

// mark puts the mark of a format that was cut short on the disk.
func (m *testDisk) mark(serial, fsType string) {
	m.write(m.size-markFromEnd, formatMark{serial: serial, fsType: fsType, uuid: uuid.MustParse(matrixUUID)}.text())
}

// TestTheMatrixOfContentsAndHistories holds the node to testdata/matrix.txt.
func TestTheMatrixOfContentsAndHistories(t *testing.T) {
	text, err := os.ReadFile("testdata/matrix.txt")
	if err != nil {
		t.Fatal(err)
	}
	var columns []string
	seen := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 2 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if columns == nil {
			columns = cells[1:]
			continue
		}
		content, known := fillings[cells[0]]
		if !known { // an error of the disk needs another body than a loop device over a file
			if !strings.HasPrefix(cells[0], "read error") {
				t.Errorf("%q is no filling", cells[0])
			}
			continue
		}
		seen++
		t.Run(cells[0], func(t *testing.T) { matrixRow(t, content, columns, cells[1:]) })
	}
	if seen != len(fillings) {
		t.Errorf("%d rows of %d fillings", seen, len(fillings))
	}
}

// matrixRow holds the node to one row: the disk is filled once, and copied for each history.
func matrixRow(t *testing.T, content filling, columns, wants []string) {
	r := newRig(t)
	need.Has(t, need.Programs("mkfs.xfs", "sfdisk")...)
	gib := max(content.gib, 1)
	fsType := cmp.Or(content.fsType, "ext4")
	need.Has(t, need.FileSystem(fsType))
	plain, marked := r.attach("s0", gib), r.attach("marked", gib)
	marked.mark("marked", fsType)
	for _, m := range []*testDisk{plain, marked} {
		content.fill(r, m)
		r.sh("blockdev", "--flushbufs", m.loop)
	}
	for i, column := range columns {
		if !*Long && !slices.Contains([]string{"new", "in-use", "restored", "marked"}, column) {
			continue // `make test-long` runs the others
		}
		t.Run(column, func(t *testing.T) {
			r := newRig(t)
			from, serial := plain, fmt.Sprintf("s%d", i+1)
			if column == "marked" {
				from, serial = marked, "marked"
			}
			m := r.attach(serial, gib)
			r.sh("cp", "--sparse=always", from.file, m.file)
			r.sh("losetup", "--set-capacity", m.loop)
			r.sh("blockdev", "--flushbufs", m.loop)
			m.size = sizeOfFile(r, m.file)
			if r.showPartitions(m); content.hidden {
				r.sh("partx", "--delete", m.loop)
			}
			v := r.volume(m, asFileSystem(fsType))
			histories[column](r, m, &v)
			m.is(v, wants[i])
			r.unmountAll()
			if wants[i] == "refuse" || wants[i] == "keep" {
				m.isBoundAsItIs(v)
			}
		})
	}
}

func sizeOfFile(r *rig, path string) int64 {
	info, err := os.Stat(path)
	r.ok(err)
	return info.Size()
}

// is wants that staging a volume does with its disk what a cell of the matrix says.
func (m *testDisk) is(v testVolume, want string) {
	r := m.rig
	r.t.Helper()
	before := m.sum()
	server := r.server
	if want == "read" { // slowly enough that a call sees it go on
		server.blanks.Rate = 400 << 20
	}
	ctx, cancel := context.WithTimeout(context.Background(), margin+500*time.Millisecond)
	defer cancel()
	if want != "read" {
		ctx = context.Background()
	}
	_, err := server.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: v.volume, PublishContext: v.publish, VolumeContext: v.context, StagingTargetPath: v.staging, VolumeCapability: v.capability,
	})
	files, _ := filepath.Glob(filepath.Join(v.staging, "*"))
	formatted := err == nil && len(files) <= 1 && (len(files) == 0 || filepath.Base(files[0]) == "lost+found")
	switch want {
	case "format":
		if r.ok(err); !formatted {
			r.t.Errorf("kept is %v", files)
		}
		if mark := parseMark(r.bytes(m, m.size-markFromEnd, markSize)); mark.serial != "" {
			r.t.Errorf("the mark is left: %v", mark)
		}
	case "keep":
		r.ok(err)
	case "refuse":
		r.refused(err, disk.Blocked, "")
		if m.sum() != before {
			r.t.Errorf("the bytes of the disk changed; the error is %v", err)
		}
	case "read":
		r.refused(err, disk.Pending, "are zeros so far")
		if m.sum() != before {
			r.t.Error("the bytes of the disk changed")
		}
		server.blanks.Rate = 8 << 30
		r.ok(server.blanks.forget(context.Background(), disk.ID(v.volume), v.publish[disk.SerialKey]))
		r.ok(r.stage(v))
	default:
		r.t.Fatalf("%q is no outcome", want)
	}
}

// isBoundAsItIs wants a disk to be given to a Pod as a block volume, and nothing of it to change but that its own mark is erased.
func (m *testDisk) isBoundAsItIs(v testVolume) {
	r := m.rig
	r.t.Helper()
	text := r.bytes(m, m.size-markFromEnd, markSize)
	defer m.unchanged()()
	asBlock(&v)
	delete(v.publish, disk.SizeKey)
	r.ok(r.stage(v))
	r.ok(r.publish(v, "a"))
	if parseMark(text).serial == m.serial {
		if !isZero(r.bytes(m, m.size-markFromEnd, markSize)) {
			r.t.Error("the mark is left")
		}
		m.write(m.size-markFromEnd, text) // all else is as it was
	}
}

// bytes reads some of a disk.
func (r *rig) bytes(m *testDisk, at int64, n int) []byte {
	r.t.Helper()
	f, err := os.Open(m.file)
	r.ok(err)
	defer func() { _ = f.Close() }()
	content := make([]byte, n)
	_, err = f.ReadAt(content, at)
	r.ok(err)
	return content
}
