package provisioner

import (
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

// measured returns every series of the bench that is not zero, but for a constant.
func (b *bench) measured(t *testing.T) map[string]float64 {
	t.Helper()
	all := provisionertest.Metrics(t, b.registry, "../docs/monitoring.md")
	delete(all, "journal_limit_bytes{}")
	return all
}

func TestMetrics(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(*bench)
		want map[string]float64
	}{
		"nothing has happened": {func(*bench) {}, map[string]float64{}},
		"a claim has two volumes": {func(b *bench) {
			b.show(t, provisionertest.Volume("d-1"), provisionertest.Volume("d-2"))
			b.reportDuplicates(provisionertest.Volume("d-2"))
		}, map[string]float64{"duplicate_volumes_total{}": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			test.do(b)
			if got := b.measured(t); !maps.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestJournalMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, []answer{provisionertest.Unavailable(), provisionertest.Refused(codes.Internal)}, func(c *Config) {
			c.Namespace, c.RetryStart, c.RetryMax = "kube-system", time.Hour, time.Hour
		})
		must(t, b.recoverRequests(t.Context()))
		stop := b.keepJournal(t.Context(), func(err error) { t.Error(err) })
		claim := provisionertest.NumberedClaim(1, "20Gi")
		b.show(t, provisionertest.Class(nil), claim)
		b.claims.Start(claim)
		end := b.provisions(t.Context())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		got := b.measured(t)
		if got["journal_writes_total{}"] != 1 || got["journal_size_bytes{}"] < 100 || got["creates_in_flight{}"] != 1 {
			t.Errorf("with a record: %v", got)
		}
		b.claims.Wake(claim.UID)
		time.Sleep(15 * time.Second) // a record is deleted within some ten
		synctest.Wait()
		if got := b.measured(t); got["journal_writes_total{}"] != 2 || got["journal_size_bytes{}"] != 0 || got["creates_in_flight{}"] != 0 {
			t.Errorf("without: %v", got)
		}
		end()
		stop()
	})
}

// A PersistentVolume may name any class, so only those that exist have series, for as long as they do.
func TestOnlyClassesThatExistHaveSeries(t *testing.T) {
	b := newBench(t, nil)
	b.show(t, provisionertest.Class(nil))
	provisionertest.CheckClassSeries(t, b.registry, func(class string) {
		b.metrics.deleted(class, time.Now(), nil)
		b.metrics.deleted(class, time.Now(), errors.New("no"))
	}, b.metrics.byClass.Forget)
}
