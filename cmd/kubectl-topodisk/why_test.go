package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/explain/collect"
	"github.com/topodisk/topodisk/internal/shell"
	"github.com/topodisk/topodisk/test/golden"
)

func TestSubjectsAreParsed(t *testing.T) {
	for line, want := range map[string]string{
		"pod db-0": "Pod db-0", "pods db-0": "Pod db-0", "po db-0": "Pod db-0", "Pod db-0": "Pod db-0", "pod/db-0": "Pod db-0", "po/db-0": "Pod db-0",
		"pvc data": "PersistentVolumeClaim data", "persistentvolumeclaim/data": "PersistentVolumeClaim data", "persistentvolumeclaims data": "PersistentVolumeClaim data",
		"pv d-1": "PersistentVolume d-1", "persistentvolumes d-1": "PersistentVolume d-1", "persistentvolume/d-1": "PersistentVolume d-1",
		"node n-1": "Node n-1", "nodes/n-1": "Node n-1", "no n-1": "Node n-1",
		"volumeattachment csi-1": "VolumeAttachment csi-1", "volumeattachments csi-1": "VolumeAttachment csi-1",
		"volumeattachment.storage.k8s.io/csi-1": "VolumeAttachment csi-1", "volumeattachments.storage.k8s.io csi-1": "VolumeAttachment csi-1",

		"":                       "no object is named; name one as TYPE NAME or TYPE/NAME, TYPE being one of pod (po), persistentvolumeclaim (pvc), ",
		"deployment web":         `TYPE "deployment" is not allowed: allowed are pod (po), persistentvolumeclaim (pvc), persistentvolume (pv), node (no) and volumeattachment`,
		"/web":                   `TYPE "" is not allowed: allowed are pod (po), `,
		"pods.storage.k8s.io db": `TYPE "pods.storage.k8s.io" is not allowed: `,
		"pvc":                    "the persistentvolumeclaim has no NAME; name one, such as: why pvc NAME",
		"pod/":                   `NAME "" is not allowed: it is to be the name of a pod`,
		"pod a/b":                `NAME "a/b" is not allowed: `,
		"pod ..":                 `NAME ".." is not allowed: `,
		"pod a b":                `argument "b" is one too many: allowed is one object, as TYPE NAME or TYPE/NAME`,
		"pod/a b":                `argument "b" is one too many: `,
	} {
		k, name, err := parseSubject(strings.Fields(line))
		got := k.name + " " + name
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.HasPrefix(got, want)) {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

func TestWhyRefusesWhatDoesntBelongTogether(t *testing.T) {
	refuses(t, true, map[string]string{
		"why --from=f pod db":          `error: argument "pod" is not allowed with --from: the file names the object`,
		"why --from=f --dump=g":        "error: --dump=g is not allowed with --from: the facts are in a file already",
		"why --from=f --driver-name=d": "error: --driver-name=d is not allowed with --from: the file names the driver",
		"why pod db --output=table":    "error: --output=table is not allowed: allowed are json, yaml, ",
		"why pod db --output=jsonpath": "error: template format specified but no template given",
		"why":                          "error: no object is named; ",
		"why --from=":                  "error: --from= is not allowed: allowed is a file that --dump has written, or -",
		"why pod db --driver-name=":    `error: invalid argument "" for "--driver-name" flag: it is empty; allowed is the name of a CSI driver, such as diskplugin.`,
	})
	refuses(t, false, map[string]string{
		"why --from=absent": "error: --from: open absent: no such file or directory\n",
		"why --from=why.go": "error: --from=why.go: it is no dump of facts",
	})
}

// dumps are those that package explain is tested with.
const dumps = "../../explain/testdata/facts/"

func TestADumpIsJudged(t *testing.T) {
	code, out, _ := ran(t, "why", "--from="+dumps+"attach-limit.yaml")
	if code != exitFound || !strings.HasPrefix(out, "Pod shop/web-0 waits: AttachLimitReached\n") {
		t.Errorf("exit code %d, printed\n%s", code, out)
	}
	code, out, _ = ran(t, "why", "--from="+dumps+"attach-limit.yaml", "--output=jsonpath={.kind} {.state} {.cause} {.reasons[0].nodes}")
	if code != exitFound || out != "Verdict Waits AttachLimitReached 2" {
		t.Errorf("exit code %d, printed %s", code, out)
	}
}

// All dumps can be printed; what is printed is what package explain says.
func TestEveryVerdictIsPrinted(t *testing.T) {
	files, err := filepath.Glob(dumps + "*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d dumps: %v", len(files), err)
	}
	for _, path := range files {
		text, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		facts, err := collect.ReadDump(text)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		v := explain.Why(facts)
		code, out, diagnostics := ran(t, "why", "--from="+path)
		if code != exitFound || diagnostics != "" {
			t.Errorf("%s: exit code %d, printed %s", path, code, diagnostics)
		}
		for _, said := range append([]string{string(v.Cause), v.Message, v.Retried}, commandTexts(v.Next)...) {
			if !strings.Contains(out, said) {
				t.Errorf("%s: %q is not printed:\n%s", path, said, out)
			}
		}
	}
}

func TestExitCodesFollowTheState(t *testing.T) {
	for state, want := range map[explain.State]error{explain.Works: nil, explain.Waits: exitError(exitFound), explain.Unknown: exitError(exitUnknown)} {
		if got := exitCodeOf(state); !errors.Is(got, want) {
			t.Errorf("%s: %v, want %v", state, got, want)
		}
	}
}

// everything is a verdict that has all that a verdict can have.
var everything = &explain.Verdict{
	Subject: explain.Ref{Kind: "Pod", Namespace: "shop", Name: "db-0"}, State: explain.Waits, Cause: explain.NoNodeInVolumeZone,
	Message: "No node of zone cn-hangzhou-h, where PersistentVolume d-bp1abcdefghijklmnop is, has room for Pod db-0, and the other nodes are in other zones.",
	Evidence: []explain.Evidence{
		{Object: explain.Ref{Kind: "PersistentVolume", Name: "d-bp1abcdefghijklmnop"}, Field: "spec.nodeAffinity", Value: `{"required":{"nodeSelectorTerms":[]}}`},
		{Object: explain.Ref{Kind: "CSINode", Name: "worker-1"}, Field: "spec.drivers"},
		{Object: explain.Ref{Kind: "Event", Namespace: "shop", Name: "db-0.1"}, Field: "message", Value: strings.Repeat("long ", 100)},
	},
	Actor: explain.ClusterAdmin, Next: []shell.Command{
		shell.New("kubectl", "get", "nodes", "--selector", "topology.kubernetes.io/zone=cn-hangzhou-h,kubernetes.io/os=linux"), shell.New("kubectl", "get", "pods")},
	Retried: "scheduler, when a node of the zone is added or has room",
	Reasons: []explain.Reason{{Cause: explain.PodUnschedulable, Message: "too little cpu is left", Nodes: 1}, {Cause: explain.NoNodeInVolumeZone, Message: "another zone", Nodes: 12}},
	Missing: []explain.Unread{{Kind: "Pod", Namespace: "till", Reason: "pods is forbidden"}, {Kind: "Node", Reason: "nodes is forbidden"}},
	Error:   &explain.DriverError{Code: "ResourceExhausted", Action: "AttachDisk", ECSCode: "InstanceDiskLimitExceeded", RequestID: "1F2A"},
}

func TestVerdictsAreShownToPeople(t *testing.T) {
	var out bytes.Buffer
	works := &explain.Verdict{Subject: explain.Ref{Kind: "Node", Name: "worker-1"}, State: explain.Works, Message: "Node worker-1 takes disks."}
	unknown := &explain.Verdict{Subject: explain.Ref{Kind: "Node", Name: "worker-1"}, State: explain.Unknown, Message: "CSINodes could not be read."}
	for _, s := range []screen{{}, {width: 80}, {width: 80, colour: true}, {width: 24}} {
		fmt.Fprintf(&out, "--- %d columns, colours: %v\n", s.width, s.colour)
		s.out = &out
		for _, v := range []*explain.Verdict{everything, works, unknown} {
			if err := printVerdict(&s, v); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&out)
		}
	}
	golden.Page(t, "testdata/verdicts.txt", strings.ReplaceAll(out.String(), "\x1b", "ESC"))
}

