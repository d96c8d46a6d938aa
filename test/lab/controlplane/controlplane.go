// Package controlplane starts a Kubernetes control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, on
// loopback or, if kubelets join, in a sandbox.
package controlplane

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/topodisk/topodisk/test/lab/process"
)

// The control plane's users: name, group.
const (
	userAdmin             = "admin"
	userControllerManager = "system:kube-controller-manager"
	userScheduler         = "system:kube-scheduler"
	groupMasters          = "system:masters"
)

// servicePort is that of the Service kubernetes in the namespace default.
const servicePort = 443

// Options say what to start.
type Options struct {
	Kube, Etcd  string // directories of the programs
	Dir         string // for all that is written
	Group       *process.Group
	AuditLog    string        // path; empty for none
	Kubelets    []string      // names of nodes whose kubelets join, in the sandbox of this process; none: loopback alone is served
	Controllers []string      // that run; none for those that kube-controller-manager runs by default
	BindTimeout time.Duration // for how long the scheduler waits for a Pod's volumes; 0 for its default
}

// Plane is a control plane that runs.
type Plane struct {
	Options
	Admin  string               // the administrator's kubeconfig
	Config *rest.Config         // with the administrator's permissions
	Client kubernetes.Interface // with the same

	certs     certs
	tokens    map[string]string // by user
	ports     struct{ etcd, etcdPeer, apiserver, controllerManager, scheduler int }
	http      *http.Client // the administrator's
	apiserver *process.Process
}

