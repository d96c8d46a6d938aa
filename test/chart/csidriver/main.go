// Command csidriver installs, upgrades and uninstalls the chart, with helm on a real API server, where the CSIDriver object is
// missing, is somebody else's, or is another Helm release's, and prints a line for each case.
//
//	cd test/chart && go run ./csidriver --helm=FILE   # with KUBECONFIG set to that of an API server for tests
//
// Last it applies deploy/topodisk.yaml, and leaves it there: run it on an API server of its own.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	driver    = "disk.example.com"
	ownDriver = "diskplugin.csi.alibabacloud.com" // of deploy/topodisk.yaml
)

// incumbents is the spec of the object that kubernetes-sigs/alibaba-cloud-csi-driver makes.
const incumbents = "{attachRequired: true, podInfoOnMount: true}"

// object is a CSIDriver object of somebody else.
func object(name, release, spec string) string {
	metadata := "name: " + name
	if release != "" {
		metadata += ", labels: {app.kubernetes.io/managed-by: Helm}, annotations: {meta.helm.sh/release-name: " + release + ", meta.helm.sh/release-namespace: kube-system}"
	}
	return "{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {" + metadata + "}, spec: " + spec + "}"
}

func main() {
	helm := flag.String("helm", "helm", "the program")
	repo := flag.String("repo", "../..", "root of the repository")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s := &session{ctx: ctx, helm: *helm, chart: filepath.Join(*repo, "charts/topodisk")}
	for _, c := range []struct {
		name string
		play func(*session)
	}{
		{"no object", (*session).none},
		{"the incumbent's object", (*session).incumbents},
		{"another release's object", (*session).releases},
		{"an object that no disk can be used with", (*session).unusable},
		{"the release's object, made again by somebody else", (*session).madeAgain},
		{"the release's object, made again by another release", (*session).madeAgainByRelease},
		{"deploy/topodisk.yaml over the incumbent's object", func(s *session) { s.applied(filepath.Join(*repo, "deploy/topodisk.yaml")) }},
	} {
		if c.play(s); s.err != nil {
			fmt.Fprintf(os.Stderr, "csidriver: %s: %v\n", c.name, s.err)
			os.Exit(1)
		}
		fmt.Println("ok      ", c.name)
	}
}

// session runs programs until one of them or an expectation fails.
type session struct {
	ctx         context.Context //nolint:containedctx // of the program
	helm, chart string
	err         error
}

func (s *session) run(input, program string, args ...string) string {
	if s.err != nil {
		return ""
	}
	command := exec.CommandContext(s.ctx, program, args...)
	command.Stdin = strings.NewReader(input)
	output, err := command.CombinedOutput()
	if err != nil {
		s.err = fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, output)
	}
	return string(output)
}

func (s *session) expect(what string, is bool) {
	if s.err == nil && !is {
		s.err = errors.New("not so: " + what)
	}
}

// release runs helm install or helm upgrade, and returns the notes.
func (s *session) release(verb string, more ...string) string {
	return s.run("", s.helm, append(append(arguments(verb), more...), s.chart)...)
}

// refused runs helm, which is to fail, and returns why it did.
func (s *session) refused(verb string) string {
	if s.err != nil {
		return ""
	}
	s.release(verb)
	reason := s.err
	if s.err = nil; reason == nil {
		s.err = fmt.Errorf("helm %s did not fail", verb)
		return ""
	}
	return reason.Error()
}

// takeOver installs topodisk where another driver's object is, and returns the notes.
func (s *session) takeOver() string {
	reason := s.refused("install")
	s.expect("an installation says what to do: "+reason, strings.Contains(reason, "kubectl topodisk plan takeover"))
	return s.release("install", "--set=takeover=true")
}

func arguments(verb string) []string {
	return []string{verb, "disks", "--namespace=kube-system", "--set=driverName=" + driver, "--set=region=cn-hangzhou",
		"--set=image.repository=registry.example.com/topodisk", "--set=credentials.existingSecret=key", "--set-json=storageClasses=[]"}
}

func (s *session) uninstall() { s.run("", s.helm, "uninstall", "disks", "--namespace=kube-system") }

// found is what is asked of a CSIDriver object.
type found struct {
	Metadata struct {
		UID         string
		Annotations map[string]string
	}
	Spec map[string]any
}

// get returns the object, one without UID if there is none.
func (s *session) get(name string) (f found) {
	text := s.run("", "kubectl", "get", "csidriver", name, "--ignore-not-found", "--output=json")
	if s.err == nil && text != "" {
		s.err = json.Unmarshal([]byte(text), &f)
	}
	return f
}

func (f found) isOurs() bool { return f.Metadata.Annotations["meta.helm.sh/release-name"] == "disks" }

func (s *session) none() {
	notes := s.release("install")
	f := s.get(driver)
	s.expect("it is made, with all fields", f.isOurs() && f.Spec["nodeAllocatableUpdatePeriodSeconds"] == 60.0 && f.Spec["fsGroupPolicy"] == "File")
	s.expect("the notes say nothing of it: "+notes, !strings.Contains(notes, "CSIDriver"))
	s.release("upgrade")
	s.expect("it stays the same object", s.get(driver).Metadata.UID == f.Metadata.UID)
	s.uninstall()
	s.expect("it goes with the release", s.get(driver).Metadata.UID == "")
}

var patch = regexp.MustCompile(`(?m)^  (kubectl patch csidriver .*)$`)

func (s *session) incumbents() { s.adopts("", "is there already. It stays") }

func (s *session) releases() {
	s.adopts("alibaba", "is there already, of Helm release alibaba in namespace kube-system. It stays")
}

