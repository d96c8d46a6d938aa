package diskdriver

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// The tests that `make test-long` runs are longer with -long. A walk of the
// model's test that has failed is told with its seed and its steps; -seed walks
// from there again, and -replay follows the steps of a file.
var (
	long      = flag.Bool("long", false, "run the long tests")
	seed      = flag.Uint64("seed", 1, "the first seed of the random walks")
	replay    = flag.String("replay", "", "a file with the steps of one walk, to be followed instead of random ones")
	walkSteps = flag.Int("steps", 0, "the steps of all random walks together; default 5000, with -long 50000")
)

const (
	oneWalk     = 200 // steps
	shortWalks  = 5000
	longWalks   = 50000
	mostShrinks = 400 // walks to find a short one that fails
)

// TestModel walks at random through what a CO may ask, how the driver may die
// and what ECS may do meanwhile, and holds what ECS has against a small model of
// what the driver has answered (model_check_test.go).
func TestModel(t *testing.T) {
	if *replay != "" {
		followFile(t, *replay)
		return
	}
	for n := range walks() {
		t.Run(fmt.Sprintf("seed=%d", *seed+n), func(t *testing.T) {
			t.Parallel()
			w := follow(t, randomSteps(*seed+n, oneWalk))
			if w.broken == nil {
				return
			}
			shortest := shrink(t, w)
			t.Errorf("%v\nThe whole walk: go test ./diskdriver -run TestModel -seed %d -steps %d\nA short one (-replay follows these steps from a file):\n%s\n\nIt goes like this:\n%s\n%v",
				w.broken, *seed+n, oneWalk, strings.Join(shortest.steps, "\n"), strings.Join(shortest.told, "\n"), shortest.broken)
		})
	}
}

// TestModelOnWalksThatFailed follows the walks of testdata/walks, which have shown a defect each.
func TestModelOnWalksThatFailed(t *testing.T) {
	files, err := filepath.Glob("testdata/walks/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are %d walks, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { followFile(t, file) })
	}
}

// followFile takes the steps of a file.
func followFile(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w := follow(t, strings.Split(strings.TrimSpace(string(text)), "\n"))
	t.Logf("\n%s", strings.Join(w.told, "\n"))
	if w.broken != nil {
		t.Error(w.broken)
	}
}

// walks is how many there are.
func walks() uint64 {
	steps := *walkSteps
	switch {
	case steps > 0:
	case *long:
		steps = longWalks
	default:
		steps = shortWalks
	}
	return uint64(max(steps/oneWalk, 1))
}

// walk is what has become of some steps.
type walk struct {
	steps  []string
	told   []string // each step with what it led to
	broken error    // what must not be
}

// follow takes steps until one breaks what must hold.
func follow(t *testing.T, steps []string) walk {
	w := walk{steps: steps}
	synctest.Test(t, func(t *testing.T) {
		world := newWorld(t, steps[0])
		for n, step := range steps[1:] {
			if w.broken = world.take(step); w.broken != nil {
				w.steps = steps[:n+2]
				break
			}
		}
		if w.broken == nil {
			w.broken = world.end()
		}
		w.told = world.told
		world.now.kill()
		world.spare.kill()
		world.net.late.Wait()
	})
	return w
}

// named is what differs between walks that fail in the same way.
var named = regexp.MustCompile(`[\w-]*\d[\w-]*`)

// alike says whether two walks fail in the same way.
func alike(a, b error) bool {
	way := func(err error) string {
		first, _, _ := strings.Cut(err.Error(), "\n")
		_, what, _ := strings.Cut(first, ": ")
		return named.ReplaceAllString(cmp.Or(what, first), "#")
	}
	return way(a) == way(b)
}

// shrink leaves out steps of a walk as long as what is left fails too.
func shrink(t *testing.T, w walk) walk {
	tries := 0
	for size := len(w.steps) / 2; size > 0; size /= 2 {
		for from := 1; from < len(w.steps) && tries < mostShrinks; tries++ {
			without := slices.Delete(slices.Clone(w.steps), from, min(from+size, len(w.steps)))
			if shorter := follow(t, without); shorter.broken != nil && alike(shorter.broken, w.broken) {
				w = shorter
			} else {
				from += size
			}
		}
	}
	return w
}
