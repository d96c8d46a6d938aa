package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/topodisk/topodisk/test/lab"
)

// bastion is the host by way of which Kubernetes' tests reach nodes with SSH, to stop kubelets and to look at mounts. The
// nodes of the lab serve no SSH: the bastion answers in their place. Its clients need the key that it has made for them.
type bastion struct {
	node     func(address string) *lab.RealNode
	config   *ssh.ServerConfig
	listener net.Listener
	units    sync.Mutex // one command to a node's kubelet at a time
}

// openBastion serves until it is closed, and returns the environment in which tests find it.
func openBastion(l *lab.Lab) (*bastion, []string, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return nil, nil, err
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return nil, nil, err
	}
	keyFile := filepath.Join(l.Dir, "bastion.key")
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(block), 0o600); err != nil {
		return nil, nil, err
	}
	b := &bastion{node: l.RealNodeAt, config: &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, offered ssh.PublicKey) (*ssh.Permissions, error) {
			if string(offered.Marshal()) != string(signer.PublicKey().Marshal()) {
				return nil, errors.New("the bastion has made another key")
			}
			return nil, nil
		},
	}}
	b.config.AddHostKey(signer)
	if b.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, nil, err
	}
	go b.accept()
	return b, []string{"KUBE_SSH_BASTION=" + b.listener.Addr().String(), "KUBE_SSH_KEY_PATH=" + keyFile, "KUBE_SSH_USER=root"}, nil
}

func (b *bastion) close() { b.listener.Close() }

func (b *bastion) accept() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return // closed
		}
		go b.serve(conn, nil)
	}
}

// serve has a client log in: to the bastion itself, which leads on to nodes, or to a node, which runs commands.
func (b *bastion) serve(conn net.Conn, node *lab.RealNode) {
	defer conn.Close()
	_, channels, requests, err := ssh.NewServerConn(conn, b.config)
	if err != nil {
		return // the client hears of it
	}
	go ssh.DiscardRequests(requests)
	for asked := range channels {
		if err := b.open(asked, node); err != nil {
			asked.Reject(ssh.Prohibited, err.Error()) //nolint:errcheck // the client is gone
		}
	}
}

func (b *bastion) open(asked ssh.NewChannel, node *lab.RealNode) error {
	switch kind := asked.ChannelType(); {
	case node == nil && kind == "direct-tcpip":
		var to struct { // RFC 4254, 7.2
			Host   string
			Port   uint32
			Origin string
			From   uint32
		}
		if err := ssh.Unmarshal(asked.ExtraData(), &to); err != nil {
			return err
		}
		if node = b.node(to.Host); node == nil {
			return fmt.Errorf("no node has the address %s", to.Host)
		}
		channel, requests, err := asked.Accept()
		if err != nil {
			return err
		}
		go ssh.DiscardRequests(requests)
		near, far := net.Pipe()
		go b.serve(far, node)
		go join(channel, near)
		return nil
	case node != nil && kind == "session":
		channel, requests, err := asked.Accept()
		if err != nil {
			return err
		}
		go b.session(channel, requests, node)
		return nil
	default:
		return fmt.Errorf("a channel %s is not served here", kind)
	}
}

// join carries bytes both ways until one side ends.
func join(a, b io.ReadWriteCloser) {
	go func() {
		io.Copy(a, b) //nolint:errcheck // either way it is over
		a.Close()
	}()
	io.Copy(b, a) //nolint:errcheck // either way it is over
	b.Close()
}

// session runs the command of a session.
func (b *bastion) session(channel ssh.Channel, requests <-chan *ssh.Request, node *lab.RealNode) {
	defer channel.Close() //nolint:errcheck // the client is gone
	for request := range requests {
		var run struct{ Command string }
		runs := request.Type == "exec" && ssh.Unmarshal(request.Payload, &run) == nil
		if request.WantReply {
			request.Reply(runs, nil) //nolint:errcheck // the client is gone
		}
		if runs {
			status := struct{ Code uint32 }{b.run(context.Background(), node, run.Command, channel, channel.Stderr())}
			channel.SendRequest("exit-status", false, ssh.Marshal(status)) //nolint:errcheck // the client is gone
			return
		}
	}
}

// run runs a command on a node, and returns its exit code.
func (b *bastion) run(ctx context.Context, node *lab.RealNode, command string, out, complaints io.Writer) uint32 {
	words := strings.Fields(command)
	var err error
	switch {
	case len(words) > 0 && words[0] == "sudo": // who logs in is root already
		fmt.Fprintln(complaints, "sudo: command not found")
		return 127
	case len(words) > 2 && words[0] == "systemctl" && words[2] == "kubelet":
		err = b.systemctl(ctx, node, words[1], out)
	default:
		cmd := node.Command(ctx, "sh", "-c", command)
		cmd.Stdout, cmd.Stderr = out, complaints
		err = cmd.Run()
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return uint32(max(exit.ExitCode(), 1))
	case err != nil:
		fmt.Fprintln(complaints, err)
		return 1
	}
	return 0
}

// systemctl does to a node's kubelet what systemd would.
func (b *bastion) systemctl(ctx context.Context, node *lab.RealNode, verb string, out io.Writer) error {
	b.units.Lock()
	defer b.units.Unlock()
	switch verb {
	case "stop":
		node.StopProgram(lab.Kubelet, false)
	case "start":
		if !node.Runs(lab.Kubelet) {
			return node.StartProgram(ctx, lab.Kubelet)
		}
	case "show": // its ActiveState is all that is asked for
		state := "inactive"
		if node.Runs(lab.Kubelet) {
			state = "active"
		}
		fmt.Fprintln(out, state)
	default:
		return fmt.Errorf("systemctl %s kubelet is not served here", verb)
	}
	return nil
}
