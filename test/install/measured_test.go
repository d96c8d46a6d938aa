//go:build e2einstall

package install

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/topodisk/topodisk/ecssim"
)

// scrapes is where isMeasured leaves what it has read, a scrape a line, for the tests of test/chart.
const scrapes = ".build/scrapes.jsonl"

// scrape is one target's page of metrics, with what Prometheus knows of the target.
type scrape struct {
	At        time.Time
	Namespace string
	Pod       string
	PodLabels map[string]string
	Container string
	Port      string
	Instance  string
	Text      string
}

// isMeasured reads the metrics of every container of topodisk again and again while claims come and go and ECS throttles
// some of the reads of disks.
func (s *scene) isMeasured() {
	load := s.startLoad()
	file, err := os.Create(filepath.Join(root, scrapes))
	s.Must(err)
	defer file.Close()
	out := json.NewEncoder(file)
	for range 3 {
		s.Must(s.scrapeAll(s.Context(), out))
		s.Must(s.Simulator.AddFault(s.Context(), ecssim.Fault{Action: "DescribeDisks", Do: ecssim.FaultThrottle, Count: 2}))
		after := load.count() + 2*(linesOfClaims+1)
		s.WaitFor("more claims have come and gone", late, func(context.Context) (bool, error) { return load.count() >= after, nil })
	}
	s.Must(s.scrapeAll(s.Context(), out))
	load.end()
}

// scrapeAll reads the metrics of every container of topodisk that has a port.
func (s *scene) scrapeAll(ctx context.Context, out *json.Encoder) error {
	pods, err := s.pods(ctx, "")
	if err != nil {
		return err
	}
	for _, p := range pods {
		for _, c := range p.Spec.Containers {
			for _, port := range c.Ports {
				at := time.Now()
				status, text, err := s.page(ctx, p, int(port.ContainerPort), "/metrics")
				if err != nil || status != http.StatusOK {
					return fmt.Errorf("metrics of %s in %s: status %d, %w", c.Name, p.Name, status, err)
				}
				err = out.Encode(scrape{
					At: at, Namespace: p.Namespace, Pod: p.Name, PodLabels: p.Labels, Container: c.Name, Port: port.Name,
					Instance: fmt.Sprintf("%s:%d", p.Status.PodIP, port.ContainerPort), Text: text,
				})
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}
