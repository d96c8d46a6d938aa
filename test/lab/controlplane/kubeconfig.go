package controlplane

import (
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/topodisk/topodisk/test/lab/sandbox"
)

// LocalAddress is the API server's on the machine, or in the sandbox, that it runs in.
const LocalAddress = "127.0.0.1"

// KubeletKubeconfig writes how a node's kubelet reaches the API server, at the sandbox's gateway, and returns the path.
func (p *Plane) KubeletKubeconfig(node string) (string, error) {
	return p.KubeconfigAt(sandbox.GatewayAddress.String(), kubeletUser(node), p.tokens[kubeletUser(node)])
}

// KubeletCA is the path of the CA that signs the certificate by which a kubelet knows the API server.
func (p *Plane) KubeletCA() string { return p.certs.ca }

// kubeconfig does so for a user of the control plane.
func (p *Plane) kubeconfig(user string) (string, error) {
	return p.KubeconfigAt(LocalAddress, user, p.tokens[user])
}

// KubeconfigAt does so for a user who reaches it at an address.
func (p *Plane) KubeconfigAt(address, user, token string) (string, error) {
	path := filepath.Join(p.Dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: fmt.Sprintf("https://%s:%d", address, p.ports.apiserver), CertificateAuthorityData: p.certs.caPEM}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: user}
	config.CurrentContext = "lab"
	return path, clientcmd.WriteToFile(*config, path)
}
