package diskdriver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/topodisk/topodisk/diskdriver/attachment"
	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/disk"
)

// counted opens accounts that know no disk, and says how often.
type counted struct {
	mu     sync.Mutex
	opened int
}

func (c *counted) Account(map[string]string) (ECS, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened++
	return empty{}, nil
}

// empty is an account without disks.
type empty struct{ ECS }

func (e empty) GetCached(ctx context.Context, id disk.ID) (disk.Disk, error) { return e.Get(ctx, id) }

func (empty) Get(_ context.Context, id disk.ID) (disk.Disk, error) {
	return disk.Disk{}, disk.Errorf(disk.NotFound, "no disk %s", id)
}

func (empty) Untag(_ context.Context, id disk.ID, _ []string) error {
	return disk.Errorf(disk.NotFound, "no disk %s", id)
}

// ask asks for an account as a gRPC server does.
func ask(t *testing.T, a *accounts, n int) codes.Code {
	t.Helper()
	req := &csi.ValidateVolumeCapabilitiesRequest{VolumeId: "d-1", VolumeCapabilities: []*csi.VolumeCapability{{}}, Secrets: map[string]string{"access-key-id": fmt.Sprint(n)}}
	info := &grpc.UnaryServerInfo{FullMethod: csi.Controller_ValidateVolumeCapabilities_FullMethodName}
	_, err := translate(t.Context(), req, info, func(ctx context.Context, req any) (any, error) {
		return a.serve(ctx, req, info, func(context.Context, any) (any, error) {
			t.Error("a request with secrets went to the driver's own account")
			return nil, nil
		})
	})
	return status.Code(err)
}

func newCounted() (*accounts, *counted) {
	opener := &counted{}
	return newAccounts(opener, newController(Config{Region: "cn-hangzhou", ClusterID: cluster}, nil, attachment.NewTable(0))), opener
}

// TestAccountsAreKeptAndDropped: an account is opened once, is dropped when
// nobody has asked for it for long, and gives way to another one when there are
// too many.
func TestAccountsAreKeptAndDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, opener := newCounted()
		wantOpened := func(want int, why string) {
			t.Helper()
			if opener.opened != want {
				t.Errorf("%s: %d accounts were opened, want %d", why, opener.opened, want)
			}
		}
		for range 3 {
			if code := ask(t, a, 0); code != codes.NotFound {
				t.Fatalf("answer is %s", code)
			}
		}
		wantOpened(1, "the same secrets")
		time.Sleep(accountKept)
		ask(t, a, 0)
		wantOpened(1, "not for long")
		time.Sleep(accountKept + time.Second)
		if got := len(a.all()); got != 1 {
			t.Errorf("%d controllers are left, want the driver's own", got)
		}
		ask(t, a, 0)
		wantOpened(2, "for long")

		for n := 1; n < mostAccounts; n++ {
			time.Sleep(time.Millisecond)
			ask(t, a, n)
		}
		time.Sleep(time.Millisecond)
		ask(t, a, 0) // now 1 has rested longest
		before := opener.opened
		if code := ask(t, a, mostAccounts); code != codes.NotFound {
			t.Errorf("one account more: the answer is %s", code)
		}
		wantOpened(before+1, "one gives way")
		ask(t, a, 0)
		ask(t, a, 2)
		wantOpened(before+1, "those that were asked for later are kept")
		if got := len(a.known); got != mostAccounts {
			t.Errorf("%d accounts are kept, want %d", got, mostAccounts)
		}
	})
}

// TestAnAccountInUseIsNotDropped: a call goes on for longer than an account is
// kept.
func TestAnAccountInUseIsNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, opener := newCounted()
		secrets := map[string]string{"access-key-id": "0"}
		chosen, err := a.take(secrets)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * accountKept)
		again, err := a.take(secrets)
		if err != nil || again != chosen || opener.opened != 1 {
			t.Errorf("another account was opened (%v)", err)
		}
	})
}

// Accounts with calls under way are kept, however many there are, and refuse no other one.
func TestAllAccountsMayBeInUseAtATime(t *testing.T) {
	a, _ := newCounted()
	var taken []*account
	for n := range 3 * mostAccounts {
		one, err := a.take(map[string]string{"access-key-id": fmt.Sprint(n)})
		if err != nil {
			t.Fatalf("account %d: %v", n, err)
		}
		taken = append(taken, one)
	}
	for _, one := range taken {
		a.release(one)
	}
	if got := len(a.known); got != 3*mostAccounts {
		t.Errorf("%d accounts are left of those that were in use a moment ago", got)
	}
	ask(t, a, -1)
	if got := len(a.known); got != mostAccounts {
		t.Errorf("%d accounts are kept, want %d", got, mostAccounts)
	}
}

// TestAccountsInACrowd opens an account once for all who come at a time.
func TestAccountsInACrowd(t *testing.T) {
	a, opener := newCounted()
	var all sync.WaitGroup
	for n := range 200 {
		all.Go(func() { ask(t, a, n%10) })
	}
	all.Wait()
	if opener.opened != 10 {
		t.Errorf("%d accounts were opened for 10 secrets", opener.opened)
	}
}

