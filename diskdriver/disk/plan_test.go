package disk

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const mebi = 1 << 20

func TestWantRoundsUpAndRaisesNothing(t *testing.T) {
	for _, row := range []struct {
		required, limit int64
		fs              string
		want            Wanted
		kind            Kind
		text            string
	}{
		{0, 0, "ext4", Wanted{0, anySize}, 0, ""},
		{1, 0, "ext4", Wanted{1, anySize}, 0, ""},
		{500 * mebi, 0, "xfs", Wanted{1, anySize}, 0, ""},
		{1 << 30, 1 << 30, "xfs", Wanted{1, 1}, 0, ""},
		{1<<30 + 1, 0, "", Wanted{2, anySize}, 0, ""},
		{1<<30 + 1, 3<<30 - 1, "", Wanted{2, 2}, 0, ""},
		{0, 5 << 30, "", Wanted{0, 5}, 0, ""},
		{math.MaxInt64, 0, "", Wanted{1 << 33, anySize}, 0, ""},
		{math.MaxInt64, math.MaxInt64, "", Wanted{}, OutOfRange, "no whole number of GiB"},
		{100 * mebi, 200 * mebi, "xfs", Wanted{}, OutOfRange, "below the 314572800 bytes that mkfs.xfs needs"},
		{100 * mebi, 200 * mebi, "ext4", Wanted{}, OutOfRange, "no whole number of GiB from required_bytes 104857600 to limit_bytes 209715200"},
		{1<<30 + 1, 2<<30 - 1, "", Wanted{}, OutOfRange, "no whole number of GiB"},
		{-1, 0, "", Wanted{}, Invalid, "required_bytes -1 is negative"},
		{0, -1, "", Wanted{}, Invalid, "limit_bytes -1 is negative"},
		{2, 1, "", Wanted{}, Invalid, "limit_bytes 1 is below required_bytes 2"},
	} {
		got, err := Want(row.required, row.limit, row.fs)
		if row.text == "" {
			if err != nil || got != row.want {
				t.Errorf("Want(%d, %d, %q) = %v, %v, want %v", row.required, row.limit, row.fs, got, err, row.want)
			}
		} else if err == nil || KindOf(err) != row.kind || !strings.Contains(err.Error(), row.text) {
			t.Errorf("Want(%d, %d, %q) = %v, want %v %q", row.required, row.limit, row.fs, err, row.kind, row.text)
		}
	}
}

func FuzzWantHoldsTheBytesAskedFor(f *testing.F) {
	f.Add(int64(0), int64(0), "ext4")
	f.Add(int64(500*mebi), int64(1<<30), "xfs")
	f.Add(int64(math.MaxInt64), int64(0), "")
	f.Add(int64(-1), int64(math.MinInt64), "xfs")
	f.Fuzz(func(t *testing.T, required, limit int64, fs string) {
		w, err := Want(required, limit, fs)
		if err != nil {
			if k := KindOf(err); k != Invalid && k != OutOfRange {
				t.Errorf("Kind %v", k)
			}
			return
		}
		if w.Least < 0 || float64(w.Least)*BytesPerGiB < float64(required) || float64(w.Least-1)*BytesPerGiB >= math.Max(float64(required), 1) {
			t.Errorf("%d GiB is not %d bytes rounded up", w.Least, required)
		}
		if limit > 0 && (w.Most < 1 || w.Most.Bytes() > limit || w.Least > w.Most) {
			t.Errorf("%d to %d GiB breaks the limit of %d bytes", w.Least, w.Most, limit)
		}
	})
}

