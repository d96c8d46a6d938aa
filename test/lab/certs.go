package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certs are the files that the control plane's TLS and ServiceAccount tokens need.
type certs struct {
	ca, serving, servingKey, client, clientKey, accountKey string
	caPEM                                                  []byte
}

// writeCerts makes a CA, one serving certificate for 127.0.0.1, the hub of real nodes and the Service of the API server, one that kubelets know the API
// server by, and a key that signs ServiceAccount tokens.
func writeCerts(dir string) (certs, error) {
	c := certs{
		ca:         filepath.Join(dir, "ca.crt"),
		serving:    filepath.Join(dir, "serving.crt"),
		servingKey: filepath.Join(dir, "serving.key"),
		client:     filepath.Join(dir, "kubelet-client.crt"),
		clientKey:  filepath.Join(dir, "kubelet-client.key"),
		accountKey: filepath.Join(dir, "service-account.key"),
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return c, err
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	ca := certificate(1, "topodisk lab CA")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	if c.caPEM, err = signCertificate(ca, ca, caKey, caKey); err != nil {
		return c, err
	}
	servingKey, err := writeKey(c.servingKey)
	if err != nil {
		return c, err
	}
	serving := certificate(2, "topodisk lab control plane")
	serving.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), hubAddress, serviceAddress}
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	servingPEM, err := signCertificate(serving, ca, servingKey, caKey)
	if err != nil {
		return c, err
	}
	clientKey, err := writeKey(c.clientKey)
	if err != nil {
		return c, err
	}
	client := certificate(3, "kube-apiserver")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	clientPEM, err := signCertificate(client, ca, clientKey, caKey)
	if err != nil {
		return c, err
	}
	if _, err := writeKey(c.accountKey); err != nil {
		return c, err
	}
	return c, errors.Join(os.WriteFile(c.ca, c.caPEM, 0o600), os.WriteFile(c.serving, servingPEM, 0o600), os.WriteFile(c.client, clientPEM, 0o600))
}

// certificate is a template that is valid for a month: longer than anyone keeps a demo.
func certificate(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(0, 1, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func signCertificate(cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, parentKey)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

func writeKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
