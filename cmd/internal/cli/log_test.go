package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// Libraries that log through a logger of klog's heed --v in a log of JSON, too.
func TestVerbosityCountsForEveryLogger(t *testing.T) {
	var log Log
	var out strings.Builder
	flags := pflag.NewFlagSet("program", pflag.ContinueOnError)
	log.AddFlags(flags)
	if err := flags.Parse([]string{"--logging-format=json", "--v=2"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		klog.ClearLogger()
		_ = flags.Set("v", "0")
	})
	log.Start(&out)
	klog.Background().V(2).Info("shown by a library", "duration", 1500*time.Millisecond)
	klog.Background().V(3).Info("not shown by a library")
	klog.V(2).InfoS("shown by klog")
	klog.V(3).InfoS("not shown by klog")
	for _, want := range []string{`"level":"DEBUG","msg":"shown by a library","duration":"1.5s"`, `"msg":"shown by klog"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("not logged: %s", want)
		}
	}
	if strings.Contains(out.String(), "not shown") || strings.Contains(out.String(), "DEBUG+") || strings.Contains(out.String(), "DEBUG-") {
		t.Errorf("logged:\n%s", out.String())
	}
}
