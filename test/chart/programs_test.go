package chart

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// dockerfile is what the tests need to know of the Dockerfile.
type dockerfile struct {
	build   string            // the go build command, a shell line
	sources []string          // what is copied from the repository
	image   map[string]string // files of the image by path, and where they come from in the build stage
}

func readDockerfile(t *testing.T) dockerfile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repo, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	d := dockerfile{image: map[string]string{}}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		words := strings.Fields(line)
		switch {
		case len(words) == 4 && words[0] == "COPY" && words[1] == "--from=build":
			d.image[words[3]] = words[2]
		case len(words) > 1 && words[0] == "COPY" && strings.HasPrefix(words[1], "--from="): // of Debian's packages
		case len(words) > 2 && words[0] == "COPY":
			d.sources = append(d.sources, words[1:len(words)-1]...)
		case len(words) > 1 && words[0] == "RUN" && strings.Contains(line, "go build"):
			d.build = strings.TrimSpace(strings.TrimPrefix(line, "RUN"))
		}
	}
	if d.build == "" || len(d.sources) == 0 || len(d.image) == 0 {
		t.Fatalf("the Dockerfile has no go build, copies nothing in or nothing out: %+v", d)
	}
	return d
}

// buildPrograms runs the Dockerfile's own build command into a directory of
// the test, with the simulator beside what goes into the image.
func buildPrograms(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	command := strings.ReplaceAll(readDockerfile(t).build, "-o /out/", "-o "+dir+"/") + " ./cmd/ecs-simulator"
	build := exec.CommandContext(t.Context(), "sh", "-ec", command)
	build.Dir = repo
	build.Env = append(os.Environ(), "TARGETOS=linux", "TARGETARCH=", "VERSION=9.8.7")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, output)
	}
	return dir
}

// TestImage builds the programs as the Dockerfile does and holds the chart to them.
func TestImage(t *testing.T) {
	bin := buildPrograms(t)
	pods := map[string]corev1.PodSpec{}
	for _, name := range []string{"minimal", "full", "single"} {
		pods[name] = ownContainers(t, preset(t, name, ""))
	}
	t.Run("has everything that is copied into it", func(t *testing.T) { checkCopies(t, bin) })
	t.Run("has every command of the Pod", func(t *testing.T) {
		image := readDockerfile(t).image
		for _, c := range pods["minimal"].Containers {
			if len(c.Command) != 1 || path.Base(image[c.Command[0]]) != path.Base(c.Command[0]) {
				t.Errorf("%s runs %v; the image has %v", c.Name, c.Command, image)
			}
		}
	})
	t.Run("has static programs stamped with the version", func(t *testing.T) { checkPrograms(t, bin) })
	t.Run("knows every flag of the Pod", func(t *testing.T) {
		for name, pod := range pods {
			checkFlags(t, bin, name, pod)
		}
	})
	t.Run("knows every flag of the node plugin", func(t *testing.T) {
		for from, name := range map[string]string{"minimal": "topodisk-node", "full": "topodisk-node-gpu"} {
			checkFlags(t, bin, from, daemonSet(t, preset(t, from, ""), name).Spec.Template.Spec)
		}
	})
	t.Run("has a flag for every value", func(t *testing.T) { checkValues(t, bin) })
	t.Run("is alive and not ready while ECS does not answer", func(t *testing.T) { checkWithoutECS(t, bin, pods["minimal"]) })
	t.Run("is alive without its Secret and names Secret and key", func(t *testing.T) { checkWithoutSecret(t, bin, pods["minimal"]) })
	t.Run("is ready once ECS answers to the keys of the Secret", func(t *testing.T) { checkWithECS(t, bin, pods["minimal"]) })
}

// ownContainers returns the controller's Pod without the sidecars, whose images
// are not ours.
func ownContainers(t *testing.T, values map[string]any) corev1.PodSpec {
	pod := controllerPod(t, values)
	pod.Containers = slices.DeleteFunc(pod.Containers, func(c corev1.Container) bool { return len(c.Command) == 0 })
	return pod
}

