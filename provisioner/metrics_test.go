package provisioner

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/topodisk/topodisk/test/golden"
)

// measured returns every series of a registry that is not zero, as name{values} without the common prefix; a
// histogram counts as the number of what it has seen.
func measured(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	golden.Metrics(t, "../docs/monitoring.md", golden.Families(families))
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			key := strings.TrimPrefix(family.GetName(), "topodisk_provisioner_")
			if value != 0 && key != "journal_limit_bytes" && !strings.HasPrefix(key, "controller_") {
				all[key+"{"+strings.Join(labels, ",")+"}"] = value
			}
		}
	}
	return all
}

func TestMetrics(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(*bench)
		want map[string]float64
	}{
		"nothing has happened": {func(*bench) {}, map[string]float64{}},
		"a claim has two volumes": {func(b *bench) {
			b.show(t, testVolume("d-1"), testVolume("d-2"))
			b.handlers.duplicates.volumeChanged(testVolume("d-2"))
		}, map[string]float64{"duplicate_volumes_total{}": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			test.do(b)
			if got := measured(t, b.registry); !maps.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestJournalMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, []answer{unavailable(), refused(codes.Internal)}, func(c *Config) {
			c.Namespace, c.RetryStart, c.RetryMax = "kube-system", time.Hour, time.Hour
		})
		must(t, b.recoverRequests(t.Context()))
		stop := b.keepJournal(t.Context(), func(err error) { t.Error(err) })
		claim := claimOf(1)
		b.show(t, testClass(nil), claim)
		b.claims.Start(claim)
		end := b.provisions(t.Context())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		got := measured(t, b.registry)
		if got["journal_writes_total{}"] != 1 || got["journal_size_bytes{}"] < 100 || got["creates_in_flight{}"] != 1 {
			t.Errorf("with a record: %v", got)
		}
		b.claims.Wake(claim.UID)
		time.Sleep(15 * time.Second) // a record is deleted within some ten
		synctest.Wait()
		if got := measured(t, b.registry); got["journal_writes_total{}"] != 2 || got["journal_size_bytes{}"] != 0 || got["creates_in_flight{}"] != 0 {
			t.Errorf("without: %v", got)
		}
		end()
		stop()
	})
}

// A PersistentVolume may name any class, so only those that exist have series, for as long as they do.
func TestOnlyClassesThatExistHaveSeries(t *testing.T) {
	b := newBench(t, nil)
	series := func() (n int) {
		families, err := b.registry.Gather()
		must(t, err)
		for _, family := range families {
			for _, one := range family.Metric {
				if strings.Contains(one.String(), `name:"class"`) {
					n++
				}
			}
		}
		return n
	}
	try := func(class string) {
		b.metrics.deleted(class, time.Now(), nil)
		b.metrics.deleted(class, time.Now(), errors.New("no"))
	}
	b.show(t, testClass(nil))
	try("essd")
	one := series()
	for n := range 1_000 {
		try(fmt.Sprint("none-", n))
	}
	if all := series(); one == 0 || all != 2*one {
		t.Errorf("%d series with classes that don't exist, %d of one that does", all, one)
	}
	b.metrics.byClass.Forget("essd")
	if all := series(); all != one {
		t.Errorf("%d series are left of a class that is gone", all-one)
	}
}
