//go:build e2einstall

package install

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/labtest"
)

// late is how long to wait for what waits for back-offs, for Pods to end, and for a disk that an earlier version made: all of its 20 GiB are
// read before it is formatted, in 80 s at least, and from the beginning if the plugin is updated meanwhile. limit says the same to kubectl.
const (
	late  = 240 * time.Second
	limit = "--timeout=240s"
)

// scene is one step of the story, on the cluster that all steps share.
type scene struct {
	*labtest.Scene
}

// run runs a program on the desk as the administrator, and returns what it says.
func (s *scene) run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = desk
	cmd.Env = []string{"KUBECONFIG=" + s.Kubeconfig, "HOME=" + s.Dir, "PATH=" + filepath.Join(desk, "bin") + ":/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// kubectl runs a command as users do.
func (s *scene) kubectl(line string, more ...string) string {
	s.Helper()
	out, err := s.run(s.Context(), s.Kubectl, append(strings.Fields(line), more...)...)
	s.Must(err)
	return out
}

// helm runs helm on the release.
func (s *scene) helm(verb string, more ...string) string {
	s.Helper()
	out, err := s.run(s.Context(), filepath.Join(desk, "bin", "helm"), append([]string{verb, "topodisk", "--namespace=" + home}, more...)...)
	s.Must(err)
	return out
}

// install installs the release's chart package as the documentation does, but for the Secret.
func (s *scene) install() {
	s.Helper()
	s.helm("install", append([]string{dist("topodisk-" + releaseVersion + ".tgz")}, settings...)...)
}

// pods are those of the release, of one component or of all.
func (s *scene) pods(ctx context.Context, component string) ([]corev1.Pod, error) {
	selector := "app.kubernetes.io/instance=topodisk"
	if component != "" {
		selector += ",app.kubernetes.io/component=" + component
	}
	list, err := s.Client.CoreV1().Pods(home).List(ctx, metav1.ListOptions{LabelSelector: selector})
	return list.Items, err
}

// awaitGone waits until no Pod of the release is left.
func (s *scene) awaitGone() {
	s.Helper()
	s.WaitFor("no Pod of topodisk is left", late, func(ctx context.Context) (bool, error) {
		pods, err := s.pods(ctx, "")
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("left is %s: %v", pods[0].Name, states(pods[0]))
		}
		return err == nil, err
	})
}

// awaitReady waits until as many Pods of the release are there as there should be, and all are ready.
func (s *scene) awaitReady(limit time.Duration) {
	s.Helper()
	s.WaitFor("all Pods of topodisk are ready", limit, func(ctx context.Context) (bool, error) {
		pods, err := s.pods(ctx, "")
		if err != nil {
			return false, err
		}
		for _, p := range pods {
			if !lab.IsReady(&p) {
				return false, fmt.Errorf("Pod %s is %s on %q: %v", p.Name, p.Status.Phase, p.Spec.NodeName, states(p))
			}
		}
		if want := 2 + len(s.Nodes); len(pods) != want {
			return false, fmt.Errorf("there are %d Pods, want %d", len(pods), want)
		}
		return true, nil
	})
}

// states says how the containers of a Pod are.
func states(p corev1.Pod) (said []string) {
	for _, c := range p.Status.ContainerStatuses {
		word := "runs"
		switch {
		case c.State.Waiting != nil:
			word = c.State.Waiting.Reason + " " + c.State.Waiting.Message
		case c.State.Terminated != nil:
			word = fmt.Sprintf("ended with %d %s", c.State.Terminated.ExitCode, c.State.Terminated.Message)
		}
		said = append(said, fmt.Sprintf("%s: ready=%v restarts=%d %s", c.Name, c.Ready, c.RestartCount, word))
	}
	return said
}

// makePod makes a Pod that waits in a shell, with a claim at /data.
func (s *scene) makePod(ctx context.Context, name, claim string) error {
	return s.makePodOn(ctx, "", name, claim)
}

// makePodOn is makePod on a node of that name, or on any if it is empty.
func (s *scene) makePodOn(ctx context.Context, node, name, claim string) error {
	pod := lab.Pod(namespace, name, claim)
	if node != "" {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	_, err := s.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// page asks a container of a Pod for a page: its answer's status and text.
func (s *scene) page(ctx context.Context, p corev1.Pod, port int, path string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d%s", p.Status.PodIP, port, path), nil)
	if err != nil {
		return 0, "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}