// Start returns when all four programs are ready.
func Start(ctx context.Context, o Options) (*Plane, error) {
	p := &Plane{Options: o}
	if err := p.prepare(); err != nil {
		return nil, err
	}
	for _, start := range []func(context.Context) error{p.startEtcd, p.startAPIServer, p.startControllerManagerAndScheduler} {
		if err := start(ctx); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// prepare makes certificates, tokens, ports and the administrator's clients.
func (p *Plane) prepare() (err error) {
	if p.certs, err = writeCerts(filepath.Join(p.Dir, "pki")); err != nil {
		return err
	}
	if err := p.writeTokens(); err != nil {
		return err
	}
	if err := process.FreePorts(&p.ports.etcd, &p.ports.etcdPeer, &p.ports.apiserver, &p.ports.controllerManager, &p.ports.scheduler); err != nil {
		return err
	}
	if len(p.Kubelets) > 0 { // a sandbox has all ports for itself
		p.ports.apiserver = servicePort
	}
	if p.Admin, err = p.kubeconfig(userAdmin); err != nil {
		return err
	}
	if p.Config, err = clientcmd.BuildConfigFromFlags("", p.Admin); err != nil {
		return err
	}
	p.Config.QPS = -1 // no limit, for the API server has its own
	if p.Client, err = kubernetes.NewForConfig(p.Config); err != nil {
		return err
	}
	impatient := rest.CopyConfig(p.Config)
	impatient.Timeout = 5 * time.Second
	p.http, err = rest.HTTPClientFor(impatient)
	return err
}

// writeTokens makes a secret for each user. Format of the file: kube-apiserver's --token-auth-file, CSV of token, user, uid, groups.
func (p *Plane) writeTokens() error {
	p.tokens = map[string]string{}
	var file strings.Builder
	groups := map[string]string{userAdmin: groupMasters, userControllerManager: "", userScheduler: ""}
	for _, name := range p.Kubelets {
		groups[kubeletUser(name)] = "system:nodes"
	}
	for user, group := range groups {
		p.tokens[user] = rand.Text()
		fmt.Fprintf(&file, "%s,%s,%s,%q\n", p.tokens[user], user, user, group)
	}
	return os.WriteFile(p.tokenFile(), []byte(file.String()), 0o600)
}

// kubeletUser is whom the API server takes a node's kubelet for.
func kubeletUser(node string) string { return "system:node:" + node }

func (p *Plane) tokenFile() string { return filepath.Join(p.Dir, "pki", "tokens.csv") }

func localURL(port int, page string) string {
	return fmt.Sprintf("https://127.0.0.1:%d%s", port, page)
}

func (p *Plane) startEtcd(ctx context.Context) error {
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", p.ports.etcd), fmt.Sprintf("http://127.0.0.1:%d", p.ports.etcdPeer)
	proc, err := p.Group.Start(process.Command{Name: "etcd", Path: filepath.Join(p.Etcd, "etcd"), Env: p.env(), Args: []string{
		"--name=lab", "--data-dir=" + filepath.Join(p.Dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn", "--quota-backend-bytes=8000000000",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=lab=" + peer}})
	if err != nil {
		return err
	}
	return p.Group.AwaitPageOf(ctx, p.http, proc, client+"/readyz")
}

func (p *Plane) startAPIServer(ctx context.Context) error {
	audit, err := p.auditFlags()
	if err != nil {
		return err
	}
	proc, err := p.start("kube-apiserver", append(append(audit, p.nodeFlags()...),
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", p.ports.etcd), fmt.Sprintf("--secure-port=%d", p.ports.apiserver),
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", // a loopback address can't be an endpoint
		"--tls-cert-file="+p.certs.serving, "--tls-private-key-file="+p.certs.key,
		"--anonymous-auth=false", "--token-auth-file="+p.tokenFile(),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file="+p.certs.key, "--service-account-key-file="+p.certs.key,
		"--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged=true", "--profiling=false")...)
	if err != nil {
		return err
	}
	p.apiserver = proc
	return p.Group.AwaitPageOf(ctx, p.http, proc, localURL(p.ports.apiserver, "/readyz"))
}

// RestartAPIServer ends the API server with SIGKILL, starts it again and returns when it is ready.
func (p *Plane) RestartAPIServer(ctx context.Context) error {
	p.Group.StopProgram(p.apiserver, true)
	return p.startAPIServer(ctx)
}

// PauseAPIServer stops the API server in the middle of whatever it does, and has it go on after a time.
func (p *Plane) PauseAPIServer(ctx context.Context, d time.Duration) error {
	if err := p.apiserver.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return p.apiserver.Signal(syscall.SIGCONT)
}

// env is the environment of its programs. Without kubelets it is the usual one, for such a control plane is measured, too.
func (p *Plane) env() []string {
	if len(p.Kubelets) == 0 {
		return nil
	}
	return process.Frugal
}

// nodeFlags are how the API server serves kubelets, and reaches them. Without any it serves this machine alone.
func (p *Plane) nodeFlags() []string {
	if len(p.Kubelets) == 0 {
		return []string{"--bind-address=127.0.0.1", "--authorization-mode=RBAC"}
	}
	return []string{
		"--bind-address=0.0.0.0", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--kubelet-client-certificate=" + p.certs.serving, "--kubelet-client-key=" + p.certs.key,
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
func (p *Plane) auditFlags() ([]string, error) {
	if p.AuditLog == "" {
		return nil, nil
	}
	policy := filepath.Join(p.Dir, "audit-policy.yaml")
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + p.AuditLog, "--audit-log-maxsize=100000"},
		os.WriteFile(policy, []byte(auditPolicy), 0o600)
}

// startControllerManagerAndScheduler starts both before it awaits either.
func (p *Plane) startControllerManagerAndScheduler(ctx context.Context) error {
	manager, err := p.startControllerManager()
	if err != nil {
		return err
	}
	scheduler, err := p.startScheduler()
	if err != nil {
		return err
	}
	if err := p.Group.AwaitPageOf(ctx, p.http, manager, localURL(p.ports.controllerManager, "/healthz")); err != nil {
		return err
	}
	return p.Group.AwaitPageOf(ctx, p.http, scheduler, localURL(p.ports.scheduler, "/readyz"))
}

// startControllerManager raises the client's rate limits: with its defaults it takes ten seconds to start, and binds no
// more than about four claims a second.
func (p *Plane) startControllerManager() (*process.Process, error) {
	config, err := p.kubeconfig(userControllerManager)
	if err != nil {
		return nil, err
	}
	args := p.serving(config, p.ports.controllerManager)
	if len(p.Kubelets) > 0 {
		args = append(args, "--node-monitor-grace-period=20s") // kubelets renew their Leases every five seconds here
	}
	if p.Controllers != nil {
		args = append(args, "--controllers="+strings.Join(p.Controllers, ","))
	}
	return p.start("kube-controller-manager", append(args,
		"--kubeconfig="+config, "--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=1000",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+p.certs.key, "--root-ca-file="+p.certs.ca)...)
}

// schedulerConfig is the real scheduler without its scores: to it all nodes that can take a Pod are equal, and it goes
// round them. With scores, kube-scheduler 1.35 and 1.36 are likely to pick the same one of several best nodes again and
// again (kubernetes/kubernetes#141024), and a claim that is to move on would stay where it cannot be served. A Pod that names
// PreferringScheduler has its preferred node affinity counted.
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
  pluginConfig: &config
  - name: VolumeBinding
    args:
      bindTimeoutSeconds: %d
- schedulerName: ` + PreferringScheduler + `
  plugins:
    score:
      disabled:
      - name: "*"
      enabled:
      - name: NodeAffinity
  pluginConfig: *config
`

// PreferringScheduler is the schedulerName of Pods that go where they would rather be.
const PreferringScheduler = "preferring"

// bindTimeout is for how long kube-scheduler waits for a Pod's volumes unless it is told otherwise.
const bindTimeout = 600 * time.Second

func (p *Plane) startScheduler() (*process.Process, error) {
	config, err := p.kubeconfig(userScheduler)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(p.Dir, "scheduler.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, schedulerConfig, config, int(cmp.Or(p.BindTimeout, bindTimeout).Seconds())), 0o600); err != nil {
		return nil, err
	}
	return p.start("kube-scheduler", append(p.serving(config, p.ports.scheduler), "--config="+path)...)
}

// serving is how a part of the control plane that works through the API server serves its own health and metrics.
func (p *Plane) serving(kubeconfig string, port int) []string {
	return []string{
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + p.certs.serving, "--tls-private-key-file=" + p.certs.key,
	}
}

func (p *Plane) start(name string, args ...string) (*process.Process, error) {
	return p.Group.Start(process.Command{Name: name, Path: filepath.Join(p.Kube, name), Args: args, Env: p.env()})
}
