package transport

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"
	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/ecstest"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/endpoint"
)

var (
	createDisk                = CreateDisk.action
	deleteDisk                = DeleteDisk.action
	describeDisks             = DescribeDisks.action
	attachDisk                = AttachDisk.action
	detachDisk                = DetachDisk.action
	resizeDisk                = ResizeDisk.action
	modifyDiskSpec            = ModifyDiskSpec.action
	modifyDiskAttribute       = ModifyDiskAttribute.action
	tagResources              = TagResources.action
	createSnapshot            = CreateSnapshot.action
	deleteSnapshot            = DeleteSnapshot.action
	describeSnapshots         = DescribeSnapshots.action
	createSnapshotGroup       = CreateSnapshotGroup.action
	deleteSnapshotGroup       = DeleteSnapshotGroup.action
	describeAvailableResource = DescribeAvailableResource.action
	describeInstances         = DescribeInstances.action
)

// newSession fills in what the config leaves out.
func newSession(t *testing.T, config Config) *Session {
	t.Helper()
	config.Region = ecstest.Region
	if config.Endpoint.Scheme == "" {
		config.Endpoint.Scheme = "https"
	}
	return New(config).Session(credentials.Static(credentials.Keys{AccessKeyID: ecstest.KeyID, AccessKeySecret: ecstest.Secret, SecurityToken: ecstest.Token}))
}

// at is a Config with the endpoint of a URL.
func at(url string) Config {
	scheme, host, _ := strings.Cut(url, "://")
	return Config{Endpoint: endpoint.Endpoint{Scheme: scheme, Host: host}}
}

func fillCreate(name string) func(*sdkecs.CreateDiskRequest) {
	return func(r *sdkecs.CreateDiskRequest) {
		r.ZoneId, r.DiskCategory, r.Size, r.DiskName, r.ClientToken = ecstest.ZoneH, "cloud_essd", "20", name, name
	}
}

func create(ctx context.Context, s *Session) error {
	_, err := CreateDisk.Send(ctx, s, fillCreate("vol-1"))
	return err
}

func remove(ctx context.Context, s *Session) error {
	_, err := DeleteDisk.Send(ctx, s, func(r *sdkecs.DeleteDiskRequest) { r.DiskId = "d-bp1aaaaaaaaaaaaaaaaa" })
	return err
}

func describe(ctx context.Context, s *Session) error {
	_, err := DescribeDisks.Send(ctx, s, func(*sdkecs.DescribeDisksRequest) {})
	return err
}

func TestCallsAtOnceShareNothing(t *testing.T) {
	s := newSession(t, Config{RoundTripper: ecstest.NewSim(t, nil)})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if err := describe(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func FuzzAnyAnswer(f *testing.F) {
	f.Add(200, `{"DiskId":"d-bp1a","RequestId":"R1"}`)
	f.Add(200, `{"RequestId":"R1","Disks":{"Disk":[{"DiskId":"d-1","Size":"20","Tags":{"Tag":null}}]}}`)
	f.Add(200, `{"RequestId":{},"Disks":[],"DiskId":7}`)
	f.Add(403, `{"Code":"Forbidden.RAM","AccessDeniedDetail":"x","Message":[]}`)
	f.Add(404, `{"Code":"InvalidDiskId.NotFound"}`)
	f.Add(502, `<html>`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		status = 200 + (status%400+400)%400
		s := newSession(t, Config{RoundTripper: ecstest.RoundTrip(func(r *http.Request) (*http.Response, error) {
			return ecstest.Answer(r, status, strings.ReplaceAll(body, "$URL", r.URL.String())), nil
		})})
		reply := CreateDisk.newReply()
		err := s.try(t.Context(), createDisk, func() (requests.AcsRequest, responses.AcsResponse) {
			request := CreateDisk.newRequest()
			fillCreate("vol-1")(request)
			return request, reply
		})
		ecstest.WantNoSecret(t, err)
		if err == nil && (reply.DiskId == "" || status > 299) {
			t.Errorf("HTTP %d %q is a success", status, body)
		}
		if err != nil && disk.KindOf(err) != disk.UnknownOutcome && (status < 300 || status >= 500 && disk.KindOf(err) != disk.Throttled) {
			t.Errorf("HTTP %d %q proves %v", status, body, err)
		}
		if disk.KindOf(err) == disk.NotFound {
			t.Errorf("HTTP %d %q: CreateDisk says that its disk is gone: %v", status, body, err)
		}
	})
}
