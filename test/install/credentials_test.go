//go:build e2einstall

package install

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

// The ports of the controller's Pods (charts/topodisk/values.yaml).
const (
	driverPort      = 9808
	provisionerPort = 9809
)

// Another access key, that the first is replaced by.
const otherID, otherSecret = "LTAI5tTopodiskLab2", "not-secret-either"

// rotatesItsKeys gives the installation another access key while claims come and go, and takes the old one away: no call
// of any driver may fail.
func (s *scene) rotatesItsKeys() {
	load := s.startLoad()
	failed, renewed := s.failedCalls(), s.renewals()
	s.Must(s.Simulator.SetKey(s.Context(), otherID, otherSecret))
	s.setSecret(otherID, otherSecret)
	begin := time.Now()
	s.WaitFor("every driver has read the other key", late, func(ctx context.Context) (bool, error) {
		now := s.renewals()
		for pod, n := range now {
			if n <= renewed[pod] {
				return false, fmt.Errorf("%s has read its key %g times, and had %g times", pod, n, renewed[pod])
			}
		}
		return len(now) == 2, nil
	})
	s.Logf("%.1f s until both drivers used the other key", time.Since(begin).Seconds())
	s.Must(s.Simulator.SetKey(s.Context(), simulator.KeyID, ""))
	after := load.count() + 20
	s.WaitFor("claims with the other key alone", late, func(context.Context) (bool, error) { return load.count() >= after, nil })
	load.end()
	if now := s.failedCalls(); now != failed {
		s.Errorf("failed calls of the drivers: %s, and before the rotation %s", now, failed)
	}
}

// renewals are how often each driver of the controller has read credentials that were new to it, by Pod.
func (s *scene) renewals() map[string]float64 {
	s.Helper()
	counts := map[string]float64{}
	for pod, lines := range s.metrics("controller") {
		for _, line := range lines {
			if strings.HasPrefix(line, "topodisk_ecs_credentials_renewals_total") {
				counts[pod] += value(line)
			}
		}
	}
	return counts
}

// failedCalls are the CSI calls to drivers that did not end well, by Pod, method and code, and calls to ECS that it refused
// for their signatures.
func (s *scene) failedCalls() string {
	s.Helper()
	var failed []string
	for _, component := range []string{"controller", "node"} {
		for pod, lines := range s.metrics(component) {
			for _, line := range lines {
				call := strings.HasPrefix(line, "topodisk_csi_call_duration_seconds_count") && !strings.Contains(line, `code="OK"`)
				signed := strings.HasPrefix(line, "topodisk_ecs_requests_total") &&
					(strings.Contains(line, "unauthenticated") || strings.Contains(line, "denied"))
				if (call || signed) && value(line) > 0 {
					failed = append(failed, pod+": "+line)
				}
			}
		}
	}
	return strings.Join(failed, "\n")
}

// metrics are the lines of each driver's page, by Pod.
func (s *scene) metrics(component string) map[string][]string {
	s.Helper()
	pods, err := s.pods(s.Context(), component)
	s.Must(err)
	lines := map[string][]string{}
	for _, p := range pods {
		_, text, err := s.page(s.Context(), p, driverPort, "/metrics")
		s.Must(err)
		lines[p.Name] = strings.Split(text, "\n")
	}
	return lines
}

// value is the number at the end of a line of metrics.
func value(line string) float64 {
	n, _ := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
	return n
}

// saysWhatIsWrongWithItsSecret installs topodisk without its Secret, then with a wrong one, and then with the right one.
func (s *scene) saysWhatIsWrongWithItsSecret() {
	s.kubectl("-n " + home + " delete secret " + secretName)
	s.install()
	s.awaitTold(secretName, "access-key-id")
	const wrong = "a-wrong-secret"
	s.makeSecret(otherID, wrong)
	s.awaitTold(secretName, "access-key-secret", "SignatureDoesNotMatch")
	s.Must(contains(s.follow("docs/monitoring.md", "logs deployment"), "SignatureDoesNotMatch"))
	s.setSecret(otherID, otherSecret)
	s.awaitReady(late)
	for _, value := range []string{wrong, otherSecret} {
		if strings.Contains(s.logs("disk-driver")+s.kubectl("-n "+home+" get events -o yaml"), value) {
			s.Errorf("logs or events tell the secret %s", value)
		}
	}
	pods, err := s.controllerPods(s.Context())
	s.Must(err)
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			if c.RestartCount > 0 {
				s.Errorf("%s of %s was restarted", c.Name, p.Name)
			}
		}
	}
}

// awaitTold waits until each of the controller's Pods runs, isn't ready, and says why with these words: in the log of
// disk-driver and in an event, but not on the page of its readiness probe, which anybody may read.
func (s *scene) awaitTold(words ...string) {
	s.Helper()
	s.WaitFor(fmt.Sprintf("the Pods say %q", words), late, func(ctx context.Context) (bool, error) {
		pods, err := s.controllerPods(ctx)
		if err != nil || len(pods) != 2 {
			return false, fmt.Errorf("Pods are %d, want 2: %w", len(pods), err)
		}
		for _, p := range pods {
			driver, why, err := s.page(ctx, p, driverPort, "/readyz")
			if err != nil {
				return false, err
			}
			provisioner, _, err := s.page(ctx, p, provisionerPort, "/readyz")
			if err != nil {
				return false, err
			}
			if driver != http.StatusServiceUnavailable || provisioner != http.StatusServiceUnavailable || lab.IsReady(&p) {
				return false, fmt.Errorf("Pod %s: readiness probes answer %d and %d, ready=%v", p.Name, driver, provisioner, lab.IsReady(&p))
			}
			events, err := s.Events(ctx, home, p.Name)
			if err != nil {
				return false, err
			}
			var said []string
			for _, e := range events {
				if e.Reason == "ECSDoesNotAnswer" {
					said = append(said, e.Message)
				}
			}
			log, err := s.run(ctx, s.Kubectl, "-n", home, "logs", p.Name, "-c", "disk-driver")
			if err := errors.Join(err, contains(why, "not ok"), contains(strings.Join(said, "\n"), words...), contains(log, words...)); err != nil {
				return false, err
			}
		}
		return true, nil
	})
}

// setSecret changes the Secret of credentials.
func (s *scene) setSecret(id, secret string) {
	s.Helper()
	s.kubectl("-n "+home+" patch secret "+secretName, "-p", fmt.Sprintf(`{"stringData":{"access-key-id":%q,"access-key-secret":%q}}`, id, secret))
}
