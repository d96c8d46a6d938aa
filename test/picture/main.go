// Picture makes docs/simulator.png: it starts ecs-simulator, lets clients call
// it, and takes a picture of its page with Chromium.
//
//	go run ./test/picture
//
// needs Chromium (Debian's package chromium) and nothing else. It also draws
// what make demo prints:
//
//	make demo | go run ./test/picture -terminal -out docs/demo.svg
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	region = "cn-hangzhou"
	zoneH  = "cn-hangzhou-h"
	zoneI  = "cn-hangzhou-i"
	zoneJ  = "cn-hangzhou-j"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	out := flag.String("out", "docs/simulator.png", "where the picture goes")
	size := flag.String("size", "1280x1240", "width and height of the window in pixels")
	browser := flag.String("chromium", "chromium", "the browser")
	only := flag.Bool("state-only", false, "take no picture: start the simulator, make the calls and wait")
	drawTerminal := flag.Bool("terminal", false, "draw the standard input, which make demo has printed, instead")
	flag.Parse()
	if *drawTerminal {
		return terminal(os.Stdin, *out)
	}
	dir, err := os.MkdirTemp("", "picture")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	address, stop, err := simulator(ctx, dir)
	if err != nil {
		return err
	}
	defer stop()
	if err := calls(address); err != nil {
		return err
	}
	if *only {
		fmt.Println(address + "/_sim/")
		<-ctx.Done()
		return nil
	}
	return picture(ctx, *browser, dir, address+"/_sim/", *size, *out)
}

// simulator builds and starts ecs-simulator, and returns its address and what
// ends it.
func simulator(ctx context.Context, dir string) (string, func(), error) {
	program := filepath.Join(dir, "ecs-simulator")
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/ecs-simulator").CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("go build: %w\n%s", err, text)
	}
	command := exec.CommandContext(ctx, program, "--listen=127.0.0.1:0", "--region="+region, "--zone="+zoneH, "--zone="+zoneI, "--zone="+zoneJ,
		"--latency=real", "--queues=parallel", "--throttle=tight",
		"--instance=i-bp1node1=cn-hangzhou-h/ecs.g7.large", "--instance=i-bp1node2=cn-hangzhou-h/ecs.g7se.large",
		"--instance=i-bp1node3=cn-hangzhou-i/ecs.g7.large", "--instance=i-bp1node4=cn-hangzhou-j/ecs.u1-c1m4.xlarge")
	command.Stderr = os.Stderr
	stdout, err := command.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := command.Start(); err != nil {
		return "", nil, err
	}
	stop := func() {
		_ = command.Process.Kill()
		_ = command.Wait() // killed, so it fails
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		stop()
		return "", nil, fmt.Errorf("the simulator said %q: %w", line, err)
	}
	return address, stop, nil
}

// client calls a simulator and keeps the first error.
type client struct {
	address string
	err     error
}

// ask sends an ECS request, whose refusal is no error, and returns a field of
// the reply.
func (c *client) ask(action, want string, params ...string) string {
	form := url.Values{"Action": {action}, "Version": {"2014-05-26"}, "Format": {"JSON"}, "RegionId": {region}}
	for i := 0; i+1 < len(params); i += 2 {
		form.Set(params[i], params[i+1])
	}
	reply, err := http.PostForm(c.address+"/", form)
	if err != nil {
		return "" // a reply that a fault loses
	}
	defer reply.Body.Close()
	var fields map[string]any
	if err := json.NewDecoder(reply.Body).Decode(&fields); err != nil {
		c.fail(err)
	}
	value, _ := fields[want].(string)
	return value
}

// admin posts to the admin API.
func (c *client) admin(route, body string) {
	reply, err := http.Post(c.address+"/_sim/"+route, "application/json", strings.NewReader(body))
	if err != nil {
		c.fail(err)
		return
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(reply.Body)
		c.fail(fmt.Errorf("%s %s: %s", route, body, text))
	}
}

func (c *client) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// disk makes a disk as the driver does.
func (c *client) disk(zone, category string, size, n int) string {
	name := fmt.Sprintf("k8s-3f9c2b1a-77d0-4e0e-9c1b-%012d", n)
	return c.ask("CreateDisk", "DiskId", "ZoneId", zone, "DiskCategory", category, "Size", fmt.Sprint(size), "DiskName", name, "ClientToken", "n:"+name,
		"Tag.1.Key", "k8s.aliyun.com", "Tag.1.Value", "true", "Tag.2.Key", "kubernetes.io/created-for/pvc/name", "Tag.2.Value", fmt.Sprintf("data-web-%d", n))
}

