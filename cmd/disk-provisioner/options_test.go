package main

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/topodisk/topodisk/provisioner/request"
)

func TestDeprecatedFlagsWarnAndWork(t *testing.T) {
	var warnings bytes.Buffer
	o, err := parse([]string{
		"--provisioner=diskplugin.csi.alibabacloud.com", "--csi-address=/csi/csi.sock", "--feature-gates=Topology=True",
		"--volume-name-prefix=disk", "--strict-topology=true", "--timeout=150s", "--enable-leader-election=true",
		"--leader-election-type=leases", "--retry-interval-start=500ms", "--connection-timeout=15s", "--metrics-address=127.0.0.1:9", "--v=5",
	}, &warnings)
	if err != nil {
		t.Fatal(err)
	}
	if !o.leaderElection || !o.topologyGate || o.httpEndpoint != "127.0.0.1:9" || o.provisioner != "diskplugin.csi.alibabacloud.com" {
		t.Errorf("got %+v", o)
	}
	c := o.config
	if c.VolumeNamePrefix != "disk" || !c.StrictTopology || c.Timeout != 150*time.Second || c.RetryStart != 500*time.Millisecond || c.PVNameSource != request.VolumeID {
		t.Errorf("got %+v", c)
	}
	for _, flag := range []string{"--provisioner ", "--connection-timeout ", "--enable-leader-election ", "--leader-election-type ", "--metrics-address ", "--feature-gates"} {
		if !strings.Contains(warnings.String(), flag) {
			t.Errorf("no warning of %s in\n%s", flag, &warnings)
		}
	}
}

func TestCurrentFlagsDoNotWarn(t *testing.T) {
	var warnings bytes.Buffer
	if _, err := parse([]string{"--leader-election", "--http-endpoint=127.0.0.1:9", "--extra-create-metadata"}, &warnings); err != nil || warnings.Len() > 0 {
		t.Errorf("got %v and %q", err, &warnings)
	}
}

func TestFlagErrorsNameAllowedValues(t *testing.T) {
	for args, want := range map[string][]string{
		"--strict-topology true":                        {`"true"`, "--strict-topology=true"},
		"--feature-gates=Magic=true":                    {"Magic=true", "CrossNamespaceVolumeDataSource", "NAME=true|false"},
		"--feature-gates=Topology=maybe":                {"Topology=maybe", "NAME=true|false"},
		"--leader-election-type=configmaps":             {"configmaps", "leases"},
		"--metrics-address=:1 --http-endpoint=:2":       {"--metrics-address and --http-endpoint"},
		"--csi-address=":                                {"--csi-address", "/csi/csi.sock"},
		"--kube-api-qps=0":                              {"--kube-api-qps=0"},
		"--kube-api-burst=0":                            {"--kube-api-burst=0"},
		"--leader-election-lease-duration=1s":           {"--leader-election-lease-duration=1s", "--leader-election-renew-deadline=10s"},
		"--leader-election-renew-deadline=5s":           {"--leader-election-renew-deadline=5s", "--leader-election-retry-period=5s"},
		"--pv-name-source=uid":                          {"--pv-name-source=uid", "volume-id and volume-name"},
		"--retry-interval-start=10m":                    {"--retry-interval-max=5m0s", "--retry-interval-start=10m0s"},
		"--timeout=soon":                                {"timeout", "soon"},
		"--enable-capacity --capacity-poll-interval=0s": {"--capacity-poll-interval=0s"},
		"--node-deployment":                             {"--node-deployment=true", "Deployment", "without the flag"},
		"--node-deployment-base-delay=20s":              {"--node-deployment-base-delay=20s", "the whole cluster"},
		"--claim-label-tags=team,createdby":             {"--claim-label-tags: label createdby can't become a tag", "the driver itself sets"},
		"--claim-label-tags=ack.aliyun.com":             {"--claim-label-tags: label ack.aliyun.com", "the driver itself sets"},
		"--claim-label-tags=Team!":                      {"--claim-label-tags", `"Team!" is no key of a label`},
		"--namespace-label-tags=aliyun.com/team":        {"--namespace-label-tags: label aliyun.com/team", "not with aliyun"},
		"--namespace-label-tags=a,b,c,d,e,f,g,h,i,j,k":  {"--namespace-label-tags: 11 labels; at most 10 are allowed"},
		"--feature-gates=HonorPVReclaimPolicy=false":    {"HonorPVReclaimPolicy can't be disabled"},
		"--reschedule-codes=Aborted":                    {"--reschedule-codes", `"Aborted"`, "InvalidArgument"},
		"--snapshot-orphan-sweep-interval=-1s":          {"--snapshot-orphan-sweep-interval=-1s", "0 for never"},
		"--enable-capacity=local":                       {"--enable-capacity", "local", "the whole cluster"},
		"--enable-capacity=perhaps":                     {"--enable-capacity", "perhaps", "true, false and central"},
		"--capacity-ownerref-level=-2":                  {"--capacity-ownerref-level=-2", "-1 (nobody)"},
		"--logging-format=xml":                          {"--logging-format=xml", "text and json"},
		"--metrics-path=":                               {"--metrics-path= ", "such as /metrics"},
		"--metrics-path=metrics":                        {"--metrics-path=metrics ", "such as /metrics"},
		"--metrics-path=/healthz":                       {"--metrics-path=/healthz ", "other than /healthz, /healthz/leader-election, /readyz"},
		"--metrics-path=/{":                             {"--metrics-path=/{ ", "braces"},
		"--metrics-path=//m":                            {"--metrics-path=//m ", "such as /metrics"},
		"--enable-pprof":                                {"--enable-pprof", "--http-endpoint"},

		"--leader-election-lease-duration=10900ms --leader-election-renew-deadline=10500ms": {
			"--leader-election-lease-duration=10.9s", "the Lease stores 10s", "--leader-election-renew-deadline=10.5s",
		},
	} {
		_, err := parse(strings.Fields(args), io.Discard)
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v does not say %q", args, err, part)
			}
		}
	}
}

