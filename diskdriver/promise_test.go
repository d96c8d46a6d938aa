package diskdriver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/ecssim"
)

// promise runs a test on a simulated ECS of its own, in a bubble. What it does
// is said in the commands of the stories.
func promise(t *testing.T, test func(t *testing.T, s *story)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &story{t: t, config: ecssim.Config{
			Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-a", "cn-hangzhou-b"}, AccessKeys: map[string]string{"story": "secret"},
			Latency: ecssim.Latency{Attach: 2 * time.Second, Detach: 3 * time.Second, API: map[string]time.Duration{"": 50 * time.Millisecond}},
		}}
		for n := range 20 {
			s.config.Instances = append(s.config.Instances, ecssim.Instance{ID: fmt.Sprintf("i-a%d", n), Zone: "cn-hangzhou-a", Type: "ecs.g6.large"})
		}
		s.start()
		test(t, s)
	})
}

// say does a command and returns the first line of the driver's answer to it.
func (s *story) say(command string) string {
	s.t.Helper()
	for line := range strings.Lines(s.do(strings.Fields(command))) {
		if !strings.HasPrefix(line, "ECS") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// ok does a command that has to work.
func (s *story) ok(command string) {
	s.t.Helper()
	if answer := s.say(command); !strings.HasPrefix(answer, "OK") {
		s.t.Fatalf("%s: %s", command, answer)
	}
}

// mayBeUnderWay says whether a sidecar comes back with the same call, whatever
// becomes of the claim.
func mayBeUnderWay(answer string) bool {
	return slices.ContainsFunc([]codes.Code{codes.Aborted, codes.Unavailable, codes.DeadlineExceeded}, func(c codes.Code) bool {
		return strings.HasPrefix(answer, c.String()+": ")
	})
}

// made counts the disks that ECS has ever made.
func (s *story) made() int {
	disks := map[string]bool{}
	for _, c := range s.sim.Calls() {
		if c.Action == "CreateDisk" && c.Disk != "" {
			disks[c.Disk] = true
		}
	}
	return len(disks)
}

func TestADiskInUseIsNeitherTakenAwayNorDeleted(t *testing.T) {
	for _, category := range []string{"cloud_essd", "cloud_ssd", "cloud_regional_disk_auto"} {
		for _, holder := range []string{"running", "stopped"} {
			t.Run(category+" on an instance that is "+holder, func(t *testing.T) {
				promise(t, func(t *testing.T, s *story) {
					s.ok("create disk-1 size=20Gi zones=a type=" + category)
					s.ok("publish d-1 i-a1")
					s.do([]string{"instance", "i-a1", holder})
					for _, command := range []string{"publish d-1 i-a2", "publish d-1 i-a2 ro", "delete d-1"} {
						if answer := s.say(command); !strings.HasPrefix(answer, "FailedPrecondition: ") || !strings.Contains(answer, "i-a1") {
							t.Errorf("%s: %s, want FailedPrecondition, with the holder", command, answer)
						}
					}
					s.ok("unpublish d-1 i-a2")
					if n := s.sim.Count("DetachDisk", ""); n > 0 {
						t.Errorf("%d DetachDisk", n)
					}
					if at := s.sim.Disks()[0].Attachments; len(at) != 1 || at[0].Instance != "i-a1" {
						t.Errorf("attached are %v", at)
					}
				})
			})
		}
	}
}

func TestSoldOutTriesNextTypeThenZoneThenNode(t *testing.T) {
	order := []string{"cn-hangzhou-a cloud_essd", "cn-hangzhou-a cloud_auto", "cn-hangzhou-b cloud_essd", "cn-hangzhou-b cloud_auto"}
	for _, code := range []string{
		"OperationDenied.NoStock", "Zone.NotOnSale", "InvalidDataDiskCategory.NotSupported", "InvalidDataDiskCategory.ValueNotSupported", "QuotaExceed.DiskCapacity",
	} {
		for refused := range len(order) + 1 {
			t.Run(fmt.Sprintf("%s %d times", code, refused), func(t *testing.T) {
				promise(t, func(t *testing.T, s *story) {
					if refused > 0 {
						s.must(s.sim.AddFault(ecssim.Fault{Do: ecssim.FaultError, Action: "CreateDisk", Code: code, Status: 403, Count: refused}))
					}
					answer := s.say("create disk-1 size=20Gi zones=a,b type=cloud_essd,cloud_auto")
					var tried []string
					for _, c := range s.sim.Calls() {
						if c.Action == "CreateDisk" {
							tried = append(tried, c.Params["ZoneId"]+" "+c.Params["DiskCategory"])
						}
					}
					want, wantTried := "OK ", order[:min(refused+1, len(order))]
					if refused == len(order) {
						want = "ResourceExhausted: "
					}
					if !strings.HasPrefix(answer, want) || !slices.Equal(tried, wantTried) {
						t.Errorf("tried %q: %s; want %q and %q", tried, answer, wantTried, want)
					}
					s.ok("create disk-1 size=20Gi zones=a,b type=cloud_essd,cloud_auto")
					if n := s.made(); n != 1 {
						t.Errorf("%d disks were made of one name", n)
					}
				})
			})
		}
	}
}

func TestALostAnswerLeaksNoDiskAndMakesNoSecond(t *testing.T) {
	for _, fault := range []string{
		"lost-request", "lost-reply", "reset", "truncated", "empty", "html", "error-after status=500 code=InternalError", "error-after status=503 code=ServiceUnavailable",
		"duplicate", "delay delay-after=40s", "delay delay-before=40s",
	} {
		for _, between := range []string{"", "restart", "advance 61s"} {
			t.Run(strings.TrimSpace(fault+" "+between), func(t *testing.T) {
				promise(t, func(t *testing.T, s *story) {
					words := strings.Fields(fault)
					s.do(append([]string{"fault", words[0], "action=CreateDisk", "count=2"}, words[1:]...))
					const create = "create disk-1 size=20Gi zones=a type=cloud_essd timeout=20s"
					for tries := 0; ; tries++ {
						answer := s.say(create)
						if strings.HasPrefix(answer, "OK") {
							break
						}
						if !mayBeUnderWay(answer) || tries > 9 {
							t.Fatalf("after %d tries: %s", tries, answer)
						}
						if between != "" {
							s.do(strings.Fields(between))
						}
					}
					if n := s.made(); n != 1 {
						t.Errorf("%d disks were made", n)
					}
					disks := s.sim.Disks()
					if len(disks) != 1 {
						t.Fatalf("%d disks are there", len(disks))
					}
					s.ok("delete " + disks[0].ID)
					if left := s.sim.Disks(); len(left) > 0 {
						t.Errorf("left are %v", left)
					}
				})
			})
		}
	}
}

// retelling is a way to ECS on which its answers are told otherwise.
type retelling struct {
	*story
	otherwise func(answer map[string]any)
}

func (r retelling) RoundTrip(req *http.Request) (*http.Response, error) {
	reply, err := r.story.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	var answer map[string]any
	if err := json.NewDecoder(reply.Body).Decode(&answer); err != nil {
		return nil, err
	}
	r.otherwise(answer)
	body, err := json.Marshal(answer)
	reply.Body, reply.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	reply.Header.Del("Content-Length")
	return reply, err
}

// retell starts the driver anew, with ECS's answers told otherwise.
func (s *story) retell(otherwise func(answer map[string]any)) {
	client, err := ecs.NewClient(ecs.Config{Region: s.config.Region, ClusterID: cluster, Credentials: s, Transport: retelling{s, otherwise}})
	s.must(err)
	s.driver, err = New(Config{Region: s.config.Region, ClusterID: cluster}, client)
	s.must(err)
}

// each goes through the elements of a list of ECS: Disks.Disk.
func each(answer map[string]any, list, element string, do func(map[string]any)) {
	wrapped, ok := answer[list].(map[string]any)
	if !ok {
		return
	}
	for _, e := range wrapped[element].([]any) {
		do(e.(map[string]any))
	}
}

// filledIn shows what ECS fills in by itself, and tags under the names of the
// wire alone.
func filledIn(answer map[string]any) {
	each(answer, "Disks", "Disk", func(d map[string]any) {
		d["KMSKeyId"], d["ResourceGroupId"], d["StorageClusterId"] = "the-service-key", "rg-default", "dbsc-default"
		each(d, "Tags", "Tag", func(tag map[string]any) {
			delete(tag, "Key")
			delete(tag, "Value")
		})
	})
}

func TestADiskIsKnownAgainWhateverECSFillsIn(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		restart := func() { s.retell(filledIn) }
		restart()
		const class = " size=20Gi type=cloud_essd encrypted=true diskTags=team:web csi.storage.k8s.io/pvc/name=data csi.storage.k8s.io/pvc/namespace=shop"
		s.do(strings.Fields("fault lost-reply action=CreateDisk"))
		if answer := s.say("create disk-1 zones=a" + class); !strings.HasPrefix(answer, "Unavailable") {
			t.Fatal(answer)
		}
		restart()
		s.ok("create disk-1 zones=b,a" + class) // another request, so the token doesn't lead to the disk
		for what, other := range map[string]string{"KMS key": " kmsKeyId=mine", "resource group": " resourceGroupId=mine", "size": " size=30Gi"} {
			answer := s.say("create disk-1 zones=b,a" + class + other)
			if !strings.HasPrefix(answer, "AlreadyExists: ") || !strings.Contains(answer, what) {
				t.Errorf("%s: %s", other, answer)
			}
		}
		restart()
		s.ok("create disk-1 zones=b" + class) // the Pod was rescheduled: the disk in a was never attached
		if disks := s.sim.Disks(); len(disks) != 1 || disks[0].Zone != "cn-hangzhou-b" {
			t.Errorf("there are %v", disks)
		}
	})
}

