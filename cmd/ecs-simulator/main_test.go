package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/golden"
)

func TestMain(m *testing.M) { golden.Main(m, main) }

var place = []string{"--region=cn-hangzhou", "--zone=cn-hangzhou-h"}

func TestFlagsThatAreWrongAreNamed(t *testing.T) {
	for _, tt := range []struct {
		name     string
		args     []string
		mentions []string
	}{
		{"no region", []string{"--zone=cn-hangzhou-h"}, []string{"--region", "cn-hangzhou"}},
		{"no zone", []string{"--region=cn-hangzhou"}, []string{"--zone", "cn-hangzhou-h"}},
		{"a zone of another region", append(place, "--zone=cn-beijing-a"), []string{`--zone "cn-beijing-a"`, "cn-hangzhou"}},
		{"an instance without a type", append(place, "--instance=i-1=cn-hangzhou-h"), []string{`--instance "i-1=cn-hangzhou-h"`, "ID=zone/type"}},
		{"an instance in an unknown zone", append(place, "--instance=i-1=x/ecs.g7.large"), []string{`--instance "x"`, "cn-hangzhou-h"}},
		{"an instance of an unknown type", append(place, "--instance=i-1=cn-hangzhou-h/ecs.g7.lagre"), []string{`--instance "ecs.g7.lagre"`, "did you mean ecs.g7.large?", "--instance-type"}},
		{"a type without disks", append(place, "--instance-type=ecs.a.b"), []string{`--instance-type "ecs.a.b"`, "DiskQuantity"}},
		{"a type with a word for its disks", append(place, "--instance-type=ecs.a.b,disks=many"), []string{`--instance-type "ecs.a.b,disks=many"`, "disks=N"}},
		{"a type of an unknown category", append(place, "--instance-type=ecs.a.b,disks=2,categories=cloud_essd+floppy"), []string{`--instance-type "floppy"`, "cloud_essd"}},
		{"a type with an unknown setting", append(place, "--instance-type=ecs.a.b,disks=2,colour=red"), []string{"colour=red", "categories=A+B"}},
		{"a type twice", append(place, "--instance-type=ecs.a.b,disks=2", "--instance-type=ecs.a.b,disks=3"), []string{`--instance-type "ecs.a.b"`, "once"}},
		{"an instance with an unknown setting", append(place, "--instance=i-1=cn-hangzhou-h/ecs.g7.large,colour=red"), []string{"colour=red", "tokens=required"}},
		{"an instance with an unknown role", append(place, "--instance=i-1=cn-hangzhou-h/ecs.g7.large,role=nobody"), []string{`"nobody"`, "Roles"}},
		{"a role with an unknown setting", append(place, "--role=driver,colour=red"), []string{`--role "driver,colour=red"`, "oidc-provider"}},
		{"a role with a session too long", append(place, "--role=driver,max-session=13h"), []string{`--role "13h0m0s"`, "1h to 12h"}},
		{"metadata of an unknown instance", append(place, "--metadata-listen=127.0.0.1:0=i-9"), []string{`--metadata-listen "127.0.0.1:0=i-9"`, "HOST:PORT=INSTANCE"}},
		{"a key without a secret", append(place, "--access-key=id="), []string{`--access-key "id"`, "ID=SECRET"}},
		{"a key twice", append(place, "--access-key=id=a", "--access-key=id=b"), []string{`--access-key "id"`, "once"}},
		{"an unknown latency", append(place, "--latency=slow"), []string{`--latency "slow"`, "zero, fast, real"}},
		{"an unknown throttle", append(place, "--throttle=600"), []string{`--throttle "600"`, "off, tight, default, generous"}},
		{"an unknown throttle code", append(place, "--throttle-code=Slow"), []string{`--throttle-code "Slow"`, "Throttling.User"}},
		{"unknown queues", append(place, "--queues=many"), []string{`--queues "many"`, "serial, parallel"}},
		{"an unknown code", append(place, "--sold-out-code=Gone"), []string{`--sold-out-code "Gone"`, "Zone.NotOnSale"}},
		{"too few calls", append(place, "--calls-kept=-1"), []string{`--calls-kept "-1"`, "above zero"}},
		{"no port", append(place, "--listen=127.0.0.1"), []string{`--listen "127.0.0.1"`, "HOST:PORT"}},
		{"a port too large", append(place, "--listen=127.0.0.1:99999"), []string{`--listen "127.0.0.1:99999"`, "HOST:PORT"}},
		{"an address of somebody else", append(place, "--listen=192.0.2.1:0"), []string{`--listen "192.0.2.1:0"`}},
		{"an unknown flag", append(place, "--zones=x"), []string{"--zones"}},
		{"an argument", append(place, "serve"), []string{`"serve"`, "flags only"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := run(t.Context(), tt.args, io.Discard, io.Discard)
			if err == nil {
				t.Fatal("no error")
			}
			for _, m := range tt.mentions {
				if !strings.Contains(err.Error(), m) {
					t.Errorf("error %q does not mention %q", err, m)
				}
			}
		})
	}
}