func TestSecretsOfADriverForOneAccount(t *testing.T) {
	a := newAccounts(nil, newController(Config{}, nil, attachment.NewTable(0)))
	if code := ask(t, a, 0); code != codes.InvalidArgument {
		t.Errorf("answer is %s", code)
	}
}

// unreadable are accounts none of whose keys can be read.
type unreadable struct{}

func (unreadable) Account(map[string]string) (ECS, error) {
	return nil, disk.Errorf(disk.Invalid, `secrets: the value of key "secret" has white space inside, which is not allowed`)
}

// A final code says that nothing came of any call for the name. Keys that can't be read prove nothing of that kind: an earlier call, with the
// Secret as it was, may have had its effect.
func TestKeysThatCannotBeReadEndNoRequest(t *testing.T) {
	secrets := map[string]string{"access-key-id": "x", "access-key-secret": "a b"}
	first := metadata.NewIncomingContext(t.Context(), metadata.Pairs(creation.FirstCallKey, "true"))
	create := &csi.CreateVolumeRequest{Name: "disk-1", Secrets: secrets}
	const lost, refused = codes.Unavailable, codes.InvalidArgument
	for name, test := range map[string]struct {
		ctx    context.Context
		method string
		req    any
		want   codes.Code
	}{
		"create":         {t.Context(), csi.Controller_CreateVolume_FullMethodName, create, lost},
		"a first create": {first, csi.Controller_CreateVolume_FullMethodName, create, refused},
		"publish":        {t.Context(), csi.Controller_ControllerPublishVolume_FullMethodName, &csi.ControllerPublishVolumeRequest{Secrets: secrets}, lost},
		"expand":         {t.Context(), csi.Controller_ControllerExpandVolume_FullMethodName, &csi.ControllerExpandVolumeRequest{Secrets: secrets}, lost},
		"modify":         {t.Context(), csi.Controller_ControllerModifyVolume_FullMethodName, &csi.ControllerModifyVolumeRequest{Secrets: secrets}, lost},
		"snapshot":       {t.Context(), csi.Controller_CreateSnapshot_FullMethodName, &csi.CreateSnapshotRequest{Secrets: secrets}, lost},
		"snapshot a group": {
			t.Context(), csi.GroupController_CreateVolumeGroupSnapshot_FullMethodName, &csi.CreateVolumeGroupSnapshotRequest{Secrets: secrets}, lost,
		},
		"delete": {t.Context(), csi.Controller_DeleteVolume_FullMethodName, &csi.DeleteVolumeRequest{VolumeId: "d-1", Secrets: secrets}, refused},
		"a call that reads": {
			t.Context(), csi.Controller_ValidateVolumeCapabilities_FullMethodName, &csi.ValidateVolumeCapabilitiesRequest{Secrets: secrets}, refused,
		},
	} {
		a := newAccounts(unreadable{}, newController(Config{Region: "cn-hangzhou", ClusterID: cluster}, nil, attachment.NewTable(0)))
		info := &grpc.UnaryServerInfo{FullMethod: test.method}
		_, err := translate(test.ctx, test.req, info, func(ctx context.Context, req any) (any, error) { return a.serve(ctx, req, info, nil) })
		if status.Code(err) != test.want || !strings.Contains(status.Convert(err).Message(), "white space") {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
}

// The node needs no account, and a class may name secrets for it all the same: csi-provisioner passes on what the class
// names, such as csi.storage.k8s.io/node-stage-secret-name.
func TestSecretsOfANodeCallAreNoAccount(t *testing.T) {
	a := newAccounts(nil, newController(Config{}, nil, attachment.NewTable(0)))
	secrets := map[string]string{"password": "secret"}
	for method, req := range map[string]any{
		csi.Node_NodeStageVolume_FullMethodName:   &csi.NodeStageVolumeRequest{Secrets: secrets},
		csi.Node_NodePublishVolume_FullMethodName: &csi.NodePublishVolumeRequest{Secrets: secrets},
		csi.Node_NodeExpandVolume_FullMethodName:  &csi.NodeExpandVolumeRequest{Secrets: secrets},
	} {
		served := false
		_, err := a.serve(t.Context(), req, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) {
			served = true
			return nil, nil
		})
		if err != nil || !served {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// TestKeyOfSecrets: different secrets have different keys, however they are cut.
func TestKeyOfSecrets(t *testing.T) {
	seen := map[accountKey]map[string]string{}
	for _, secrets := range []map[string]string{
		{"a": "b"}, {"a": "c"}, {"b": "a"}, {"a": "b", "c": ""}, {"a": "b\"=\"c"}, {"a": "b", "c": "d"}, {"a": "b\nc=d"},
	} {
		if other, twice := seen[keyOf(secrets)]; twice {
			t.Errorf("%v and %v have the same key", secrets, other)
		}
		seen[keyOf(secrets)] = secrets
	}
	if strings.Contains(fmt.Sprint(keyOf(map[string]string{"a": "secret"})), "secret") {
		t.Error("the key tells the secret")
	}
}

// TestDoubtsAreForAllAccounts: a disk that may be on its way is so whoever asks.
func TestDoubtsAreForAllAccounts(t *testing.T) {
	own := newController(Config{}, nil, attachment.NewTable(0))
	if other := own.of(nil); other.attachments != own.attachments || other.volumeController == own.volumeController {
		t.Error("an account must share what is in doubt about disks, and keep its own volume names")
	}
}
