package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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

func parsed(t *testing.T, args ...string) options {
	t.Helper()
	o, err := parse(append(place, args...), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

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
		{"--spread=3.5", append(place, "--spread=3.5"), []string{`--spread "3.5"`, "0 to 3"}},
		{"--spread=-1", append(place, "--spread=-1"), []string{`--spread "-1"`, "0 to 3"}},
		{"--spread=NaN", append(place, "--spread=NaN"), []string{`--spread "NaN"`, "0 to 3"}},
		{"--spread=wide", append(place, "--spread=wide"), []string{`--spread "wide"`, "0 to 3"}},
		{"--seed=-1", append(place, "--seed=-1"), []string{`--seed "-1"`, "4294967295"}},
		{"--throttle-phase=1m", append(place, "--throttle-phase=1m"), []string{`--throttle-phase "1m0s"`, "below a minute"}},
		{"--client-token-life=-1s", append(place, "--client-token-life=-1s"), []string{`--client-token-life "-1s"`}},
		{"--client-token-life=0", append(place, "--client-token-life=0"), []string{`--client-token-life "0s"`, "more than zero"}},
		{"--page-token-life=-1s", append(place, "--page-token-life=-1s"), []string{`--page-token-life "-1s"`}},
		{"--instance-key-life=-1s", append(place, "--instance-key-life=-1s"), []string{`--instance-key-life "-1s"`}},
		{"--offer=cloud_essd", append(place, "--offer=cloud_essd"), []string{`--offer "cloud_essd"`, "ZONE=CATEGORY"}},
		{"--offer=cn-hangzhou-h=floppy", append(place, "--offer=cn-hangzhou-h=floppy"), []string{`--offer "floppy"`, "cloud_essd"}},
		{"--offer=cn-nowhere-a=cloud_essd", append(place, "--offer=cn-nowhere-a=cloud_essd"), []string{`--offer "cn-nowhere-a"`, "cn-hangzhou-h"}},
		{"--quota-disks=-1", append(place, "--quota-disks=-1"), []string{`--quota-disks "-1"`}},
		{"--quota-gib=cloud_essd=all", append(place, "--quota-gib=cloud_essd=all"), []string{`--quota-gib "cloud_essd=all"`, "CATEGORY=GIB"}},
		{"--quota-zone-gib=floppy=1", append(place, "--quota-zone-gib=floppy=1"), []string{`--quota-zone-gib "floppy"`, "cloud_essd"}},
		{"--snapshots-per-disk=0", append(place, "--snapshots-per-disk=0"), []string{`--snapshots-per-disk "0"`, "more than zero"}},
		{"--snapshots-at-once=-1", append(place, "--snapshots-at-once=-1"), []string{`--snapshots-at-once "-1"`}},
		{"--category-changes=-1", append(place, "--category-changes=-1"), []string{`--category-changes "-1"`}},
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
	o := parsed(t, "--zone=cn-hangzhou-i", "--instance=i-1=cn-hangzhou-i/ecs.g7.large", "--access-key=id=se=cret", "--latency=real", "--queues=parallel", "--throttle=tight", "--throttle-code=Throttling.Api")
	c := o.config
	if o.listen != "127.0.0.1:8080" || len(c.Zones) != 2 || c.Instances[0] != (ecssim.Instance{ID: "i-1", Zone: "cn-hangzhou-i", Type: "ecs.g7.large"}) ||
		c.AccessKeys["id"] != "se=cret" || c.Latency.Available != 1500*time.Millisecond || c.Queues != ecssim.Parallel || c.Throttle.Limits[""] != 60 || c.Throttle.Code != "Throttling.Api" || c.Seed == 0 {
		t.Errorf("options %+v", o)
	}
}

func TestInstanceTypesAreDeclared(t *testing.T) {
	o := parsed(t, "--instance=i-1=cn-hangzhou-h/ecs.x.large", "--instance-type=ecs.x.large,disks=17,nvme=required,categories=cloud_essd+cloud_auto",
		"--instance-type=ecs.y-z.large,disks=5,family=ecs.y-z,no-pl0=true,io-optimized=false")
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

func TestLinesSayWhereAndTheEndIsClean(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	args := append(place, "--listen=127.0.0.1:0", "--role=driver,oidc-provider=rrsa,max-session=2h", "--instance=i-1=cn-hangzhou-h/ecs.g7.large,role=driver,tokens=optional", "--metadata-listen=127.0.0.1:0=i-1")
	go func() { done <- run(ctx, args, in, io.Discard) }()
	lines := bufio.NewReader(out)
	said := func(what string) string {
		t.Helper()
		line, err := lines.ReadString('\n')
		match := regexp.MustCompile(`^` + what + ` (http://127\.0\.0\.1:[0-9]+)\n$`).FindStringSubmatch(line)
		if err != nil || match == nil {
			t.Fatalf("line %q, %v", line, err)
		}
		return match[1]
	}
	urls := []string{said("listening on") + "/_sim/state", said("metadata of i-1 on") + "/latest/meta-data/ram/security-credentials/"}
	for i, want := range []string{`^\{`, "^driver$"} {
		reply, err := http.Get(urls[i])
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reply.Body)
		if err := errors.Join(err, reply.Body.Close()); err != nil || reply.StatusCode != 200 || !regexp.MustCompile(want).Match(text) {
			t.Errorf("%s: %d %q %v", urls[i], reply.StatusCode, text, err)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("end: %v", err)
	}
	for _, url := range urls {
		if _, err := http.Get(url); err == nil {
			t.Errorf("%s answers after its end", url)
		}
	}
}
