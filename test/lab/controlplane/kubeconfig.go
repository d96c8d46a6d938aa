package controlplane

import (
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/topodisk/topodisk/test/lab/sandbox"
)

// Kubeconfig writes how a user reaches the API server and returns the path.
func (p *Plane) Kubeconfig(user, token string) (string, error) {
	return p.KubeconfigAt("127.0.0.1", user, token)
}

// KubeletKubeconfig does so for a node's kubelet, which reaches it at the sandbox's gateway.
func (p *Plane) KubeletKubeconfig(node string) (string, error) {
	return p.KubeconfigAt(sandbox.GatewayAddress.String(), kubeletUser(node), p.tokens[kubeletUser(node)])
}

// KubeletCA is the path of the CA that signs the certificate by which a kubelet knows the API server.
func (p *Plane) KubeletCA() string { return p.certs.ca }

// KubeconfigAt does so for a user who reaches it at an address of its own.
func (p *Plane) KubeconfigAt(address, user, token string) (string, error) {
	path := filepath.Join(p.Dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: fmt.Sprintf("https://%s:%d", address, p.ports.apiserver), CertificateAuthorityData: p.certs.caPEM}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: user}
	config.CurrentContext = "lab"
	return path, clientcmd.WriteToFile(*config, path)
}
