package lab

import (
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfig writes how a user reaches the API server and returns the path.
func (p *controlPlane) kubeconfig(user, token string) (string, error) {
	return p.kubeconfigAt("127.0.0.1", user, token)
}

// kubeconfigAt does so for a user who reaches it at an address of its own.
func (p *controlPlane) kubeconfigAt(address, user, token string) (string, error) {
	path := filepath.Join(p.dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: fmt.Sprintf("https://%s:%d", address, p.ports.apiserver), CertificateAuthorityData: p.certs.caPEM}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: user}
	config.CurrentContext = "lab"
	return path, clientcmd.WriteToFile(*config, path)
}