func TestLinesAreNotWiderThanTheTerminal(t *testing.T) {
	var out strings.Builder
	if err := printVerdict(&screen{out: &out, width: 60}, everything); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if len(strings.TrimRight(line, "\n")) > 60 && strings.Count(strings.TrimSpace(line), " ") > 0 && !strings.Contains(line, "kubectl get") {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
}

// A cluster that lets nobody read anything but a Pod.
func TestWhyReadsACluster(t *testing.T) {
	file := kubeconfigOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet && r.URL.Path == "/api/v1/namespaces/shop/pods/db-0" {
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"db-0"},"spec":{"containers":[{"name":"main","env":[{"name":"P","value":"s3cr3t"}]}]}}`)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Forbidden","message":"%s is forbidden","code":403}`, r.URL.Path)
	}))
	dump := filepath.Join(t.TempDir(), "facts.yaml")
	flags := []string{"--kubeconfig=" + file, "--context=d"}
	code, out, diagnostics := ran(t, append([]string{"why", "pod", "db-0", "--dump=" + dump}, flags...)...)
	if code != exitUnknown || !strings.HasPrefix(out, "Pod shop/db-0: unknown\n") || !strings.Contains(out, "Not read") || diagnostics != "" {
		t.Errorf("exit code %d, printed\n%s%s", code, out, diagnostics)
	}
	if info, err := os.Stat(dump); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the dump is %v, %v", info.Mode(), err)
	}
	again, judged, _ := ran(t, "why", "--from="+dump)
	if again != code || judged != out {
		t.Errorf("exit code %d, the dump is judged\n%s", again, judged)
	}
	code, text, _ := ran(t, append([]string{"why", "pod/db-0", "--dump=-"}, flags...)...)
	if code != exitFine || strings.Contains(text, "s3cr3t") || !strings.Contains(text, "name: db-0") || strings.Contains(text, "unknown\n") {
		t.Errorf("exit code %d, dumped\n%s", code, text)
	}
	code, out, diagnostics = ran(t, append([]string{"why", "pod", "db-1"}, flags...)...)
	if want := "error: Pod shop/db-1: /api/v1/namespaces/shop/pods/db-1 is forbidden\n"; code != exitFailed || out != "" || diagnostics != want {
		t.Errorf("exit code %d, printed %q and %q, want %q", code, out, diagnostics, want)
	}
}

