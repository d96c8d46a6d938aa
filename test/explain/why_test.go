//go:build e2eexplain

package explain

import (
	"context"
	"testing"

	"github.com/topodisk/topodisk/test/golden"
	"github.com/topodisk/topodisk/test/lab/programs"
)

func TestWhy(t *testing.T) {
	root, err := programs.FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	cases, err := golden.LoadVerdicts(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Case, func(t *testing.T) {
			bringAbout := situations[c.Case]
			if bringAbout == nil {
				t.Fatal("no situation of this name")
			}
			s := newScene(t)
			subject := bringAbout(s)
			var last golden.Verdict
			s.WaitFor("the verdict is right", late, func(ctx context.Context) (bool, error) {
				if last, err = s.why(ctx, subject); err == nil {
					err = c.Check(last)
				}
				return err == nil, err
			})
			t.Logf("%s\n\tactor: %s\n\tnext: %q\n\tretried: %s", last.Message, last.Actor, last.Next, last.Retried)
			s.dump(subject, c.Case)
		})
	}
}
