package ecssim_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/ecssim"
	adminapi "github.com/topodisk/topodisk/ecssim/admin"
)

const (
	region = "cn-hangzhou"
	zoneH  = "cn-hangzhou-h"
	zoneI  = "cn-hangzhou-i"
	keyID  = "test-key"
	secret = "test-secret"
)

// plain hides an *http.Transport from the SDK, which would set its fields.
type plain struct{ http.RoundTripper }

// newServer returns a Server of two zones that checks signatures.
func newServer(t *testing.T, change func(*ecssim.Config)) *ecssim.Server {
	t.Helper()
	config := ecssim.Config{
		Region: region, Zones: []string{zoneH, zoneI},
		Instances: []ecssim.Instance{
			{ID: "i-1", Zone: zoneH, Type: "ecs.g6.large"},
			{ID: "i-2", Zone: zoneI, Type: "ecs.g6se.26xlarge"},
		},
		AccessKeys: map[string]string{keyID: secret},
	}
	if change != nil {
		change(&config)
	}
	s, err := ecssim.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkCodes(t, s) })
	return s
}

// newClient returns an SDK client that talks to the Server in this process.
func newClient(t *testing.T, s *ecssim.Server) *ecs.Client {
	t.Helper()
	c := newSDKClient(t, keyID, secret)
	c.SetTransport(s)
	c.Domain = "ecs.invalid"
	return c
}

// newServerAndClient returns a Server and an SDK client that talks to it in this process.
func newServerAndClient(t *testing.T, change func(*ecssim.Config)) (*ecssim.Server, *ecs.Client) {
	t.Helper()
	s := newServer(t, change)
	return s, newClient(t, s)
}

func newSDKClient(t *testing.T, id, secret string) *ecs.Client {
	t.Helper()
	c, err := ecs.NewClientWithOptions(region, sdk.NewConfig().WithTimeout(15*time.Second), credentials.NewStaticAKCredentialsProvider(id, secret))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newHTTPClient returns an SDK client that talks to the Server over a socket.
func newHTTPClient(t *testing.T, s *ecssim.Server) *ecs.Client {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	c := newSDKClient(t, keyID, secret)
	c.SetTransport(plain{h.Client().Transport})
	c.Domain = strings.TrimPrefix(h.URL, "http://")
	return c
}

// newCreate returns the request of an ordinary disk, changed by change.
func newCreate(change func(*ecs.CreateDiskRequest)) *ecs.CreateDiskRequest {
	r := ecs.CreateCreateDiskRequest()
	r.ZoneId = zoneH
	r.DiskCategory = "cloud_essd"
	r.Size = requests.NewInteger(20)
	if change != nil {
		change(r)
	}
	return r
}

// create makes a disk and returns its ID.
func create(t *testing.T, c *ecs.Client, change func(*ecs.CreateDiskRequest)) string {
	t.Helper()
	reply, err := c.CreateDisk(newCreate(change))
	if err != nil {
		t.Fatal(err)
	}
	return reply.DiskId
}

// describe returns the disks that a read shows: data disks, if change does not
// ask for others.
func describe(t *testing.T, c *ecs.Client, change func(*ecs.DescribeDisksRequest)) *ecs.DescribeDisksResponse {
	t.Helper()
	r := ecs.CreateDescribeDisksRequest()
	r.DiskType = "data"
	if change != nil {
		change(r)
	}
	reply, err := c.DescribeDisks(r)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func remove(c *ecs.Client, id string) error {
	r := ecs.CreateDeleteDiskRequest()
	r.DiskId = id
	_, err := c.DeleteDisk(r)
	return err
}

// wantCode checks that err is ECS's own, of a status and a code.
func wantCode(t *testing.T, err error, status int, code string) {
	t.Helper()
	var server *sdkerrors.ServerError
	if !errors.As(err, &server) {
		t.Fatalf("error %v is not of the server: want %d %s", err, status, code)
	}
	if server.ErrorCode() != code || server.HttpStatus() != status {
		t.Fatalf("got %d %s (%s), want %d %s", server.HttpStatus(), server.ErrorCode(), server.Message(), status, code)
	}
	if server.RequestId() == "" || server.HostId() == "" || !strings.Contains(server.Recommend(), code) {
		t.Fatalf("incomplete error body: request ID %q, host %q, recommend %q", server.RequestId(), server.HostId(), server.Recommend())
	}
}

// admin sends a request to the admin API and returns its status and text.
func admin(t *testing.T, s *ecssim.Server, method, path, body string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	adminapi.Handler(s).ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}
