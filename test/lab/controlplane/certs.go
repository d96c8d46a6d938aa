package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
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
	ca, serving, key string
	caPEM            []byte
}

// writeCerts makes a CA, and one certificate with its key for the whole control plane. It serves at 127.0.0.1, the gateway of the sandbox
// and the Service of the API server, which kubelets know by it; the key signs ServiceAccount tokens, too. It is valid for a month:
// longer than anyone keeps a demo.
func writeCerts(dir string) (certs, error) {
	c := certs{ca: filepath.Join(dir, "ca.crt"), serving: filepath.Join(dir, "serving.crt"), key: filepath.Join(dir, "serving.key")}
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
	key, err := writeKey(c.key)
	if err != nil {
		return c, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "topodisk lab control plane"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), sandbox.GatewayAddress, sandbox.ServiceAddress},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(0, 1, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	if err != nil {
		return c, err
	}
	signed := pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
	return c, errors.Join(cert.WriteCert(c.ca, c.caPEM), cert.WriteCert(c.serving, signed))
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