// calls leaves a simulator with a bit of everything.
func calls(address string) error {
	c := &client{address: address}
	zones, nodes := []string{zoneH, zoneI, zoneJ}, []string{"i-bp1node1", "i-bp1node3", "i-bp1node4"}
	c.admin("latency", `{"profile":"zero"}`)
	var disks []string
	for n := range 9 {
		disks = append(disks, c.disk(zones[n%3], []string{"cloud_essd", "cloud_auto", "cloud_essd"}[n/3], 20+20*(n%4), n))
	}
	for n, id := range disks[:6] {
		c.ask("AttachDisk", "", "InstanceId", nodes[n%3], "DiskId", id)
	}
	c.ask("CreateSnapshot", "", "DiskId", disks[0], "SnapshotName", "nightly")
	c.ask("ResizeDisk", "", "DiskId", disks[1], "NewSize", "100", "Type", "online")
	c.ask("DeleteDisk", "", "DiskId", disks[2])
	c.admin("stock", `{"zone":"cn-hangzhou-i","category":"cloud_ssd","units":0}`)
	c.admin("stock", `{"zone":"cn-hangzhou-j","category":"cloud_essd","units":3}`)
	c.admin("zone", `{"zone":"cn-hangzhou-j","units":0}`)
	c.disk(zoneJ, "cloud_essd", 40, 9)
	c.admin("faults", `{"action":"CreateDisk","do":"lost-reply","count":1}`)
	c.disk(zoneH, "cloud_essd", 40, 10)
	c.admin("faults", `{"action":"DescribeDisks","do":"brown-out","percent":10}`)
	for range 60 {
		c.ask("DescribeDisks", "")
	}
	c.admin("instances", `{"id":"i-bp1node2","status":"Stopped"}`)
	c.admin("latency", `{"profile":"real","spans":{"Attach":"10m","Detach":"10m"}}`)
	c.ask("ModifyDiskSpec", "", "DiskId", disks[7], "DiskCategory", "cloud_auto")
	c.ask("DetachDisk", "", "InstanceId", nodes[0], "DiskId", disks[0])
	late := c.disk(zoneI, "cloud_essd", 40, 11)
	c.admin("clock", `{"advance":"2m"}`)
	c.ask("AttachDisk", "", "InstanceId", nodes[1], "DiskId", late)
	c.disk(zoneH, "cloud_auto", 60, 12)
	return c.err
}

// picture takes a picture of a page.
func picture(ctx context.Context, browser, dir, page, size, out string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	arguments := []string{
		"--headless", "--hide-scrollbars", "--disable-gpu", "--user-data-dir=" + filepath.Join(dir, "profile"),
		"--window-size=" + strings.Replace(size, "x", ",", 1), "--screenshot=" + out, "--virtual-time-budget=2000",
	}
	if os.Geteuid() == 0 {
		arguments = append(arguments, "--no-sandbox") // Chromium refuses to start as root with one
	}
	if text, err := exec.CommandContext(ctx, browser, append(arguments, page)...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", browser, err, text)
	}
	return shrink(out)
}

// shrink writes a picture again with 256 colours, which is a third of the bytes
// and looks the same.
func shrink(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	full, err := png.Decode(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	small := image.NewPaletted(full.Bounds(), palette(full))
	draw.Draw(small, small.Bounds(), full, full.Bounds().Min, draw.Src)
	var text bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&text, small); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}

// palette returns up to 256 colours of a picture: those that it has most of,
// and then those that are least like them, so that rare ones are not lost.
func palette(full image.Image) color.Palette {
	counts := map[color.RGBA]int{}
	for y := full.Bounds().Min.Y; y < full.Bounds().Max.Y; y++ {
		for x := full.Bounds().Min.X; x < full.Bounds().Max.X; x++ {
			counts[color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)]++
		}
	}
	rest := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int { return counts[b] - counts[a] })
	most := min(64, len(rest))
	var chosen color.Palette
	for _, c := range rest[:most] {
		chosen = append(chosen, c)
	}
	for rest = rest[most:]; len(rest) > 0 && len(chosen) < 256; {
		farthest := slices.MaxFunc(rest, func(a, b color.RGBA) int { return distance(chosen, a) - distance(chosen, b) })
		chosen = append(chosen, farthest)
		rest = slices.DeleteFunc(rest, func(c color.RGBA) bool { return c == farthest })
	}
	return chosen
}

// distance is how far a colour is from the nearest of a palette.
func distance(p color.Palette, c color.RGBA) int {
	near := color.RGBAModel.Convert(p.Convert(c)).(color.RGBA)
	r, g, b := int(near.R)-int(c.R), int(near.G)-int(c.G), int(near.B)-int(c.B)
	return r*r + g*g + b*b
}
