package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/topodisk/topodisk/test/lab/sandbox"
)

// certs are the files that the control plane's TLS and ServiceAccount tokens need.
type certs struct {
	ca, serving, servingKey, client, clientKey, accountKey string
	caPEM                                                  []byte
}

// writeCerts makes a CA, one serving certificate for 127.0.0.1, the gateway of the sandbox and the Service of the API server, one that
// kubelets know the API server by, and a key that signs ServiceAccount tokens.
func writeCerts(dir string) (certs, error) {
	c := certs{
		ca:         filepath.Join(dir, "ca.crt"),
		serving:    filepath.Join(dir, "serving.crt"),
		servingKey: filepath.Join(dir, "serving.key"),
		client:     filepath.Join(dir, "kubelet-client.crt"),
		clientKey:  filepath.Join(dir, "kubelet-client.key"),
		accountKey: filepath.Join(dir, "service-account.key"),
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "topodisk lab CA"}, caKey)
	if err != nil {
		return c, err
	}
	if c.caPEM, err = cert.EncodeCertificates(ca); err != nil {
		return c, err
	}
	addresses := []net.IP{net.IPv4(127, 0, 0, 1), sandbox.GatewayAddress, sandbox.ServiceAddress}
	_, err = writeKey(c.accountKey)
	return c, errors.Join(err, cert.WriteCert(c.ca, c.caPEM),
		issue(ca, caKey, c.serving, c.servingKey, "topodisk lab control plane", x509.ExtKeyUsageServerAuth, addresses),
		issue(ca, caKey, c.client, c.clientKey, "kube-apiserver", x509.ExtKeyUsageClientAuth, nil))
}

// issue writes a certificate and its key. It is valid for a month: longer than anyone keeps a demo.
func issue(ca *x509.Certificate, caKey crypto.Signer, path, keyPath, name string, usage x509.ExtKeyUsage, addresses []net.IP) error {
	key, err := writeKey(keyPath)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		IPAddresses:  addresses,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(0, 1, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{usage},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	text, err := cert.EncodeCertificates(signed)
	return errors.Join(err, cert.WriteCert(path, text))
}

func writeKey(path string) (crypto.Signer, error) {
	text, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return nil, err
	}
	key, err := keyutil.ParsePrivateKeyPEM(text)
	if err != nil {
		return nil, err
	}
	return key.(crypto.Signer), keyutil.WriteKey(path, text)
}