// inStatus shows every snapshot and group in a status, and not usable.
func inStatus(answer map[string]any, status string) {
	show := func(e map[string]any) { e["Status"], e["Available"] = status, false }
	each(answer, "Snapshots", "Snapshot", show)
	each(answer, "SnapshotGroups", "SnapshotGroup", show)
}

func TestSnapshotThatFailsLateIsReportedAndDeletable(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
		s.ok("snapshot snap-1 d-1")
		s.ok("group group-1 d-1")
		s.do([]string{"advance", "2s"})
		s.retell(func(answer map[string]any) { inStatus(answer, "failed") })
		for _, command := range []string{"snapshot snap-1 d-1", "get-snapshot s-1", "list-snapshots id=s-1", "group group-1 d-1", "get-group ssg-1"} {
			if answer := s.say(command); !strings.HasPrefix(answer, "Internal: ") || !strings.Contains(answer, "has failed") {
				t.Errorf("%s: %s, want that it has failed", command, answer)
			}
		}
		if answer := s.say("create disk-2 size=20Gi zones=a type=cloud_essd source=s-1"); !strings.HasPrefix(answer, "InvalidArgument: ") || !strings.Contains(answer, "has failed") {
			t.Errorf("a volume from it: %s", answer)
		}
		s.ok("delete-snapshot s-1")
		s.ok("delete-group ssg-1 s-2")
		if left := s.sim.Snapshots(); len(left) > 0 {
			t.Errorf("left are %v", left)
		}
	})
}

