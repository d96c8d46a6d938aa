//go:build e2enodes

package main

import (
	"context"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/labtest"
)

// largerThan is what a file system of 30 GiB shows at least; one of 20 GiB shows less.
const largerThan = 28

func TestGrowsWhileItIsUsed(t *testing.T) {
	t.Parallel()
	for _, filesystem := range []string{"xfs", "ext4"} {
		t.Run(filesystem, func(t *testing.T) {
			s := newScene(t)
			s.claim("data", s.essd(filesystem))
			s.runs("app", "data", labtest.OnNode(here))
			sum := s.write("app", "/data/file", 50)
			s.grow("data", "30Gi")
			if filesystem == "ext4" && !s.growsExt4() {
				s.Log("this kernel refuses to grow a mounted ext4 file system (no CAP_SYS_RESOURCE): the claim has to say so, and the next Pod has to find it grown")
				s.WaitFor("the refusal is an event", soon, func(context.Context) (bool, error) {
					return s.says("data", "Permission denied to resize filesystem")
				})
				s.holds("app", "/data/file", sum)
				s.remove("app")
				s.runs("app", "data", labtest.OnNode(there))
			}
			s.awaitCapacity("data", "30Gi")
			if got := s.gib("app"); got < largerThan {
				t.Errorf("the file system has %.1f GiB, want about 30", got)
			}
			s.holds("app", "/data/file", sum)
		})
	}
}

// growsExt4 says whether the kernel grows a mounted ext4 file system for this process.
func (s *scene) growsExt4() bool {
	s.Helper()
	_, err := s.RealNode(here).Exec(s.Context(), "sh", "-ec", `
cd /var/tmp; mkdir -p grows
truncate -s 64M grows.img; mkfs.ext4 -q -F grows.img 32M
trap 'umount /var/tmp/grows; losetup -d $loop; rm grows.img' EXIT
loop=$(losetup --find --show grows.img); mount $loop grows
resize2fs $loop`)
	if err != nil && !strings.Contains(err.Error(), "Permission denied to resize filesystem") {
		s.Fatal(err)
	}
	return err == nil
}

func TestGrowsWhileItIsNotUsed(t *testing.T) {
	t.Parallel()
	for _, filesystem := range []string{"xfs", "ext4"} {
		t.Run(filesystem, func(t *testing.T) {
			s := newScene(t)
			s.claim("data", s.essd(filesystem))
			s.runs("before", "data", labtest.OnNode(here))
			sum := s.write("before", "/data/file", 50)
			s.remove("before")
			s.grow("data", "30Gi")
			s.awaitDisk("data", "30Gi") // else the next Pod may hold it already, and its file system grows while it is used
			s.runs("after", "data", labtest.OnNode(there))
			s.awaitCapacity("data", "30Gi")
			if got := s.gib("after"); got < largerThan {
				t.Errorf("the file system has %.1f GiB, want about 30", got)
			}
			s.holds("after", "/data/file", sum)
		})
	}
}

func TestBlockDeviceGrowsWhileItIsUsed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.claim("raw", s.class(map[string]string{"type": "cloud_essd"}), asBlockClaim)
	s.runs("app", "raw", labtest.OnNode(here), asBlock)
	s.sh("app", "echo kept | dd of=/dev/data bs=512 conv=notrunc,sync 2>/dev/null && sync")
	s.grow("raw", "30Gi")
	s.awaitCapacity("raw", "30Gi")
	if got := s.sh("app", "blockdev --getsize64 /dev/data"); got != "32212254720" {
		t.Errorf("the device has %s bytes, want 30 GiB", got)
	}
	if got := s.sh("app", "head -c 4 /dev/data"); got != "kept" {
		t.Errorf("the device begins with %q", got)
	}
}
