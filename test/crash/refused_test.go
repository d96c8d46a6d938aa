//go:build e2e

package crash

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// refusal is what ECS answers for a time to whoever asks again for a disk that is made and unheard of.
type refusal struct {
	what   string
	faults []ecssim.Fault
}

var (
	nobody, theDriver = victims{}, victims{driver: true}

	refusals = []refusal{
		{"no stock", []ecssim.Fault{noStock}},
		{"no permission to create", []ecssim.Fault{refused("CreateDisk", 403, "Forbidden.RAM")}},
		{"no permission at all", []ecssim.Fault{refused("CreateDisk", 403, "Forbidden.RAM"), refused("DescribeDisks", 403, "Forbidden.RAM")}},
		{"an unknown key", []ecssim.Fault{refused("CreateDisk", 404, "InvalidAccessKeyId.NotFound"),
			refused("DescribeDisks", 404, "InvalidAccessKeyId.NotFound")}},
		{"a bad parameter", []ecssim.Fault{refused("CreateDisk", 400, "InvalidParameter"), refused("DescribeDisks", 503, "ServiceUnavailable")}},
		{"no quota", []ecssim.Fault{refused("CreateDisk", 403, "QuotaExceed.PostPaidDiskQuota"), refused("DescribeDisks", 503, "ServiceUnavailable")}},
		{"an unknown code", []ecssim.Fault{refused("CreateDisk", 400, "SomethingNew"), refused("DescribeDisks", 400, "SomethingNew")}},
	}
)

func refused(action string, status int, code string) ecssim.Fault {
	return ecssim.Fault{Action: action, Do: ecssim.FaultError, Status: status, Code: code}
}

// TestNothingIsLostWhenARepetitionIsRefused has a disk made whose reply the provisioner never gets, and ECS refuse what it is
// asked next. The claim is deleted meanwhile if the provisioner has been there all the time, and so knows of it.
func TestNothingIsLostWhenARepetitionIsRefused(t *testing.T) {
	for n, r := range refusals {
		for _, v := range []victims{nobody, theDriver} {
			if testing.Short() && r.what != "no permission at all" {
				continue
			}
			t.Run(strings.ReplaceAll(fmt.Sprintf("%s, %s killed", r.what, v), " ", "_"), func(t *testing.T) {
				shared.passed()
				if err := shared.refuse(t.Context(), r, v, fmt.Sprintf("refused-%d-%s", n, v)); err != nil {
					t.Errorf("%v\nthe calls were:\n  %s", err, strings.Join(shared.passed(), "\n  "))
					shared.recover(t)
				}
			})
		}
	}
}

func (s *stage) refuse(ctx context.Context, r refusal, v victims, claim string) error {
	begun := time.Now()
	h := s.stopAt(moment{call: "CreateVolume", after: true})
	if err := errors.Join(s.claim(ctx, claim, atOnce), s.reach(ctx, h)); err != nil {
		s.forget(h)
		return err
	}
	again := s.stopAt(moment{call: "CreateVolume"})
	s.kill(v)
	h.release(lose)
	if err := errors.Join(s.restart(ctx, v), s.reach(ctx, again)); err != nil {
		s.forget(again)
		return err
	}
	for _, f := range r.faults { // not earlier, for a provisioner waits until the driver is ready
		if err := s.Simulator.AddFault(ctx, f); err != nil {
			return err
		}
	}
	if v == (victims{}) {
		if err := s.deleteClaim(ctx, claim); err != nil {
			return err
		}
	}
	again.release(pass)
	err := s.await(ctx, "the driver is asked three times more, or has answered with the disk", limit, func(ctx context.Context) error {
		asked, ok := s.csi.ledger.since(begun)
		if asked < 4 && ok < 2 && s.csi.ledger.isKept() {
			return fmt.Errorf("it was asked %d times", asked-1)
		}
		return nil
	})
	if err == nil && s.csi.ledger.isKept() {
		err = errors.Join(s.calm(ctx), s.settle(ctx), s.deleteAll(ctx), s.settle(ctx))
	}
	return errors.Join(err, s.nothingTwice(ctx))
}