// TestSnapshotThatFailsUnheardMakesWay: nobody was told its ID, so nobody else can
// delete it.
func TestSnapshotThatFailsUnheardMakesWay(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		failed := false
		s.retell(func(answer map[string]any) {
			if failed {
				inStatus(answer, "failed")
			}
		})
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
		for command, action := range map[string]string{"snapshot snap-1 d-1": "CreateSnapshot", "group group-1 d-1": "CreateSnapshotGroup"} {
			s.must(s.sim.AddFault(ecssim.Fault{Action: action, Do: ecssim.FaultLostReply, Count: 1}))
			if answer := s.say(command); !mayBeUnderWay(answer) {
				t.Errorf("%s: %s, want that it may be under way", command, answer)
			}
			s.do([]string{"advance", "1m"})
			failed = true
			if answer := s.say(command); !strings.HasPrefix(answer, "Internal: ") || !strings.Contains(answer, "it is deleted, and the next call makes another") {
				t.Errorf("%s: %s, want that it is deleted", command, answer)
			}
			failed = false
			s.ok(command)
		}
		if left := s.sim.Snapshots(); len(left) != 2 {
			t.Errorf("there are %v", left)
		}
	})
}

func TestADiskGoesOnlyIfItsArchiveIsComplete(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		complete := false
		s.retell(func(answer map[string]any) {
			if !complete {
				inStatus(answer, "replicating")
			}
		})
		s.ok("create disk-1 size=20Gi zones=a type=cloud_essd archiveOnDelete=true")
		s.ok("publish d-1 i-a1")
		s.ok("unpublish d-1 i-a1")
		if answer := s.say("delete d-1"); !mayBeUnderWay(answer) || len(s.sim.Disks()) != 1 {
			t.Errorf("delete d-1: %s, and there are %v", answer, s.sim.Disks())
		}
		complete = true
		s.ok("delete d-1")
	})
}

