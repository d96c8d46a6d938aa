package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

const (
	home           = metav1.NamespaceSystem // where topodisk is installed
	secretName     = "topodisk-credentials"
	className      = "soak"
	immediateClass = "soak-immediate"
)

// installLimit is how long installation and rollouts may take until all Pods are ready.
const installLimit = 3 * time.Minute

// environment is the lab with the chart installed, and where measurements go.
type environment struct {
	root    string
	plan    Plan
	lab     *lab.Lab
	objects dynamic.Interface
	out     *records
	begin   time.Time
	victim  string // the controller's Pod whose driver is killed while all else of it lives on
}

// start brings the lab up and installs the chart.
func start(ctx context.Context, root, dir string, plan Plan) (*environment, error) {
	run, err := newRun(root)
	if err != nil {
		return nil, err
	}
	images, err := sidecarImages(ctx, root)
	if err != nil {
		return nil, err
	}
	l, err := lab.Start(ctx, lab.Options{
		Root: root, Programs: programs.Default.BuiltNodes(root), StateDir: dir, RealNodes: true, Nodes: lab.ManyNodes(3), InPods: true,
		Images: images, Archives: []string{imageFile(root)},
		RestartPeriod: 10 * time.Second, // what is killed once a round would stay away for longer and longer
		Say:           func(step string, took time.Duration) { say("%5.1f s  %s", took.Seconds(), step) },
	})
	if err != nil {
		return nil, err
	}
	e := &environment{root: root, plan: plan, lab: l}
	for _, step := range []func() error{
		func() (err error) { e.objects, err = l.Dynamic(); return err },
		func() (err error) { e.out, err = openRecords(run); return err },
		func() error { return e.install(ctx) },
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, l.Stop())
		}
	}
	return e, nil
}

// say prints a line with the time of day.
func say(format string, args ...any) {
	fmt.Printf(time.Now().UTC().Format("15:04:05 ")+format+"\n", args...)
}

func (e *environment) install(ctx context.Context) error {
	key := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secretName, Namespace: home},
		StringData: map[string]string{"access-key-id": simulator.KeyID, "access-key-secret": simulator.Secret},
	}
	if _, err := e.lab.Client.CoreV1().Secrets(home).Create(ctx, key, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := os.WriteFile(e.valuesFile(), []byte(values(e.lab.Simulator.URL)), 0o644); err != nil {
		return err
	}
	begin := time.Now()
	if err := e.helm(ctx, "install"); err != nil {
		return err
	}
	if err := e.awaitInstalled(ctx); err != nil {
		return err
	}
	say("%5.1f s  helm install, all Pods ready", time.Since(begin).Seconds())
	return nil
}

func (e *environment) valuesFile() string { return filepath.Join(e.lab.Dir, "values.yaml") }

func (e *environment) helm(ctx context.Context, verb string, more ...string) error {
	args := append([]string{verb, "topodisk", chart(e.root), "--namespace=" + home, "--values=" + e.valuesFile()}, more...)
	return e.tool(ctx, programs.BuiltHelm(e.root), args...)
}

func (e *environment) kubectl(ctx context.Context, args ...string) error {
	return e.tool(ctx, e.lab.Kubectl, args...)
}

// tool runs a program as the administrator.
func (e *environment) tool(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"KUBECONFIG=" + e.lab.Kubeconfig, "HOME=" + e.lab.Dir, "PATH=/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// pods are those of topodisk, of one component or of all, but for those that are to go.
func (e *environment) pods(ctx context.Context, component string) ([]corev1.Pod, error) {
	selector := "app.kubernetes.io/instance=topodisk"
	if component != "" {
		selector += ",app.kubernetes.io/component=" + component
	}
	list, err := e.lab.Client.CoreV1().Pods(home).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), nil
}

// awaitInstalled waits until all Pods of topodisk are there and ready.
func (e *environment) awaitInstalled(ctx context.Context) error {
	return poll(ctx, "all Pods of topodisk are ready", installLimit, func(ctx context.Context) (bool, error) {
		pods, err := e.pods(ctx, "")
		if err != nil {
			return false, err
		}
		if want := 2 + len(e.lab.Nodes); len(pods) != want {
			return false, fmt.Errorf("there are %d Pods, want %d", len(pods), want)
		}
		for _, p := range pods {
			if !lab.IsReady(&p) {
				return false, fmt.Errorf("%s is not ready", p.Name)
			}
		}
		return true, nil
	})
}

// leader is the controller's Pod whose disk-provisioner holds the Lease.
func (e *environment) leader(ctx context.Context) (string, error) {
	pods, err := e.pods(ctx, "controller")
	if err != nil {
		return "", err
	}
	name := strings.ReplaceAll(lab.DriverName, ".", "-")
	lease, err := e.lab.Client.CoordinationV1().Leases(home).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if holder := lease.Spec.HolderIdentity; holder != nil {
		for _, p := range pods {
			if strings.HasPrefix(*holder, p.Name) {
				return p.Name, nil
			}
		}
		return "", fmt.Errorf("the Lease %s is held by %q, which is no Pod of the controller", name, *holder)
	}
	return "", fmt.Errorf("nobody holds Lease %s", name)
}

// killProgram ends the process of a program in a Pod with SIGKILL.
func (e *environment) killProgram(ctx context.Context, pod, program string) error {
	p, err := e.lab.Client.CoreV1().Pods(home).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pid, err := processOf(string(p.UID), program)
	if err != nil {
		return fmt.Errorf("%s of Pod %s: %w", program, pod, err)
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// processOf finds the process of a program in the Pod with a UID, by the Pod's cgroup.
func processOf(uid, program string) (pid int, err error) {
	found, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return 0, err
	}
	for _, path := range found {
		groups, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(groups, []byte("pod"+uid)) {
			continue // it has ended, or is another Pod's
		}
		command, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err != nil {
			continue
		}
		first, _, _ := bytes.Cut(command, []byte{0})
		if filepath.Base(string(first)) == program {
			_, err := fmt.Sscanf(path, "/proc/%d/cgroup", &pid)
			return pid, err
		}
	}
	return 0, errors.New("no such process")
}

// pollEvery is how often is looked whether something has become so. It bounds how exact times are.
const pollEvery = 500 * time.Millisecond

// poll looks until something is so. An error of the look is no end but a reason that is shown at the limit, for the API server
// is away at times.
func poll(ctx context.Context, what string, limit time.Duration, look func(context.Context) (bool, error)) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		each, done := context.WithTimeout(limited, 20*time.Second)
		ok, err := look(each)
		done()
		if ok && err == nil {
			return nil
		}
		if err != nil && limited.Err() == nil {
			last = err
		}
		select {
		case <-time.After(pollEvery):
		case <-limited.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
			}
			return errors.Join(fmt.Errorf("not so after %v: %s", limit, what), last)
		}
	}
}
