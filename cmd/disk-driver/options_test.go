package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
)

var good = []string{"--endpoint=unix:///csi/csi.sock", "--region=cn-hangzhou", "--cluster-id=c1"}

func parsed(t *testing.T, args ...string) *options {
	t.Helper()
	o, err := parse(append(good, args...), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestFlagsAreTaken(t *testing.T) {
	o := parsed(t, "--mode=controller", "--ecs-endpoint=http://127.0.0.1:1", "--signature=v1", "--credentials-dir=/keys", "--credentials-files=ak,sk,token", "--sts-endpoint=http://127.0.0.1:2", "--metadata-endpoint=http://127.0.0.1:3", "--unknown-parameters=warn",
		"--pv-topology-key=topology.diskplugin.csi.alibabacloud.com/zone", "--driver-name=disk.example.com", "--http-endpoint=127.0.0.1:0", "--v=4")
	config := o.driver(nil, nil)
	if config.Name != "disk.example.com" || config.Region != "cn-hangzhou" || config.ClusterID != "c1" || config.Unknown != "warn" ||
		config.TopologyKey != "topology.diskplugin.csi.alibabacloud.com/zone" {
		t.Errorf("driver config %+v", config)
	}
	if s := o.sources(nil); s.Directory != "/keys" || s.Files != (credentials.FileNames{ID: "ak", Secret: "sk", Token: "token"}) || s.Region != "cn-hangzhou" || s.STSEndpoint != "http://127.0.0.1:2" || s.MetadataEndpoint != "http://127.0.0.1:3" {
		t.Errorf("sources %+v", s)
	}
	allowed := parsed(t, "--allow-mkfs-option=-E packed_meta_blocks", "--allow-mkfs-option", "-g", "--allow-mount-option=norecovery").driver(nil, nil).Allowed
	if _, err := disk.ParseMkfsOptions("ext4", "-E packed_meta_blocks=1 -g 8192", allowed); err != nil {
		t.Error(err)
	}
	if err := disk.CheckMountOption("ext4", "norecovery", allowed); err != nil {
		t.Error(err)
	}
	if client := o.ecs(nil, nil); client.Endpoint != "http://127.0.0.1:1" || client.Region != "cn-hangzhou" || client.ClusterID != "c1" || client.Signature != "v1" || parsed(t).ecs(nil, nil).Signature != "v3" {
		t.Errorf("ECS config %+v", client)
	}
}

func TestNamesOfFlagsOf010AreTaken(t *testing.T) {
	var out strings.Builder
	o, err := parse(append(good, "--departure=7m", "--drain=8s"), &out)
	if err != nil || o.nodeDrainTimeout != 7*time.Minute || o.shutdownGrace != 8*time.Second {
		t.Errorf("got %v and %v, %v", o.nodeDrainTimeout, o.shutdownGrace, err)
	}
	if !strings.Contains(out.String(), "use --node-drain-timeout") || !strings.Contains(out.String(), "use --shutdown-grace-period") {
		t.Errorf("printed %q", out.String())
	}
	if o = parsed(t); o.nodeDrainTimeout != 5*time.Minute || o.shutdownGrace != 25*time.Second {
		t.Errorf("without them %v and %v", o.nodeDrainTimeout, o.shutdownGrace)
	}
}

func TestBadFlagsAreNamedWithWhatIsAllowed(t *testing.T) {
	without := func(name string) []string {
		var rest []string
		for _, arg := range good {
			if !strings.HasPrefix(arg, "--"+name) {
				rest = append(rest, arg)
			}
		}
		return rest
	}
	for _, row := range []struct {
		args []string
		want string
	}{
		{without("region"), "--region is missing; for example --region=cn-hangzhou"},
		{append(good, "--region=cn-hangzhou-h"), "--region=cn-hangzhou-h is not allowed"},
		{append(good, "--region=ap-southeast-1a"), "--region=ap-southeast-1a is not allowed"},
		{without("endpoint"), "--endpoint is missing; for example --endpoint=unix:///csi/csi.sock"},
		{append(good, "--endpoint=tcp://127.0.0.1:1"), `endpoint "tcp://127.0.0.1:1": allowed is a unix socket`},
		{append(good, "--endpoint=unix://csi.sock"), "with an absolute path"},
		{append(good, "--mode=both"), "--mode=both is not allowed: allowed are controller, node and all"},
		{append(good, "--mode=all"), "--node-name is missing; for example --node-name=cn-hangzhou.192.168.0.1"},
		{[]string{"--mode=node", "--node-name=n1"}, "--endpoint is missing"},
		{append(good, "--credentials-files=ak,sk"), "--credentials-files=ak,sk is not allowed: allowed are three names of files, such as access-key-id,access-key-secret,security-token"},
		{append(good, "--credentials-files=a/k,sk,token"), "--credentials-files=a/k,sk,token is not allowed"},
		{append(good, "--volume-attach-limit=-1"), "--volume-attach-limit=-1 is not allowed: allowed is a number of volumes, or 0"},
		{append(good, "--reserved-attachments=-1"), "--reserved-attachments=-1 is not allowed: allowed is a number of disks from 0"},
		{append(good, "--reserved-attachments=1", "--volume-attach-limit=9"), "--volume-attach-limit=9 and --reserved-attachments=1 are not allowed together"},
		{append(good, "--node-drain-timeout=-1s"), "--node-drain-timeout=-1s is not allowed"},
		{append(good, "--unknown-parameters=ignore"), "--unknown-parameters=ignore is not allowed: allowed are refuse and warn"},
		{append(good, "--signature=v2"), `--signature: version "v2" is not allowed: allowed are v3 and v1`},
		{append(good, "--pv-topology-key=zone"), "--pv-topology-key=zone is not allowed"},
		{append(good, "--extra-tags=team"), "--extra-tags"},
		{append(good, "--extra-tags=team=web,ack.aliyun.com=c2"), "--extra-tags: ack.aliyun.com=c2 is not allowed: the driver itself sets the tag ack.aliyun.com"},
		{append(good, "--extra-tags=csi.alibabacloud.com/read-only/i-1=true"), "the driver itself sets the tag csi.alibabacloud.com/read-only/i-1"},
		{append(good, "--extra-tags=acs:team=web"), "--extra-tags: acs:team=web is not allowed: a tag can't start with acs:"},
		{append(good, "--extra-tags=link=http://x"), "neither can hold http:// or https://"},
		{append(good, "--extra-tags=team="+strings.Repeat("x", 129)), "at most 128 characters"},
		{append(good, "--extra-tags=a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8,i=9,j=10,k=11"), "--extra-tags: 11 tags; at most 10 are allowed"},
		{append(good, "--allow-mkfs-option=-z undo"), `--allow-mkfs-option="-z undo" is not allowed: no option may name a file`},
		{append(good, "--allow-mkfs-option=-E a,b"), `--allow-mkfs-option="-E a,b" is not allowed: allowed is a flag, or a flag and one setting`},
		{append(good, "--allow-mount-option=norecovery", "--allow-mount-option=logdev"), `--allow-mount-option="logdev" is not allowed: no option may name a file or a device`},
		{append(good, "--http-endpoint=8080"), "--http-endpoint=8080 is not allowed"},
		{append(good, "--shutdown-grace-period=-1s"), "--shutdown-grace-period=-1s is not allowed"},
		{append(good, "now"), `argument "now" is not allowed`},
		{append(good, "--regoin=x"), "unknown flag: --regoin"},
	} {
		if _, err := parse(row.args, io.Discard); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v: got %v, want %q", row.args, err, row.want)
		}
	}
}

func TestVersionAndHelpNeedNoOtherFlag(t *testing.T) {
	if o, err := parse([]string{"--version"}, io.Discard); err != nil || !o.showVersion {
		t.Errorf("got %+v, %v", o, err)
	}
	var help strings.Builder
	if _, err := parse([]string{"--help"}, &help); !errors.Is(err, pflag.ErrHelp) || !strings.Contains(help.String(), "--cluster-id") {
		t.Errorf("got %v and %q", err, help.String())
	}
}

func TestPagesAnswerHealthReadinessAndMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "story_total", Help: "x"}))
	ready := &readiness{}
	pages, err := servePages("", registry, ready.check)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(path string, code int, text string) {
		t.Helper()
		answer, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
		request.RemoteAddr = "127.0.0.1:1234" // others are not told why
		pages.Handler.ServeHTTP(answer, request)
		if answer.Code != code || !strings.Contains(answer.Body.String(), text) {
			t.Errorf("%s: %d %q, want %d with %q", path, answer.Code, answer.Body.String(), code, text)
		}
	}
	expect("/readyz", http.StatusOK, "ok\n")
	ready.await("ECS", errors.New("no file access-key-id"))
	ready.await("kubelet", errors.New("not registered"))
	expect("/readyz", http.StatusServiceUnavailable, "ECS: no file access-key-id\nkubelet: not registered")
	expect("/healthz", http.StatusOK, "ok\n")
	expect("/metrics", http.StatusOK, "story_total 0")
	ready.await("ECS", nil)
	ready.await("kubelet", nil)
	expect("/readyz", http.StatusOK, "ok\n")
}

func TestATakenHTTPEndpointIsNamed(t *testing.T) {
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	address := strings.TrimPrefix(taken.URL, "http://")
	if _, err := servePages(address, prometheus.NewRegistry(), func() error { return nil }); err == nil || !strings.Contains(err.Error(), "--http-endpoint="+address) {
		t.Errorf("got %v", err)
	}
}