func TestADetachIsOKOnlyOnceECSShowsTheNodeNoMore(t *testing.T) {
	for _, fault := range []string{"", "stuck", "lost-reply", "lost-request", "error-after status=500 code=InternalError", "stops", "vanishes", "throttle", "reset"} {
		for _, from := range []string{"i-a1", ""} {
			t.Run(strings.TrimSpace(fault+" from "+from), func(t *testing.T) {
				promise(t, func(t *testing.T, s *story) {
					s.ok("create disk-1 size=20Gi zones=a type=cloud_essd")
					s.ok("publish d-1 i-a1")
					if words := strings.Fields(fault); len(words) > 0 {
						s.do(append([]string{"fault", words[0], "action=DetachDisk"}, words[1:]...))
					}
					attached := func() bool { return len(s.sim.Disks()[0].Attachments) > 0 }
					for tries := 0; ; tries++ {
						answer := s.say("unpublish d-1 " + from + " timeout=10s")
						if answer == "OK" {
							break
						}
						if !mayBeUnderWay(answer) || tries > 9 {
							t.Fatalf("after %d tries: %s", tries, answer)
						}
						if tries == 3 {
							s.sim.Unstick("")
						}
					}
					if attached() {
						t.Errorf("OK, and attached are %v", s.sim.Disks()[0].Attachments)
					}
				})
			})
		}
	}
}

func TestThrottledReadsFailNoneOfAHundredAttaches(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		hundred := make([]string, 100)
		for n := range hundred {
			hundred[n] = fmt.Sprintf("d-%d", n+1)
			s.ok(fmt.Sprintf("create disk-%d size=20Gi zones=a type=cloud_essd", n))
		}
		s.must(s.sim.AddFault(ecssim.Fault{Do: ecssim.FaultThrottle, Code: "Throttling.User", Action: "DescribeDisks", Percent: 10}))
		var all sync.WaitGroup
		for n, id := range hundred {
			all.Go(func() {
				words := []string{id, fmt.Sprintf("i-a%d", n%20)}
				if answer := s.call("ControllerPublishVolume", s.publishRequest(words)); !strings.HasPrefix(answer, "OK") {
					t.Errorf("%v: %s", words, answer)
				}
			})
		}
		all.Wait()
		if s.sim.Count("DescribeDisks", "Throttling.User") == 0 {
			t.Error("no read was throttled")
		}
	})
}

func TestAHundredVolumesAtATimeTakeFewCallsEach(t *testing.T) {
	promise(t, func(t *testing.T, s *story) {
		const volumes = 100
		phase := func(what string, most int, do func(n int) string) {
			before := len(s.sim.Calls())
			var all sync.WaitGroup
			for n := range volumes {
				all.Go(func() {
					if answer := do(n); !strings.HasPrefix(answer, "OK") {
						t.Errorf("%s %d: %s", what, n, answer)
					}
				})
			}
			all.Wait()
			if calls := len(s.sim.Calls()) - before; calls > most*volumes {
				t.Errorf("%s: %d calls for %d volumes, at most %d each are allowed", what, calls, volumes, most)
			}
		}
		node := func(n int) string { return fmt.Sprintf("i-a%d", n%20) }
		id := func(n int) string { return fmt.Sprintf("d-%d", n+1) }
		phase("create", 2, func(n int) string {
			return s.call("CreateVolume", s.createRequest(fmt.Sprintf("disk-%d", n), strings.Fields("size=20Gi zones=a type=cloud_essd")))
		})
		if created := s.sim.Count("CreateDisk", ""); created != volumes {
			t.Errorf("%d CreateDisk for %d volumes", created, volumes)
		}
		phase("attach", 3, func(n int) string {
			return s.call("ControllerPublishVolume", s.publishRequest([]string{id(n), node(n)}))
		})
		phase("detach", 3, func(n int) string {
			return s.call("ControllerUnpublishVolume", s.unpublishRequest([]string{id(n), node(n)}))
		})
		phase("delete", 2, func(n int) string {
			return s.call("DeleteVolume", &csi.DeleteVolumeRequest{VolumeId: s.id(id(n))})
		})
	})
}