func checkCopies(t *testing.T, bin string) {
	d := readDockerfile(t)
	for _, source := range d.sources {
		if _, err := os.Stat(filepath.Join(repo, source)); err != nil {
			t.Errorf("the Dockerfile copies %s: %v", source, err)
		}
	}
	for _, from := range d.image {
		if name, built := strings.CutPrefix(from, "/out/"); built {
			if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
				t.Errorf("the Dockerfile copies %s, which its go build does not make", from)
			}
		}
	}
}

func checkPrograms(t *testing.T, bin string) {
	for _, program := range []string{"disk-driver", "disk-provisioner"} {
		file := filepath.Join(bin, program)
		binary, err := elf.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer binary.Close()
		for _, segment := range binary.Progs {
			if segment.Type == elf.PT_INTERP {
				t.Errorf("%s needs a dynamic linker, which the image has not", program)
			}
		}
		output, err := exec.CommandContext(t.Context(), file, "--version").CombinedOutput()
		if err != nil || !strings.Contains(string(output), "9.8.7") {
			t.Errorf("%s --version says %q, %v; want the version 9.8.7 that it was built with", program, output, err)
		}
	}
}

var flagLine = regexp.MustCompile(`(?m)^ +(?:-\w, )?--?([a-z][a-z0-9-]*)`)

// flagsOf returns the flags that a program's help tells.
func flagsOf(t *testing.T, bin, program string) []string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), filepath.Join(bin, program), "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%s --help: %v\n%s", program, err, output)
	}
	var flags []string
	for _, match := range flagLine.FindAllStringSubmatch(string(output), -1) {
		flags = append(flags, match[1])
	}
	if len(flags) < 5 {
		t.Fatalf("%s --help tells only %v:\n%s", program, flags, output)
	}
	return flags
}

func checkFlags(t *testing.T, bin, preset string, pod corev1.PodSpec) {
	for _, c := range pod.Containers {
		known := flagsOf(t, bin, path.Base(c.Command[0]))
		for _, arg := range c.Args {
			name, _, valued := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if !valued || !slices.Contains(known, name) {
				t.Errorf("preset %s: %s is given %s; it knows %v", preset, c.Name, arg, known)
			}
		}
	}
}

var upper = regexp.MustCompile(`[A-Z]`)

// checkValues holds the values of a program to its flags, name by name.
func checkValues(t *testing.T, bin string) {
	schema, err := ReadSchema(repo)
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{"diskDriver": "disk-driver", "diskProvisioner": "disk-provisioner"}
	for _, group := range schema.Properties {
		program, ok := programs[group.Name]
		if !ok {
			continue
		}
		known := flagsOf(t, bin, program)
		for _, value := range group.Schema.Properties {
			flag := upper.ReplaceAllStringFunc(value.Name, func(s string) string { return "-" + strings.ToLower(s) })
			if value.Name == "extraArgs" || value.Name == "resources" {
				continue
			}
			if !slices.Contains(known, flag) || !strings.Contains(value.Schema.Description, "--"+flag) {
				t.Errorf("value %s.%s: %s has no flag --%s, or the description does not name it", group.Name, value.Name, program, flag)
			}
		}
	}
}

