package lab

import (
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfig writes how a user reaches the API server and returns the path.
func (p *controlPlane) kubeconfig(user, token string) (string, error) {
	path := filepath.Join(p.dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: p.url(p.ports.apiserver), CertificateAuthorityData: p.certs.caPEM}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: user}
	config.CurrentContext = "lab"
	return path, clientcmd.WriteToFile(*config, path)
}
