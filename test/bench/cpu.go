package main

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// parts are the functions under which most of a call's CPU time falls, with
// what they do. They nest: a line may hold what a later one holds.
var parts = []struct{ function, does string }{
	{"transport.(*Transport).exchange.func1", "a call"},
	{"transport.(*wire).RoundTrip", "part of it: HTTP, writing and waiting"},
	{"net/http.(*persistConn).readLoop", "HTTP, reading"},
	{"net/http.(*persistConn).writeLoop", "HTTP, writing"},
	{"responses.Unmarshal", "of the call: decoding the reply"},
	{"transport.(*Transport).encode", "of the call: encoding the request"},
	{"signature.Version.Sign", "of the call: signing"},
	{"runtime.gcBgMarkWorker", "garbage collection"},
	{"runtime.schedule", "waiting for work, and waking up"},
}

// cpuTable says where the CPU time of a client's process went.
func cpuTable(t *testing.T, profile string, calls int, total time.Duration) []string {
	t.Helper()
	out, err := exec.Command("go", "tool", "pprof", "-top", "-cum", "-nodecount=2000", profile).CombinedOutput()
	if err != nil {
		t.Fatalf("go tool pprof: %v: %s", err, out)
	}
	rows := []string{
		fmt.Sprintf("Of %d calls (1 000 lifecycles on the wall clock), %.1f s of CPU time in the client's process:", calls, total.Seconds()),
		"", "| what | share of the CPU time | function |", "|---|---|---|",
	}
	for _, part := range parts {
		if share := shareOf(string(out), part.function); share != "" {
			rows = append(rows, fmt.Sprintf("| %s | %s | `%s` |", part.does, share, part.function))
		}
	}
	return append(rows, "", verdictOnDecoding(shareOf(string(out), "responses.Unmarshal")))
}

// decoderThreshold is the share of the CPU time from which on a decoder of our own would
// pay for its upkeep.
const decoderThreshold = 25

func verdictOnDecoding(share string) string {
	percent, err := strconv.ParseFloat(strings.TrimSuffix(share, "%"), 64)
	switch {
	case err != nil:
		return "Decoding replies doesn't show in the profile: a decoder of our own would save nothing."
	case percent < decoderThreshold:
		return fmt.Sprintf("Decoding replies takes %s. The SDK's decoder doesn't dominate; replacing it would save little.", share)
	}
	return fmt.Sprintf("Decoding replies takes %s. A decoder of our own is worth it.", share)
}

// shareOf finds the cumulative share of a function in pprof's table.
func shareOf(table, function string) string {
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) >= 6 && strings.HasSuffix(words[5], function) {
			return words[4]
		}
	}
	return ""
}