// FuzzNoAnswerOfECSIsUnknownToTheSidecars refuses one call of each kind with any
// code: the sidecars know what every answer means, and the one to a create that
// may have made a disk is never final.
func FuzzNoAnswerOfECSIsUnknownToTheSidecars(f *testing.F) {
	for status, list := range map[int][]string{
		400: {"SomethingNew", "Throttling", "Throttling.User", "InvalidParameter", "InvalidDiskSize", "OperationDenied", "IdempotentParameterMismatch", "MissingParameter", "LastOrderProcessing", "DryRunOperation"},
		403: {"Forbidden.RAM", "QuotaExceed.PostPaidDisk", "IncorrectDiskStatus", "DiskInCoolingPeriod", "InstanceDiskLimitExceeded", "LastTokenProcessing", "InvalidOperation.Conflict", "OperationDenied.NoStock"},
		404: {"InvalidDiskId.NotFound", "InvalidInstanceId.NotFound", "InvalidSnapshotId.NotFound", "InvalidAccessKeyId.NotFound"},
		500: {"InternalError", "Unheard.Of"},
		503: {"ServiceUnavailable", ""},
	} {
		for _, code := range list {
			f.Add(status, code)
		}
	}
	known := map[string]bool{"OK": true}
	for code := range sidecarsDo {
		known[code.String()] = true
	}
	f.Fuzz(func(t *testing.T, status int, code string) {
		if status < 400 || status > 599 || len(code) > 100 {
			t.Skip("no answer that ECS could send")
		}
		promise(t, func(t *testing.T, s *story) {
			for _, step := range []struct{ action, command string }{
				{"CreateDisk", "create disk-1 size=20Gi zones=a type=cloud_essd timeout=10s"}, {"DescribeDisks", "get d-1"}, {"DescribeDisks", "list"},
				{"AttachDisk", "publish d-1 i-a1 timeout=10s"}, {"ResizeDisk", "expand d-1 size=30Gi timeout=10s"}, {"ModifyDiskSpec", "modify d-1 type=cloud_auto timeout=10s"},
				{"TagResources", "modify d-1 diskTags/team=web"}, {"CreateSnapshot", "snapshot snap-1 d-1 timeout=10s"}, {"CreateSnapshotGroup", "group group-1 d-1 timeout=10s"},
				{"DescribeSnapshots", "list-snapshots"}, {"DeleteSnapshot", "delete-snapshot s-1"}, {"DetachDisk", "unpublish d-1 i-a1 timeout=10s"},
				{"DescribeAvailableResource", "capacity zones=a"}, {"DeleteDisk", "delete d-1 timeout=10s"},
			} {
				fault := ecssim.Fault{Do: ecssim.FaultError, Action: step.action, Status: status, Code: code, Count: 3}
				if s.sim.AddFault(fault) != nil {
					t.Skip("no code that ECS could send")
				}
				answer := s.say(step.command)
				if word, _, _ := strings.Cut(answer, " "); !known[strings.TrimSuffix(word, ":")] {
					t.Errorf("%s refused with %d %s: %s: %s", step.action, status, code, step.command, answer)
				}
				if step.action == "CreateDisk" && status >= 500 && !strings.HasPrefix(answer, "OK") && !mayBeUnderWay(answer) {
					t.Errorf("a create that ended with %d %s is final: %s", status, code, answer)
				}
				s.sim.ClearFaults()
				s.say(step.command) // what the next step needs, as far as it can be had
			}
		})
	})
}