func TestTypesAndNamesAreCompleted(t *testing.T) {
	file := kubeconfigOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","items":[{"metadata":{"name":%q}},{"metadata":{"name":"b"}}]}`,
			strings.ReplaceAll(strings.Trim(r.URL.Path, "/"), "/", "."))
	}))
	for line, want := range map[string]string{
		"why .":             "pod persistentvolumeclaim persistentvolume node volumeattachment :4",
		"why pvc .":         "api.v1.namespaces.shop.persistentvolumeclaims b :4",
		"why pod/":          "pod/api.v1.namespaces.shop.pods pod/b :4",
		"why pv .":          "api.v1.persistentvolumes b :4",
		"why job .":         ":4",
		"why pod db .":      ":4",
		"why --namespace .": "api.v1.namespaces b :4",
		"why --context .":   "c d :4",
		"why --output .":    "json yaml kyaml ",
	} {
		args := []string{"__complete", "--kubeconfig=" + file}
		if !strings.Contains(line, "--context") {
			args = append(args, "--context=d")
		}
		for _, word := range strings.Fields(line) {
			args = append(args, strings.TrimPrefix(word, "."))
		}
		_, out, _ := ran(t, args...)
		if got := strings.Join(strings.Fields(out), " "); got != want && (!strings.HasSuffix(want, " ") || !strings.HasPrefix(got, want)) {
			t.Errorf("%q: completed %q, want %q", line, got, want)
		}
	}
}