func TestFitsSkipsWhatTheSizeBreaks(t *testing.T) {
	choices := []Choice{{Category: "cloud_ssd"}, {"cloud_essd", "PL2"}, {"cloud_essd", "PL0"}, {Category: "cloud_essd"}, {Category: "cloud_auto"}}
	for _, row := range []struct {
		name  string
		want  Wanted
		multi bool
		fits  []Attempt
		kind  Kind
		text  string
	}{
		{name: "5 GiB", want: Wanted{5, anySize}, fits: []Attempt{fit(choices[2], 5), fit(choices[4], 5)}},
		{name: "20 GiB", want: Wanted{20, 20}, fits: []Attempt{fit(choices[0], 20), fit(choices[2], 20), fit(choices[3], 20), fit(choices[4], 20)}},
		{name: "any size takes each one's smallest", want: Wanted{0, anySize}, fits: []Attempt{fit(choices[0], 20), fit(choices[1], 461), fit(choices[2], 1), fit(choices[3], 20), fit(choices[4], 1)}},
		{name: "a limit alone", want: Wanted{0, 19}, fits: []Attempt{fit(choices[2], 1), fit(choices[4], 1)}},
		{name: "40000 GiB is beyond cloud_ssd", want: Wanted{40000, anySize}, fits: []Attempt{fit(choices[1], 40000), fit(choices[2], 40000), fit(choices[3], 40000), fit(choices[4], 40000)}},
		{name: "several nodes", want: Wanted{5, anySize}, multi: true, fits: []Attempt{fit(choices[2], 5), fit(choices[4], 5)}},
		{
			name: "beyond all", want: Wanted{70000, anySize}, kind: OutOfRange,
			text: "no disk type of the class can serve 70000 GiB or more: cloud_ssd takes 20 to 32768 GiB; cloud_essd PL2 takes 461 to 65536 GiB; cloud_essd PL0 takes 1 to 65536 GiB; cloud_essd takes 20 to 65536 GiB; cloud_auto takes 1 to 65536 GiB",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := Fits(choices, row.want, Spec{MultiAttach: row.multi})
			if diff := cmp.Diff(row.fits, got); diff != "" {
				t.Error(diff)
			}
			if row.text != "" && (err == nil || KindOf(err) != row.kind || err.Error() != row.text) {
				t.Errorf("got %v, want %v %s", err, row.kind, row.text)
			}
		})
	}
	_, err := Fits(choices[:1], Wanted{20, 20}, Spec{MultiAttach: true})
	if KindOf(err) != Invalid || !strings.Contains(err.Error(), "cloud_ssd can't be attached to several nodes") {
		t.Errorf("multi-attach with cloud_ssd alone: %v", err)
	}
}

func TestFitsTakesASizeForThePerformance(t *testing.T) {
	auto := []Choice{{Category: "cloud_auto"}}
	for _, row := range []struct {
		name string
		want Wanted
		spec Spec
		size GiB // 0: OutOfRange
		text string
	}{
		{name: "none asked for", want: Wanted{0, anySize}, size: 1},
		{name: "some", want: Wanted{0, anySize}, spec: Spec{ProvisionedIOPS: 500}, size: 4},
		{name: "the most", want: Wanted{0, anySize}, spec: Spec{ProvisionedIOPS: 50_000}, size: 55},
		{name: "bursting", want: Wanted{0, anySize}, spec: Spec{Bursting: true}, size: 4},
		{name: "a size that is asked for", want: Wanted{1, anySize}, spec: Spec{ProvisionedIOPS: 500}, text: "500 is not allowed for cloud_auto of 1 GiB; allowed are 0 to 0"},
		{name: "beyond the limit", want: Wanted{0, 3}, spec: Spec{ProvisionedIOPS: 500}, text: "500 is not allowed for cloud_auto of 3 GiB; allowed are 0 to 0"},
		{name: "beyond all", want: Wanted{0, anySize}, spec: Spec{ProvisionedIOPS: 50_001}, text: "50001 is not allowed for cloud_auto of 100 GiB; allowed are 0 to 50000"},
	} {
		t.Run(row.name, func(t *testing.T) {
			fits, err := Fits(auto, row.want, row.spec)
			if row.size > 0 && (err != nil || len(fits) != 1 || fits[0].Size != row.size) {
				t.Errorf("got %v, %v, want %d GiB", fits, err, row.size)
			}
			if row.size == 0 && (KindOf(err) != OutOfRange || !strings.Contains(err.Error(), row.text)) {
				t.Errorf("got %v, %v, want an error with %q", fits, err, row.text)
			}
		})
	}
}

