package lab

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// The control plane's users: name, group.
const (
	userAdmin             = "admin"
	userControllerManager = "system:kube-controller-manager"
	userScheduler         = "system:kube-scheduler"
	groupMasters          = "system:masters"
)

// startLimit is how long one program may take to become ready. On a loaded machine of two cores it takes a tenth of it.
const startLimit = 60 * time.Second

// controlPlane is a Kubernetes without nodes.
type controlPlane struct {
	programs string // directory of Kubernetes' programs
	etcd     string // directory of etcd
	dir      string
	run      *Processes
	certs    certs
	audit    string            // path; empty for no audit log
	nodes    []Node            // that have kubelets
	only     []string          // controllers
	tokens   map[string]string // by user

	bindTimeout time.Duration
	ports       struct{ etcd, etcdPeer, apiserver, controllerManager, scheduler int }
	client      *http.Client // trusts the lab's CA
	apiserver   *Process
}

func (l *Lab) startControlPlane(ctx context.Context) (err error) {
	p := &controlPlane{programs: l.opts.Programs.Kube, etcd: l.opts.Programs.Etcd, dir: l.Dir, run: l.processes, only: l.opts.Controllers, bindTimeout: cmp.Or(l.opts.BindTimeout, bindTimeout)}
	l.plane = p
	if l.opts.Audit {
		p.audit = l.AuditLog()
	}
	if l.opts.RealNodes {
		p.nodes = l.Nodes
	}
	if err := p.prepare(); err != nil {
		return err
	}
	if l.Kubeconfig, err = p.kubeconfig(userAdmin, p.tokens[userAdmin]); err != nil {
		return err
	}
	if l.Client, err = kubernetes.NewForConfig(p.restConfig(p.tokens[userAdmin])); err != nil {
		return err
	}
	for _, start := range []func(context.Context) error{p.startEtcd, p.startAPIServer, p.startControllerManagerAndScheduler} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	if l.opts.Snapshots {
		return l.installSnapshots(ctx)
	}
	return nil
}

// prepare makes certificates, tokens and ports.
func (p *controlPlane) prepare() (err error) {
	if p.certs, err = writeCerts(filepath.Join(p.dir, "pki")); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.certs.caPEM)
	p.client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	if err := p.writeTokens(); err != nil {
		return err
	}
	err = freePorts(&p.ports.etcd, &p.ports.etcdPeer, &p.ports.apiserver, &p.ports.controllerManager, &p.ports.scheduler)
	if len(p.nodes) > 0 { // a cell has all ports for itself
		p.ports.apiserver = servicePort
	}
	return err
}

// writeTokens makes a secret for each user. Format of the file: kube-apiserver's --token-auth-file, CSV of token, user, uid, groups.
func (p *controlPlane) writeTokens() error {
	p.tokens = map[string]string{}
	var file strings.Builder
	groups := map[string]string{userAdmin: groupMasters, userControllerManager: "", userScheduler: ""}
	for _, n := range p.nodes {
		groups[kubeletUser(n)] = "system:nodes"
	}
	for user, group := range groups {
		secret := make([]byte, 16)
		rand.Read(secret) // it never fails
		p.tokens[user] = hex.EncodeToString(secret)
		fmt.Fprintf(&file, "%s,%s,%s,%q\n", p.tokens[user], user, user, group)
	}
	return os.WriteFile(p.tokenFile(), []byte(file.String()), 0o600)
}

func (p *controlPlane) tokenFile() string { return filepath.Join(p.dir, "pki", "tokens.csv") }

func (p *controlPlane) url(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

// restConfig is for this process: no client-side rate limit, for the API server has its own.
func (p *controlPlane) restConfig(token string) *rest.Config {
	return &rest.Config{
		Host:            p.url(p.ports.apiserver),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: p.certs.caPEM},
		QPS:             -1,
	}
}

