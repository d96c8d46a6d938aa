package main

import (
	"bytes"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/topodisk/topodisk/test/golden"
)

// started starts the program, which then waits for the driver, and returns the URL of its pages.
func started(t *testing.T, log io.Writer, args ...string) (program *exec.Cmd, url string) {
	t.Helper()
	address := golden.Address(t)
	program = golden.Command(t, nil, append(args, "--kubeconfig="+golden.Kubeconfig(t, "http://127.0.0.1:1"), "--csi-address="+t.TempDir()+"/csi.sock", "--http-endpoint="+address)...)
	program.Stderr = log
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	awaitAnswer(t, "http://"+address+"/healthz")
	return program, "http://" + address
}

// The program tells of its build, runtime and process from the start, each metric once: while it waits for the driver, too.
func TestMetricsOfTheProgramItself(t *testing.T) {
	program, url := started(t, nil, "--logging-format=json")
	defer func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	}()
	served := golden.Scrape(t, url+"/metrics")
	golden.Metrics(t, "../../docs/monitoring.md", served)
	for _, name := range []string{"topodisk_build_info", "go_goroutines", "process_start_time_seconds", "process_resident_memory_bytes"} {
		if served[name] == nil || len(served[name].Metric) != 1 {
			t.Errorf("%s: %v", name, served[name])
		}
	}
	if n := zeroes(served); n > 40 {
		t.Errorf("%d series are 0", n)
	}
}

// An error is in the log also if the program was to end, and does not fail it then.
func TestAnErrorDuringShutdownIsLogged(t *testing.T) {
	var log bytes.Buffer
	program, _ := started(t, &log)
	_ = program.Process.Signal(syscall.SIGTERM)
	if err := program.Wait(); err != nil || !strings.Contains(log.String(), `"disk-provisioner ends" err="the driver's socket`) {
		t.Errorf("%v, with the log\n%s", err, &log)
	}
}

func awaitAnswer(t *testing.T, url string) {
	t.Helper()
	again, late := time.NewTicker(50*time.Millisecond), time.After(time.Minute)
	defer again.Stop()
	for {
		if answer, err := http.Get(url); err == nil {
			_ = answer.Body.Close()
			return
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("%s does not answer", url)
		}
	}
}

// zeroes counts the series that are 0, but those of the Go runtime.
func zeroes(families map[string]*dto.MetricFamily) (n int) {
	for name, family := range families {
		for _, m := range family.Metric {
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()) + float64(m.GetSummary().GetSampleCount())
			if value == 0 && !strings.HasPrefix(name, "go_") {
				n++
			}
		}
	}
	return n
}
