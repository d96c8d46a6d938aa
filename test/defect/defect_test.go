package defect

import (
	"errors"
	"fmt"
	"testing"
)

// recorder notes what a mark says of its test.
type recorder struct {
	testing.TB
	failed, said string
}

func (r *recorder) Helper()                           {}
func (r *recorder) Logf(format string, args ...any)   { r.said = fmt.Sprintf(format, args...) }
func (r *recorder) Errorf(format string, args ...any) { r.failed = fmt.Sprintf(format, args...) }

func TestAMarkGoesWithItsDefect(t *testing.T) {
	r := &recorder{}
	if Known(r, "P0", func() error { return errors.New("0 calls") }); r.failed != "" || r.said != "known defect P0: 0 calls" {
		t.Errorf("while it is there: failed %q, said %q", r.failed, r.said)
	}
	if Known(r, "P0", func() error { return nil }); r.failed == "" {
		t.Error("it is mended, and nobody notices")
	}
}