func (p *controlPlane) startEtcd(ctx context.Context) error {
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", p.ports.etcd), fmt.Sprintf("http://127.0.0.1:%d", p.ports.etcdPeer)
	proc, err := p.run.start(command{name: "etcd", path: filepath.Join(p.etcd, "etcd"), args: []string{
		"--name=lab", "--data-dir=" + filepath.Join(p.dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn", "--quota-backend-bytes=8000000000",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=lab=" + peer}})
	if err != nil {
		return err
	}
	return p.awaitHealth(ctx, proc, client+"/readyz", "")
}

func (p *controlPlane) startAPIServer(ctx context.Context) error {
	audit, err := p.auditFlags()
	if err != nil {
		return err
	}
	proc, err := p.start("kube-apiserver", append(append(audit, p.nodeFlags()...),
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", p.ports.etcd), fmt.Sprintf("--secure-port=%d", p.ports.apiserver),
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", // a loopback address can't be an endpoint
		"--tls-cert-file="+p.certs.serving, "--tls-private-key-file="+p.certs.servingKey,
		"--anonymous-auth=false", "--token-auth-file="+p.tokenFile(),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file="+p.certs.accountKey, "--service-account-key-file="+p.certs.accountKey,
		"--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged=true", "--profiling=false")...)
	if err != nil {
		return err
	}
	p.apiserver = proc
	return p.awaitHealth(ctx, proc, p.url(p.ports.apiserver)+"/readyz", p.tokens[userAdmin])
}

// RestartAPIServer ends the API server with SIGKILL, starts it again and returns when it is ready.
func (l *Lab) RestartAPIServer(ctx context.Context) error {
	l.processes.stop(l.plane.apiserver, syscall.SIGKILL)
	return l.plane.startAPIServer(ctx)
}

// PauseAPIServer stops the API server in the middle of whatever it does, and has it go on after a time.
func (l *Lab) PauseAPIServer(ctx context.Context, d time.Duration) error {
	if err := l.plane.apiserver.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return l.plane.apiserver.signal(syscall.SIGCONT)
}

// nodeFlags are how the API server serves kubelets, and reaches them. Without any it serves this machine alone.
func (p *controlPlane) nodeFlags() []string {
	if len(p.nodes) == 0 {
		return []string{"--bind-address=127.0.0.1", "--authorization-mode=RBAC"}
	}
	return []string{
		"--bind-address=0.0.0.0", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--kubelet-client-certificate=" + p.certs.client, "--kubelet-client-key=" + p.certs.clientKey,
		"--kubelet-preferred-address-types=InternalIP",
	}
}

// auditPolicy has every request noted once, when it has been answered.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
`

// auditFlags are none unless the options ask for an audit log.
func (p *controlPlane) auditFlags() ([]string, error) {
	if p.audit == "" {
		return nil, nil
	}
	policy := filepath.Join(p.dir, "audit-policy.yaml")
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + p.audit, "--audit-log-maxsize=100000"}, os.WriteFile(policy, []byte(auditPolicy), 0o600)
}

// startControllerManagerAndScheduler starts both before it awaits either.
func (p *controlPlane) startControllerManagerAndScheduler(ctx context.Context) error {
	manager, err := p.startControllerManager()
	if err != nil {
		return err
	}
	scheduler, err := p.startScheduler()
	if err != nil {
		return err
	}
	if err := p.awaitHealth(ctx, manager, p.url(p.ports.controllerManager)+"/healthz", ""); err != nil {
		return err
	}
	return p.awaitHealth(ctx, scheduler, p.url(p.ports.scheduler)+"/readyz", "")
}

// startControllerManager raises the client's rate limits: with its defaults it takes ten seconds to start, and binds no
// more than about four claims a second.
func (p *controlPlane) startControllerManager() (*Process, error) {
	config, err := p.kubeconfig(userControllerManager, p.tokens[userControllerManager])
	if err != nil {
		return nil, err
	}
	args := p.serving(config, p.ports.controllerManager)
	if len(p.nodes) > 0 {
		args = append(args, "--node-monitor-grace-period=20s") // kubelets renew their Leases every five seconds here
	}
	if p.only != nil {
		args = append(args, "--controllers="+strings.Join(p.only, ","))
	}
	return p.start("kube-controller-manager", append(args,
		"--kubeconfig="+config, "--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=1000",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+p.certs.accountKey, "--root-ca-file="+p.certs.ca)...)
}

// schedulerConfig is the real scheduler without its scores: to it all nodes that can take a Pod are equal, and it goes
// round them. With scores, kube-scheduler 1.35 and 1.36 are likely to pick the same one of several best nodes again and
// again (kubernetes/kubernetes#141024), and a claim that is to move on would stay where it cannot be served.
const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: %q
  qps: 500
  burst: 1000
leaderElection:
  leaderElect: false
enableProfiling: false
profiles:
- schedulerName: default-scheduler
  plugins:
    score:
      disabled:
      - name: "*"
  pluginConfig:
  - name: VolumeBinding
    args:
      bindTimeoutSeconds: %d
`

// bindTimeout is for how long kube-scheduler waits for a Pod's volumes unless it is told otherwise.
const bindTimeout = 600 * time.Second

func (p *controlPlane) startScheduler() (*Process, error) {
	config, err := p.kubeconfig(userScheduler, p.tokens[userScheduler])
	if err != nil {
		return nil, err
	}
	path := filepath.Join(p.dir, "scheduler.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, schedulerConfig, config, int(p.bindTimeout.Seconds())), 0o600); err != nil {
		return nil, err
	}
	return p.start("kube-scheduler", append(p.serving(config, p.ports.scheduler), "--config="+path)...)
}

// serving is how a part of the control plane that works through the API server serves its own health and metrics.
func (p *controlPlane) serving(kubeconfig string, port int) []string {
	return []string{
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + p.certs.serving, "--tls-private-key-file=" + p.certs.servingKey,
	}
}

func (p *controlPlane) start(name string, args ...string) (*Process, error) {
	return p.run.start(command{name: name, path: filepath.Join(p.programs, name), args: args})
}

func (p *controlPlane) awaitHealth(ctx context.Context, proc *Process, url, token string) error {
	return p.run.awaitHealth(ctx, p.client, proc, url, token)
}

// awaitHealth polls a health URL until it answers 200 or the process ends. What it answered last is part of the error.
func (p *Processes) awaitHealth(ctx context.Context, client *http.Client, proc *Process, url, token string) error {
	err := p.await(ctx, proc.Name+" is ready", startLimit, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, err
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := client.Do(request)
		if err != nil {
			return false, err
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
		if answer.StatusCode != http.StatusOK {
			return false, fmt.Errorf("%s: %s: %s", url, answer.Status, body)
		}
		return true, nil
	})
	if err != nil && proc.exited() == nil && ctx.Err() == nil {
		return fmt.Errorf("%w\n%s", err, logTail(proc.Log))
	}
	return err
}

// freePorts fills in ports of 127.0.0.1 that nothing listens on, all different.
func freePorts(ports ...*int) error {
	for _, port := range ports {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close()
		*port = listener.Addr().(*net.TCPAddr).Port
	}
	return nil
}
