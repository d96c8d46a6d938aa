package claim

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// TestMain drops what is logged, which would be millions of lines; SHOW=1 shows it.
func TestMain(m *testing.M) {
	if os.Getenv("SHOW") == "" {
		klog.SetLogger(logr.Discard())
	}
	os.Exit(m.Run())
}