// runPod runs the Pod's containers on this machine with their own flags, but
// for what only a Pod has, and returns where each answers its probes. The log
// of disk-driver goes into the returned buffer.
func runPod(t *testing.T, bin string, pod corev1.PodSpec, ecs string, keys map[string]string) (addresses map[string]string, log *output) {
	dir := t.TempDir()
	credentials := filepath.Join(dir, "topodisk-credentials")
	if err := os.Mkdir(credentials, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, value := range keys {
		write(t, filepath.Join(credentials, name), value)
	}
	kubeconfig, socket := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "csi.sock")
	write(t, kubeconfig, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "http://%s"}}]}`, unusedAddress(t)))
	local := map[string][]string{
		"disk-driver":     {"--endpoint=unix://" + socket, "--credentials-dir=" + credentials, "--ecs-endpoint=http://" + ecs},
		"csi-provisioner": {"--csi-address=" + socket, "--kubeconfig=" + kubeconfig},
	}
	addresses = map[string]string{}
	for _, c := range pod.Containers {
		addresses[c.Name] = unusedAddress(t)
		out := start(t, filepath.Join(bin, c.Command[0]), slices.Concat(c.Args, local[c.Name], []string{"--http-endpoint=" + addresses[c.Name]}))
		if c.Name == "disk-driver" {
			log = out
		}
	}
	return addresses, log
}

// answers asks every probe of the Pod once: "ok", or what is wrong.
func answers(t *testing.T, pod corev1.PodSpec, addresses map[string]string) map[string]string {
	got := map[string]string{}
	for _, c := range pod.Containers {
		for name, probe := range probes(c) {
			got[c.Name+" "+name] = ask(t, "http://"+addresses[c.Name]+probe.HTTPGet.Path)
		}
	}
	return got
}

// keys are what the Secret holds.
var keys = map[string]string{"access-key-id": "an-id", "access-key-secret": "a-secret\n"}

// checkAnswers has both programs alive, the driver ready as said, and the provisioner not ready for a reason that says
// why: there is no API server in these tests.
func checkAnswers(t *testing.T, got map[string]string, driverReady bool, why string) {
	t.Helper()
	for _, alive := range []string{"disk-driver liveness", "csi-provisioner liveness"} {
		if got[alive] != "ok" {
			t.Errorf("%s: %s", alive, got[alive])
		}
	}
	if driver := got["disk-driver readiness"]; (driver == "ok") != driverReady {
		t.Errorf("disk-driver readiness: %s", driver)
	}
	if provisioner := got["csi-provisioner readiness"]; !strings.Contains(provisioner, why) {
		t.Errorf("csi-provisioner readiness: %q, want it to say %q", provisioner, why)
	}
}

func checkWithoutECS(t *testing.T, bin string, pod corev1.PodSpec) {
	addresses, log := runPod(t, bin, pod, unusedAddress(t), keys)
	log.await(t, "the driver is not ready")
	checkAnswers(t, answers(t, pod, addresses), false, "the driver")
}

func checkWithoutSecret(t *testing.T, bin string, pod corev1.PodSpec) {
	addresses, log := runPod(t, bin, pod, unusedAddress(t), nil)
	for _, name := range []string{"topodisk-credentials", "access-key-id", "access-key-secret"} {
		log.await(t, name)
	}
	checkAnswers(t, answers(t, pod, addresses), false, "the driver")
}

func checkWithECS(t *testing.T, bin string, pod corev1.PodSpec) {
	address := unusedAddress(t)
	simulator := start(t, filepath.Join(bin, "ecs-simulator"),
		[]string{"--listen=" + address, "--region=cn-hangzhou", "--zone=cn-hangzhou-i", "--access-key=an-id=a-secret"})
	simulator.await(t, "listening on")
	addresses, log := runPod(t, bin, pod, address, keys)
	log.await(t, "the driver is ready")
	const noAPIServer = "the caches are not full"
	var got map[string]string
	for range 200 { // csi-provisioner connects in its own time
		if got = answers(t, pod, addresses); strings.Contains(got["csi-provisioner readiness"], noAPIServer) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	checkAnswers(t, got, true, noAPIServer)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// unusedAddress returns an address of this machine at which nothing listens.
func unusedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// output is what a program has printed so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// await returns once the program has printed the text.
func (o *output) await(t *testing.T, text string) {
	t.Helper()
	for range 400 {
		if strings.Contains(o.String(), text) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("not printed within 20 s: %s", text)
}

// start runs a program until the test ends, and shows its output if the test failed.
func start(t *testing.T, program string, args []string) *output {
	t.Helper()
	out := &output{}
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, program, args...)
	command.Stdout, command.Stderr = out, out
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = command.Wait() // it was killed
		if t.Failed() {
			t.Logf("%s %s:\n%s", program, strings.Join(args, " "), out)
		}
	})
	return out
}

// ask returns the answer once there is one.
func ask(t *testing.T, url string) string {
	t.Helper()
	var last error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		response, err := http.Get(url)
		if err != nil {
			last = err // not listening yet
			continue
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || (response.StatusCode == http.StatusOK) != (string(body) == "ok\n") {
			t.Fatalf("%s: %s %q, %v", url, response.Status, body, err)
		}
		return strings.TrimSpace(string(body))
	}
	t.Fatalf("no answer within 20 s: %v", last)
	return ""
}