func TestSecretsStayOutOfErrors(t *testing.T) {
	for _, arg := range []string{"--access-key=s3cret", "--access-key==s3cret"} {
		err := run(t.Context(), append(place, arg), io.Discard, io.Discard)
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: error %v, want one without the secret", arg, err)
		}
	}
}

func TestFlagsReachTheSimulator(t *testing.T) {
	o, err := parse(append(place, "--zone=cn-hangzhou-i", "--instance=i-1=cn-hangzhou-i/ecs.g7.large", "--access-key=id=se=cret", "--latency=real", "--queues=parallel", "--throttle=tight", "--throttle-code=Throttling.Api"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	c := o.config
	if o.listen != "127.0.0.1:8080" || len(c.Zones) != 2 || c.Instances[0] != (ecssim.Instance{ID: "i-1", Zone: "cn-hangzhou-i", Type: "ecs.g7.large"}) ||
		c.AccessKeys["id"] != "se=cret" || c.Latency.Available != 1500*time.Millisecond || c.Queues != ecssim.Parallel || c.Throttle.Limits[""] != 60 || c.Throttle.Code != "Throttling.Api" || c.Seed == 0 {
		t.Errorf("options %+v", o)
	}
}

func TestInstanceTypesAreDeclared(t *testing.T) {
	o, err := parse(append(place, "--instance=i-1=cn-hangzhou-h/ecs.x.large", "--instance-type=ecs.x.large,disks=17,nvme=required,categories=cloud_essd+cloud_auto",
		"--instance-type=ecs.y-z.large,disks=5,family=ecs.y-z,no-pl0=true,io-optimized=false"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := []ecssim.InstanceType{
		{ID: "ecs.x.large", DiskQuantity: 17, NVMe: "required", Categories: []string{"cloud_essd", "cloud_auto"}},
		{ID: "ecs.y-z.large", Family: "ecs.y-z", DiskQuantity: 5, NVMe: "unsupported", NoPL0: true, NotIOOptimized: true},
	}
	if got := o.config.InstanceTypes; !reflect.DeepEqual(got, want) {
		t.Errorf("types %+v, want %+v", got, want)
	}
	if _, err := ecssim.New(o.config); err != nil {
		t.Error(err)
	}
}

func TestTheLogCanBeJSON(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = golden.Run(t, nil, append(place, "--listen="+taken.Addr().String(), "--logging-format=json")...)
	if err == nil {
		t.Fatal("an address that is taken was listened on")
	}
	_, line, _ := strings.Cut(err.Error(), "\n")
	var object struct{ Msg, Err string }
	if err := json.Unmarshal([]byte(line), &object); err != nil || object.Msg == "" || !strings.Contains(object.Err, "address already in use") {
		t.Errorf("%v: logged %q", err, line)
	}
	if err := run(t.Context(), append(place, "--logging-format=xml"), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "allowed are text and json") {
		t.Errorf("got %v", err)
	}
}

func TestFirstLineSaysWhereAndTheEndIsClean(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(ctx, append(place, "--listen=127.0.0.1:0"), in, io.Discard) }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`^listening on (http://127\.0\.0\.1:[0-9]+)\n$`).FindStringSubmatch(line)
	if match == nil {
		t.Fatalf("first line %q", line)
	}
	reply, err := http.Get(match[1] + "/_sim/state")
	if err != nil {
		t.Fatal(err)
	}
	if err := reply.Body.Close(); err != nil || reply.StatusCode != 200 {
		t.Errorf("state: %d %v", reply.StatusCode, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("end: %v", err)
	}
	if _, err := http.Get(match[1]); err == nil {
		t.Error("it answers after its end")
	}
}

func TestMetadataHaveAListenerOfTheirOwn(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	args := append(place, "--listen=127.0.0.1:0", "--role=driver,oidc-provider=rrsa,max-session=2h", "--instance=i-1=cn-hangzhou-h/ecs.g7.large,role=driver,tokens=optional", "--metadata-listen=127.0.0.1:0=i-1")
	go func() { done <- run(ctx, args, in, io.Discard) }()
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`^metadata of i-1 on (http://127\.0\.0\.1:[0-9]+)\n$`).FindStringSubmatch(line)
	if match == nil {
		t.Fatalf("second line %q", line)
	}
	reply, err := http.Get(match[1] + "/latest/meta-data/ram/security-credentials/")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reply.Body)
	if err != nil || string(text) != "driver" {
		t.Errorf("the role is %q %v", text, err)
	}
	if err := reply.Body.Close(); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("end: %v", err)
	}
}
