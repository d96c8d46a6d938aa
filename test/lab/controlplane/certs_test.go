package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	"github.com/topodisk/topodisk/test/lab/sandbox"
)

func TestServingCertificateIsGoodForTheLabAlone(t *testing.T) {
	c, err := writeCerts(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(c.serving, c.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.caPEM)
	for _, address := range []string{"127.0.0.1", sandbox.GatewayAddress.String(), sandbox.ServiceAddress.String()} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: address}); err != nil {
			t.Errorf("for %s: %v", address, err)
		}
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("for kubelets: %v", err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: "10.0.0.1"}); err == nil {
		t.Error("it is good for 10.0.0.1 too")
	}
}
