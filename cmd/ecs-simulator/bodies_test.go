package main

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/topodisk/topodisk/test/golden"
	"github.com/topodisk/topodisk/test/need"
)

// loopsOf returns the loop devices whose backing files are in a directory.
func loopsOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	var loops []string
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(text), dir+"/") {
			loops = append(loops, "/dev/"+filepath.Base(filepath.Dir(filepath.Dir(file))))
		}
	}
	return loops
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// becomes waits until the link to a device is there, or is gone.
func becomes(t *testing.T, link string, there bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); exists(link) != there; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s is there: %t, want %t", link, !there, there)
		}
	}
}

func TestLinksComeAndGoWithoutACall(t *testing.T) {
	need.Has(t, append(need.Programs("losetup", "blockdev", "partx"), need.LoopDevices)...)
	dir := t.TempDir()
	links := filepath.Join(dir, "links")
	_, at := started(t, "--instance=i-1=cn-hangzhou-h/ecs.g7.large", "--bodies="+filepath.Join(dir, "bodies"), "--links=i-1="+links)
	text, err := callAt(http.DefaultClient, at, "CreateDisk", "ZoneId", "cn-hangzhou-h", "DiskCategory", "cloud_essd", "Size", "20")
	if err != nil {
		t.Fatal(err)
	}
	id := diskID.FindStringSubmatch(text)[1]
	for text = ""; !strings.Contains(text, "<Status>Available</Status>") && !strings.Contains(text, `"Status":"Available"`); time.Sleep(10 * time.Millisecond) {
		if text, err = callAt(http.DefaultClient, at, "DescribeDisks"); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(links, "virtio-"+strings.TrimPrefix(id, "d-"))
	for _, step := range []struct {
		action string
		there  bool
	}{{"AttachDisk", true}, {"DetachDisk", false}} {
		if _, err := callAt(http.DefaultClient, at, step.action, "DiskId", id, "InstanceId", "i-1"); err != nil {
			t.Fatal(err)
		}
		becomes(t, link, step.there)
	}
}

// aKilledSimulator is one with an attached disk, whose process is killed. It
// returns the link to the disk's device, and its body.
func aKilledSimulator(t *testing.T, bodies, links string) (link, body string) {
	t.Helper()
	cmd, at := started(t, "--latency=zero", "--instance=i-1=cn-hangzhou-h/ecs.g7.large", "--bodies="+bodies, "--links=i-1="+links)
	text, err := callAt(http.DefaultClient, at, "CreateDisk", "ZoneId", "cn-hangzhou-h", "DiskCategory", "cloud_essd", "Size", "20")
	if err != nil {
		t.Fatal(err)
	}
	id := diskID.FindStringSubmatch(text)[1]
	if _, err := callAt(http.DefaultClient, at, "AttachDisk", "DiskId", id, "InstanceId", "i-1"); err != nil {
		t.Fatal(err)
	}
	link, body = filepath.Join(links, "virtio-"+strings.TrimPrefix(id, "d-")), filepath.Join(bodies, id)
	becomes(t, link, true)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var ended *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &ended) {
		t.Fatalf("end: %v", err)
	}
	if !exists(link) || !exists(body) || len(loopsOf(t, bodies)) != 1 {
		t.Fatal("nothing is left to remove: the test can't fail")
	}
	return link, body
}

func TestStartRemovesWhatAKilledOneLeft(t *testing.T) {
	need.Has(t, append(need.Programs("losetup", "blockdev", "partx"), need.LoopDevices)...)
	dir := t.TempDir()
	bodies, links, others := filepath.Join(dir, "bodies"), filepath.Join(dir, "links"), filepath.Join(dir, "others")
	t.Cleanup(func() {
		for _, loop := range loopsOf(t, dir) {
			if out, err := exec.Command("losetup", "--detach", loop).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
	})
	link, body := aKilledSimulator(t, bodies, links)

	// What is not the simulator's stays: files, links, and devices of others.
	const name = "d-00000000000000000000"
	strangers := []string{
		filepath.Join(bodies, "notes"), filepath.Join(bodies, "d-notes"), filepath.Join(links, "virtio-00000000000000000000"), filepath.Join(links, "scsi-1"),
		filepath.Join(others, name),
	}
	for _, sub := range []string{others, filepath.Join(bodies, "s-00000000000000000000")} {
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range strangers {
		add := func() error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) }
		if filepath.Dir(path) == links {
			add = func() error { return os.Symlink("/dev/loop0", path) }
		}
		if err := add(); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("losetup", "--find", filepath.Join(others, name)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	// The links' directory of the earlier process is known from its own notes.
	second, _ := started(t, "--instance=i-1=cn-hangzhou-h/ecs.g7.large", "--bodies="+bodies, "--links=i-1="+filepath.Join(dir, "other-links"))
	for _, path := range []string{link, body} {
		if exists(path) {
			t.Errorf("%s is still there", path)
		}
	}
	if loops := loopsOf(t, bodies); len(loops) != 0 {
		t.Errorf("loop devices %v are still there", loops)
	}
	for _, path := range append(strangers, filepath.Join(bodies, "s-00000000000000000000")) {
		if !exists(path) {
			t.Errorf("%s was removed, and is not the simulator's", path)
		}
	}
	if len(loopsOf(t, others)) != 1 {
		t.Error("a loop device was detached that is not the simulator's")
	}

	out, err := golden.Run(t, nil, append(place, "--listen=127.0.0.1:0", "--bodies="+bodies)...)
	if err == nil || !strings.Contains(err.Error(), "--bodies") || !strings.Contains(err.Error(), bodies) || !strings.Contains(err.Error(), "another simulator") {
		t.Errorf("a second simulator on the same directory: %q %v, want an error that names it", out, err)
	}
	if err := errors.Join(second.Process.Signal(os.Interrupt), second.Wait()); err != nil {
		t.Errorf("end: %v", err)
	}
	if err := os.WriteFile(body, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	third, _ := started(t, "--bodies="+bodies) // the second had links in no directory of the first
	if exists(body) {
		t.Errorf("%s is there once more", body)
	}
	if err := errors.Join(third.Process.Signal(os.Interrupt), third.Wait()); err != nil {
		t.Errorf("end: %v", err)
	}
}

func TestStartRemovesNothingWhereNoneWas(t *testing.T) {
	dir := t.TempDir()
	mine := filepath.Join(dir, "d-00000000000000000000")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first, _ := started(t, "--bodies="+dir)
	if !exists(mine) {
		t.Error("a file was removed from a directory that no simulator has used")
	}
	if err := errors.Join(first.Process.Signal(os.Interrupt), first.Wait()); err != nil {
		t.Fatal(err)
	}
	if started(t, "--bodies="+dir); exists(mine) {
		t.Error("a body was left in a directory that a simulator without links has used")
	}
}
