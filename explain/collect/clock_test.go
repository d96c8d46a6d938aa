package collect

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/topodisk/topodisk/explain"
)

// A Lease and an event are as old as the cluster's clock says, whatever the reader's does.
func TestFactsAreReadByTheClockOfTheAPIServer(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"the same": 0, "behind": -10 * time.Minute, "ahead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
				w.Header().Set("Content-Type", "application/json")
				if r.URL.Path != "/api/v1/namespaces/shop/pods/db-0" {
					w.WriteHeader(http.StatusForbidden)
					return
				}
				_ = json.NewEncoder(w).Encode(&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: Pod}, ObjectMeta: named("shop", "db-0")})
			}))
			defer server.Close()
			clients, err := NewClients(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			facts, err := Read(t.Context(), clients, explain.Ref{Kind: Pod, Namespace: "shop", Name: "db-0"}, driver, "")
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Until(facts.At); (got - ahead).Abs() > time.Minute {
				t.Errorf("the facts are of %s, which is %s ahead of here, want %s", facts.At, got, ahead)
			}
		})
	}
}
