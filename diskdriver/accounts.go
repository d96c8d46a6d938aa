package diskdriver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/volume"
)

// Accounts opens the cloud accounts that requests name by their secrets.
type Accounts interface {
	// Account returns ECS as the account sees it whose keys the secrets hold. It
	// calls nothing. Invalid: they are no keys; the error names what is wrong
	// with them, and no value.
	Account(secrets map[string]string) (ECS, error)
}

const (
	// mostAccounts is how many accounts are kept, but for those with calls under way: none is refused for the sake of others.
	mostAccounts = 100

	// accountKept is for how long an account is kept that nobody asks for: longer
	// than a temporary snapshot is, so that the sweep sees to those of all
	// accounts.
	accountKept = volume.TemporaryKept + 6*volume.SweepEvery
)

// accounts keeps a controller for each account that requests named lately: what
// it remembers of volume names, of stock and of ECS's limits holds for that one
// account. Dropping one is like a restart, and loses nothing.
type accounts struct {
	open Accounts // nil: requests can't have secrets
	own  *controller

	mu    sync.Mutex
	known map[accountKey]*account
}

// accountKey tells secrets apart and doesn't tell them.
type accountKey [sha256.Size]byte

type account struct {
	controller *controller
	calls      int       // under way
	left       time.Time // when the last call ended
}

func newAccounts(open Accounts, own *controller) *accounts {
	return &accounts{open: open, own: own, known: make(map[accountKey]*account)}
}

// serve answers a request with secrets by the controller of their account, and
// every other one by the driver's own. The node calls no account.
func (a *accounts) serve(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	r, ok := req.(interface{ GetSecrets() map[string]string })
	if !ok || len(r.GetSecrets()) == 0 || strings.HasPrefix(info.FullMethod, "/"+csi.Node_ServiceDesc.ServiceName+"/") {
		return handler(ctx, req)
	}
	chosen, err := a.take(r.GetSecrets())
	if err != nil {
		return nil, notServed(ctx, req, err)
	}
	defer a.release(chosen)
	return chosen.answer(ctx, req.(proto.Message), path.Base(info.FullMethod))
}

// notServed is the error of a call without an account. A sidecar takes a final code for the proof that nothing came of earlier calls either,
// which keys that can't be read don't give: a call with the Secret as it was before may have had its effect.
func notServed(ctx context.Context, req any, err error) error {
	switch req.(type) {
	case *csi.CreateVolumeRequest:
		if creation.IsFirstCall(ctx) {
			return err
		}
	case *csi.ControllerPublishVolumeRequest, *csi.ControllerExpandVolumeRequest, *csi.ControllerModifyVolumeRequest,
		*csi.CreateSnapshotRequest, *csi.CreateVolumeGroupSnapshotRequest:
	default:
		return err
	}
	return disk.Errorf(disk.UnknownOutcome, "%w", err)
}

// answer runs the handler of a method.
func (c *account) answer(ctx context.Context, req proto.Message, method string) (any, error) {
	copied := func(in any) error {
		proto.Merge(in.(proto.Message), req)
		return nil
	}
	for _, m := range slices.Concat(csi.Controller_ServiceDesc.Methods, csi.GroupController_ServiceDesc.Methods) {
		if m.MethodName == method {
			return m.Handler(c.controller, ctx, copied, nil)
		}
	}
	return nil, disk.Errorf(disk.Invalid, "secrets: %s takes none", method)
}

// take returns the account of secrets for one call.
func (a *accounts) take(secrets map[string]string) (*account, error) {
	if a.open == nil {
		return nil, disk.Errorf(disk.Invalid, "secrets: this driver works for one account and takes none")
	}
	key := keyOf(secrets)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropIdle(time.Now())
	chosen := a.known[key]
	if chosen == nil {
		ecs, err := a.open.Account(secrets)
		if err != nil {
			return nil, err
		}
		a.makeRoom(time.Now())
		chosen = &account{controller: a.own.of(ecs)}
		a.known[key] = chosen
	}
	chosen.calls++
	return chosen, nil
}

// release ends a call.
func (a *accounts) release(chosen *account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	chosen.calls--
	chosen.left = time.Now()
}

// idleFor says for how long nobody has asked for the account; -1: calls are under way.
func (c *account) idleFor(now time.Time) time.Duration {
	if c.calls > 0 {
		return -1
	}
	return now.Sub(c.left)
}

// dropIdle drops the accounts that nobody asks for any more.
func (a *accounts) dropIdle(now time.Time) {
	maps.DeleteFunc(a.known, func(_ accountKey, c *account) bool { return c.idleFor(now) > accountKept })
}

// makeRoom makes room for one more account: of those without calls the ones that have been idle longest give way.
func (a *accounts) makeRoom(now time.Time) {
	for len(a.known) >= mostAccounts {
		longest := slices.MaxFunc(slices.Collect(maps.Keys(a.known)), func(x, y accountKey) int {
			return cmp.Compare(a.known[x].idleFor(now), a.known[y].idleFor(now))
		})
		if a.known[longest].calls > 0 {
			return
		}
		delete(a.known, longest)
	}
}

// all returns the controllers of all accounts: the driver's own first, then those
// that were asked last.
func (a *accounts) all() []*controller {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropIdle(time.Now())
	all := []*controller{a.own}
	for _, c := range slices.SortedFunc(maps.Values(a.known), func(x, y *account) int { return y.left.Compare(x.left) }) {
		all = append(all, c.controller)
	}
	return all
}

// keyOf returns the key of secrets: equal for equal ones alone.
func keyOf(secrets map[string]string) accountKey {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		fmt.Fprintf(h, "%q=%q\n", name, secrets[name])
	}
	return accountKey(h.Sum(nil))
}
