package diskdriver

import (
	"flag"
	"io"
	"os"
	"testing"

	"k8s.io/klog/v2"
)

// TestMain keeps the driver's log out of the tests' output.
func TestMain(m *testing.M) {
	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	for name, value := range map[string]string{"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := logging.Set(name, value); err != nil {
			panic(err)
		}
	}
	klog.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// captureLog writes the log into out until the test ends.
func captureLog(t *testing.T, out io.Writer) {
	klog.Flush()
	klog.SetOutput(out)
	t.Cleanup(func() { klog.Flush(); klog.SetOutput(io.Discard) })
}