func parsed(t *testing.T, args ...string) *options {
	t.Helper()
	o, err := parse(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestHelpAndVersionAreNoErrors(t *testing.T) {
	var help bytes.Buffer
	if _, err := parse([]string{"--help"}, &help); !errors.Is(err, pflag.ErrHelp) || !strings.Contains(help.String(), "--pv-name-source") {
		t.Errorf("got %v and %q", err, &help)
	}
	if o, err := parse([]string{"--version"}, io.Discard); err != nil || !o.showVersion {
		t.Errorf("got %v", err)
	}
}

func TestAMissingKubeconfigIsNamed(t *testing.T) {
	held := func() error { return nil }
	missing := filepath.Join(t.TempDir(), "none")
	if _, err := newClients(parsed(t, "--kubeconfig="+missing), held); err == nil || !strings.Contains(err.Error(), "--kubeconfig="+missing) {
		t.Errorf("got %v", err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", "")
	if _, err := newClients(parsed(t), held); err == nil || !strings.Contains(err.Error(), "--kubeconfig=FILE") {
		t.Errorf("got %v", err)
	}
}

func TestTheLeasesNamespace(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "storage")
	for args, want := range map[string]string{"": "storage", "--leader-election-namespace=other": "other"} {
		if got := parsed(t, strings.Fields(args)...).lease().Namespace; got != want {
			t.Errorf("%q: %s", args, got)
		}
	}
}

// everyFlag is every flag that csi-provisioner has or had, from v1.6.0 on, with a
// value that is not its default, and what it does here.
var everyFlag = []struct {
	flag string
	does func(o *options) bool // what it must do; nil for what does nothing but warn
}{
	{"--master=https://api:6443", func(o *options) bool { return o.cluster.Master == "https://api:6443" }},
	{"--kubeconfig=/k", func(o *options) bool { return o.cluster.Kubeconfig == "/k" }},
	{"--csi-address=/s", func(o *options) bool { return o.csiAddress == "/s" }},
	{"--volume-name-prefix=disk", func(o *options) bool { return o.config.VolumeNamePrefix == "disk" }},
	{"--retry-interval-start=2s", func(o *options) bool { return o.config.RetryStart == 2*time.Second }},
	{"--retry-interval-max=7m", func(o *options) bool { return o.config.RetryMax == 7*time.Minute }},
	{"--worker-threads=3", func(o *options) bool { return o.config.Workers == 3 }},
	{"--timeout=77s", func(o *options) bool { return o.config.Timeout == 77*time.Second }},
	{"--enable-leader-election=true", func(o *options) bool { return o.leaderElection }},
	{"--leader-election-type=endpoints", nil},
	{"--volume-name-uuid-length=8", nil},
	{"--cloning-protection-threads=3", nil},
	{"--capacity-threads=3", nil},
	{"--capacity-for-immediate-binding", nil},
	{"--kube-api-capacity-qps=7", nil},
	{"--kube-api-capacity-burst=7", nil},
	{"--log-flush-frequency=9s", nil},
	{"--leader-election", func(o *options) bool { return o.leaderElection }},
	{"--leader-election-namespace=ns", func(o *options) bool { return o.lease().Namespace == "ns" }},
	{"--leader-election-lease-duration=16s", func(o *options) bool { return o.lease().LeaseDuration == 16*time.Second }},
	{"--leader-election-renew-deadline=11s", func(o *options) bool { return o.lease().RenewDeadline == 11*time.Second }},
	{"--leader-election-retry-period=6s", func(o *options) bool { return o.lease().RetryPeriod == 6*time.Second }},
	{"--leader-election-labels=team=storage,tier=1", func(o *options) bool { l := o.lease().Labels; return l["team"] == "storage" && l["tier"] == "1" }},
	{"--strict-topology", func(o *options) bool { return o.config.StrictTopology }},
	{"--immediate-topology=false", func(o *options) bool { return !o.config.ImmediateTopology }},
	{"--extra-create-metadata", func(o *options) bool { return o.config.ExtraCreateMetadata }},
	{"--provisioner=x", nil},
	{"--connection-timeout=5s", nil},
	{"--metrics-address=:9", func(o *options) bool { return o.httpEndpoint == ":9" }},
	{"--metrics-path=/m", func(o *options) bool { return o.metricsPath == "/m" }},
	{"--http-endpoint=:9", func(o *options) bool { return o.httpEndpoint == ":9" }},
	{"--enable-pprof --http-endpoint=:9", func(o *options) bool { return o.pprof }},
	{"--feature-gates=Topology=false", func(o *options) bool { return !o.topologyGate }},
	{"--feature-gates=CrossNamespaceVolumeDataSource=true", func(o *options) bool { return o.config.CrossNamespace }},
	{"--feature-gates=VolumeAttributesClass=false", func(o *options) bool { return !o.config.AttributesClasses }},
	{"--feature-gates=ReleaseLeaderElectionOnExit=true,HonorPVReclaimPolicy=true", nil},
	{"--kube-api-qps=7", func(o *options) bool { return o.kubeAPIQPS == 7 }},
	{"--kube-api-burst=7", func(o *options) bool { return o.kubeAPIBurst == 7 }},
	{"--default-fstype=xfs", func(o *options) bool { return o.config.DefaultFSType == "xfs" }},
	{"--enable-capacity=central", func(o *options) bool { return o.config.Capacity }},
	{"--enable-capacity=true", func(o *options) bool { return o.config.Capacity }},
	{"--enable-capacity", func(o *options) bool { return o.config.Capacity }},
	{"--capacity-poll-interval=3m", func(o *options) bool { return o.config.CapacityPoll == 3*time.Minute }},
	{"--capacity-ownerref-level=2", func(o *options) bool { return o.ownerLevel == 2 }},
	{"--node-deployment=false", nil},
	{"--controller-publish-readonly", func(o *options) bool { return o.config.ReadOnlyPublish }},
	{"--prevent-volume-mode-conversion=false", func(o *options) bool { return !o.config.PreventModeConversion }},
	{"--snapshot-orphan-sweep-interval=9m", func(o *options) bool { return o.config.SnapshotSweep == 9*time.Minute }},
	{"--automaxprocs", nil},
	{"--logging-format=json", func(o *options) bool { return o.log.Format == "json" }},
	{"--log-json-split-stream --log-json-info-buffer-size=1k --log-text-split-stream --log-text-info-buffer-size=1k", nil},
	{"--version", func(o *options) bool { return o.showVersion }},
	{"--reschedule-codes=InvalidArgument,outofrange", func(o *options) bool { return len(o.config.RescheduleCodes) == 2 }},
	{"--claim-annotations=a,b", func(o *options) bool { return len(o.config.ClaimAnnotations) == 2 }},
	{"--v=0 --vmodule= --logtostderr=true --alsologtostderr=false --stderrthreshold=2 --skip_headers=false", nil},
}

func TestAllFlagsOfCSIProvisionerAreAccepted(t *testing.T) {
	neutral := parsed(t)
	for _, test := range everyFlag {
		var warnings bytes.Buffer
		o, err := parse(strings.Fields(test.flag), &warnings)
		if err != nil {
			t.Errorf("%s: %v", test.flag, err)
			continue
		}
		if test.does != nil && (!test.does(o) || test.does(neutral)) {
			t.Errorf("%s does nothing, or is the default: %+v", test.flag, o)
		}
	}
}

func TestIgnoredFlagsSayWhy(t *testing.T) {
	for flag, want := range map[string]string{
		"--automaxprocs":                            "--automaxprocs has been deprecated, it does nothing: the Go runtime",
		"--log-json-info-buffer-size=1k":            "the log is not buffered",
		"--capacity-for-immediate-binding":          "WaitForFirstConsumer only",
		"--kube-api-capacity-qps 7":                 "at 10 a second",
		"--capacity-threads 4":                      "one after the other",
		"--leader-election-type=endpoints":          "Kubernetes no longer has such locks",
		"--feature-gates=HonorPVReclaimPolicy=true": "on by default",
	} {
		var warnings bytes.Buffer
		if _, err := parse(strings.Fields(flag), &warnings); err != nil || !strings.Contains(warnings.String(), want) {
			t.Errorf("%s: %v, %q", flag, err, &warnings)
		}
	}
}
