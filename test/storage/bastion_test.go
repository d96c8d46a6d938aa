package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/topodisk/topodisk/test/lab"
)

// TestBastionLeadsToNodesOnly holds what the tests on real nodes don't see: whom it refuses.
func TestBastionLeadsToNodesOnly(t *testing.T) {
	b, env, err := openBastion(&lab.Lab{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	value := func(name string) string {
		for _, e := range env {
			if value, is := strings.CutPrefix(e, name+"="); is {
				return value
			}
		}
		t.Fatalf("%v has no %s", env, name)
		return ""
	}
	text, err := os.ReadFile(value("KUBE_SSH_KEY_PATH"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	dial := func(key ssh.Signer) (*ssh.Client, error) {
		return ssh.Dial("tcp", value("KUBE_SSH_BASTION"), &ssh.ClientConfig{
			User: value("KUBE_SSH_USER"), Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
		})
	}
	_, other, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := ssh.NewSignerFromKey(other)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial(stranger); err == nil {
		t.Error("a client with a key of its own is let in")
	}
	client, err := dial(key)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.NewSession(); err == nil || !strings.Contains(err.Error(), "not served here") {
		t.Errorf("a session on the bastion itself: %v", err)
	}
	if _, err := client.Dial("tcp", "10.88.0.99:22"); err == nil || !strings.Contains(err.Error(), "no node has the address 10.88.0.99") {
		t.Errorf("a connection to no node: %v", err)
	}
}