// adopts installs topodisk beside an object of the incumbent's shape, changes that as the notes say, upgrades and uninstalls.
func (s *session) adopts(release, says string) {
	s.run(object(driver, release, incumbents), "kubectl", "create", "--filename=-")
	before := s.get(driver)
	notes := s.takeOver()
	s.expect("the notes say that it "+says+": "+notes, strings.Contains(notes, says))
	f := s.get(driver)
	s.expect("it is left alone", f.Metadata.UID == before.Metadata.UID && !f.isOurs() && f.Spec["podInfoOnMount"] == true)
	command := patch.FindStringSubmatch(notes)
	s.expect("the notes have a command: "+notes, command != nil)
	if s.err == nil {
		s.run("", "sh", "-ec", command[1])
	}
	f = s.get(driver)
	s.expect("the command sets all fields",
		f.Spec["nodeAllocatableUpdatePeriodSeconds"] == 60.0 && f.Spec["fsGroupPolicy"] == "File" && f.Spec["podInfoOnMount"] == false)
	notes = s.release("upgrade")
	s.expect("then nothing is left to change: "+notes, strings.Contains(notes, says) && !strings.Contains(notes, "kubectl patch csidriver"))
	s.uninstall()
	s.expect("it outlives the release", s.get(driver).Metadata.UID == before.Metadata.UID)
	s.run("", "kubectl", "delete", "csidriver", driver)
}

func (s *session) unusable() {
	s.run(object(driver, "", "{attachRequired: false}"), "kubectl", "create", "--filename=-")
	notes := s.takeOver()
	s.expect("the notes say what to type: "+notes, strings.Contains(notes, "No disk can be used with it: attachRequired is false") &&
		strings.Contains(notes, "\n  kubectl delete csidriver "+driver+"\n"))
	s.run("", "kubectl", "delete", "csidriver", driver)
	s.release("upgrade")
	f := s.get(driver)
	s.expect("helm upgrade makes it anew", f.isOurs() && f.Spec["attachRequired"] == true)
	s.uninstall()
	s.expect("it goes with the release", s.get(driver).Metadata.UID == "")
}

// madeAgain has somebody delete the release's object and make another of its name: Helm corrects that one as it corrects any of the
// release's objects, and doesn't delete it.
func (s *session) madeAgain() {
	s.release("install")
	s.replace("", incumbents)
	before := s.get(driver)
	notes := s.release("upgrade")
	f := s.get(driver)
	s.expect("it is the same object", f.Metadata.UID == before.Metadata.UID)
	s.expect("it is the release's again, with all fields",
		f.isOurs() && f.Spec["nodeAllocatableUpdatePeriodSeconds"] == 60.0 && f.Spec["podInfoOnMount"] == false)
	s.expect("the notes say nothing of it: "+notes, !strings.Contains(notes, "CSIDriver"))
	s.release("upgrade")
	s.expect("it stays", s.get(driver).Metadata.UID == before.Metadata.UID)

	s.replace("", "{attachRequired: false}")
	before = s.get(driver)
	reason := s.refused("upgrade")
	s.expect("the upgrade says what to type: "+reason, strings.Contains(reason, "kubectl delete csidriver "+driver))
	s.expect("it is left alone", s.get(driver).Metadata.UID == before.Metadata.UID)
	s.run("", "kubectl", "delete", "csidriver", driver)
	s.release("upgrade")
	s.expect("helm upgrade makes it anew", s.get(driver).isOurs())
	s.uninstall()
	s.expect("it goes with the release", s.get(driver).Metadata.UID == "")
}

var keep = regexp.MustCompile(`kubectl annotate csidriver \S+ \S+`)

// madeAgainByRelease has another Helm release make an object in the place of the release's.
func (s *session) madeAgainByRelease() {
	s.release("install")
	s.replace("alibaba", incumbents)
	before := s.get(driver)
	reason := s.refused("upgrade")
	s.expect("the upgrade says whose it is: "+reason, strings.Contains(reason, "of Helm release alibaba in namespace kube-system"))
	command := keep.FindString(reason)
	s.expect("the upgrade says what to type: "+reason, command != "")
	if s.err == nil {
		s.run("", "sh", "-ec", command)
	}
	for range 2 {
		notes := s.release("upgrade")
		s.expect("the notes say that it stays: "+notes, strings.Contains(notes, "is there already, of Helm release alibaba"))
		f := s.get(driver)
		s.expect("it is left alone", f.Metadata.UID == before.Metadata.UID && !f.isOurs() && f.Spec["podInfoOnMount"] == true)
	}
	s.uninstall()
	s.expect("it outlives the release", s.get(driver).Metadata.UID == before.Metadata.UID)
	s.run("", "kubectl", "delete", "csidriver", driver)
}

// replace makes another object in the place of the one that is there.
func (s *session) replace(release, spec string) {
	s.run("", "kubectl", "delete", "csidriver", driver)
	s.run(object(driver, release, spec), "kubectl", "create", "--filename=-")
}

// applied applies the plain manifests over the incumbent's object.
func (s *session) applied(manifests string) {
	s.run("", "kubectl", "delete", "csidriver", ownDriver, "--ignore-not-found")
	s.run(object(ownDriver, "", incumbents), "kubectl", "create", "--filename=-")
	before := s.get(ownDriver)
	s.run("", "kubectl", "apply", "--filename="+manifests)
	f := s.get(ownDriver)
	s.expect("it is changed in its place", f.Metadata.UID == before.Metadata.UID && f.Spec["podInfoOnMount"] == false && f.Spec["fsGroupPolicy"] == "File")
}