func TestMoreTypesArePossibleFromTheSmallestSizeThatOneTakes(t *testing.T) {
	essd, pl2, auto, plain := Choice{Category: ESSD}, Choice{ESSD, PL2}, Choice{Category: "cloud_auto"}, Choice{Category: "cloud_efficiency"}
	for name, test := range map[string]struct {
		choices []Choice
		want    Wanted
		spec    Spec
		from    GiB
	}{
		"the next larger type":               {[]Choice{auto, pl2, essd}, Wanted{5, anySize}, Spec{}, 20},
		"that after it":                      {[]Choice{auto, pl2, essd}, Wanted{20, anySize}, Spec{}, 461},
		"all fit":                            {[]Choice{auto, pl2, essd}, Wanted{461, anySize}, Spec{}, 0},
		"the limit of the request says none": {[]Choice{auto, essd}, Wanted{5, 10}, Spec{}, 20},
		"larger than a type comes":           {[]Choice{plain, essd}, Wanted{40_000, anySize}, Spec{}, 0},
		"a size for the performance":         {[]Choice{plain, auto}, Wanted{3, anySize}, Spec{Bursting: true}, LeastToBurst},
		"a type that several nodes can't use": {
			[]Choice{auto, {Category: "cloud_essd_entry"}, essd}, Wanted{5, anySize}, Spec{MultiAttach: true}, 20,
		},
	} {
		if from := MoreFrom(test.choices, test.want, test.spec); from != test.from {
			t.Errorf("%s: from %d GiB, want %d", name, from, test.from)
		}
	}
}

func TestPlanGoesZoneByZoneThenChoiceByChoice(t *testing.T) {
	ssd, auto := Attempt{Category: "cloud_ssd", Size: 20}, Attempt{Category: "cloud_auto", Size: 20}
	regional := Attempt{Category: "cloud_regional_disk_auto", Size: 20}
	in := func(z Zone, f Attempt) Attempt { return Attempt{Zone: z, Category: f.Category, Size: 20} }
	for _, row := range []struct {
		name       string
		fits       []Attempt
		candidates []ZoneCandidate
		want       []Attempt
		kind       Kind
		text       string
	}{
		{name: "zones first", fits: []Attempt{ssd, auto}, candidates: []ZoneCandidate{{Zone: "b"}, {Zone: "a"}}, want: []Attempt{in("b", ssd), in("b", auto), in("a", ssd), in("a", auto)}},
		{name: "a node's labels", fits: []Attempt{ssd, auto}, candidates: []ZoneCandidate{{Zone: "a", Takes: []Category{"cloud_auto"}}, {Zone: "b"}}, want: []Attempt{in("a", auto), in("b", ssd), in("b", auto)}},
		{name: "regional once", fits: []Attempt{ssd, regional}, candidates: []ZoneCandidate{{Zone: "a"}, {Zone: "b"}}, want: []Attempt{in("a", ssd), in("", regional), in("b", ssd)}},
		{name: "regional without zones", fits: []Attempt{ssd, regional}, candidates: []ZoneCandidate{{}}, want: []Attempt{in("", regional)}},
		{name: "no zone", fits: []Attempt{ssd}, candidates: []ZoneCandidate{{}}, kind: Invalid, text: "no zone is given"},
		{name: "a node that takes none", fits: []Attempt{ssd}, candidates: []ZoneCandidate{{Zone: "a", Takes: []Category{"cloud_auto"}}}, kind: OutOfStock, text: "the node takes none of the disk types: cloud_ssd in zone a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := Plan(row.fits, row.candidates)
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
			if row.text != "" && (err == nil || KindOf(err) != row.kind || !strings.Contains(err.Error(), row.text)) {
				t.Errorf("got %v, want %v %s", err, row.kind, row.text)
			}
		})
	}
}

// fit is a choice with the size that it would have.
func fit(c Choice, size GiB) Attempt {
	return Attempt{Category: c.Category, Level: c.Level, Size: size}
}
