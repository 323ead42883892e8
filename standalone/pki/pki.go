// Package pki makes the certificates of a standalone cluster.
//
// One authority signs everything: the serving certificates of etcd, the API server and the process
// nodes' kubelet endpoints, and the client certificates of the control plane's components and of
// the user. Files are written once into one directory and reused by later starts; a certificate
// that misses one of the addresses now asked for, or that is near its end, is made again, so
// changing flags needs no clean-up.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	// lifetime of every certificate: a development cluster should not expire under its user.
	lifetime = 10 * 365 * 24 * time.Hour
	// renewBefore the end a leaf is made again at start.
	renewBefore = 30 * 24 * time.Hour
	// clockSkew tolerated between the making of a certificate and its first use.
	clockSkew = 5 * time.Minute
	// serviceAccountKeyBits: the token signer is RSA because every client library verifies RS256.
	serviceAccountKeyBits = 2048
)

// Store is a directory of certificates signed by one authority.
type Store struct {
	dir string
	ca  *x509.Certificate
	key crypto.Signer
}

// Pair names the two PEM files of a certificate and its private key.
type Pair struct{ CertFile, KeyFile string }

// Open loads the authority of a directory, making it first if the directory has none.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("certificates: make directory: %w", err)
	}
	s := &Store{dir: dir}
	pair := s.pair("ca")
	cert, key, err := load(pair)
	if errors.Is(err, os.ErrNotExist) {
		return s, s.makeAuthority(pair)
	}
	if err != nil {
		return nil, fmt.Errorf(
			"certificates: authority in %s is unreadable (remove the directory to have all made again): %w", dir, err)
	}
	s.ca, s.key = cert, key
	return s, nil
}

// CAFile is the PEM file of the authority's certificate.
func (s *Store) CAFile() string { return s.pair("ca").CertFile }

// CAPair is the authority's certificate and key, which the controller manager signs requests with.
func (s *Store) CAPair() Pair { return s.pair("ca") }

func (s *Store) pair(name string) Pair {
	return Pair{filepath.Join(s.dir, name+".crt"), filepath.Join(s.dir, name+".key")}
}

func (s *Store) makeAuthority(pair Pair) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	tmpl, err := template(pkix.Name{CommonName: "ankole-standalone-ca"})
	if err != nil {
		return err
	}
	tmpl.IsCA = true
	tmpl.BasicConstraintsValid = true
	tmpl.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return fmt.Errorf("certificates: sign authority: %w", err)
	}
	if s.ca, err = x509.ParseCertificate(der); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	s.key = key
	return save(pair, der, key)
}

// Server returns a serving certificate valid for the names and addresses in hosts, usable as a
// client certificate too (etcd's peers need both).
func (s *Store) Server(name string, hosts ...string) (Pair, error) {
	return s.leaf(name, pkix.Name{CommonName: name}, hosts,
		x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)
}

// Client returns a client certificate for a Kubernetes user and its groups.
func (s *Store) Client(name, user string, groups ...string) (Pair, error) {
	return s.leaf(name, pkix.Name{CommonName: user, Organization: groups}, nil, x509.ExtKeyUsageClientAuth)
}

func (s *Store) leaf(name string, subject pkix.Name, hosts []string, usage ...x509.ExtKeyUsage) (Pair, error) {
	pair := s.pair(name)
	if cert, _, err := load(pair); err == nil && s.usable(cert, hosts) {
		return pair, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("certificates: %w", err)
	}
	tmpl, err := template(subject)
	if err != nil {
		return Pair{}, err
	}
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = usage
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, s.ca, key.Public(), s.key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificates: sign %s: %w", name, err)
	}
	return pair, save(pair, der, key)
}

// usable says whether an existing leaf still serves: signed by this authority, not near its end,
// and valid for every host asked for.
func (s *Store) usable(cert *x509.Certificate, hosts []string) bool {
	if cert.CheckSignatureFrom(s.ca) != nil || time.Until(cert.NotAfter) < renewBefore {
		return false
	}
	for _, h := range hosts {
		if cert.VerifyHostname(h) != nil {
			return false
		}
	}
	return true
}

// ServiceAccountKey returns the PEM file of the key that signs ServiceAccount tokens.
func (s *Store) ServiceAccountKey() (string, error) {
	path := filepath.Join(s.dir, "service-account.key")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	key, err := rsa.GenerateKey(rand.Reader, serviceAccountKeyBits)
	if err != nil {
		return "", fmt.Errorf("certificates: %w", err)
	}
	return path, writePEM(path, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
}

func template(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(lifetime),
	}, nil
}

func load(pair Pair) (*x509.Certificate, crypto.Signer, error) {
	certPEM, err := os.ReadFile(pair.CertFile)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err := os.ReadFile(pair.KeyFile)
	if err != nil {
		return nil, nil, err
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, nil, fmt.Errorf("%s: no PEM block", pair.CertFile)
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", pair.CertFile, err)
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", pair.KeyFile, err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, nil, fmt.Errorf("%s does not belong to %s", pair.KeyFile, pair.CertFile)
	}
	return cert, key, nil
}

// save writes the key before the certificate: a crash in between leaves a pair that load refuses
// and leaf makes again.
func save(pair Pair, der []byte, key *ecdsa.PrivateKey) error {
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	if err := writePEM(pair.KeyFile, "EC PRIVATE KEY", keyDER); err != nil {
		return err
	}
	return writePEM(pair.CertFile, "CERTIFICATE", der)
}

func writePEM(path, kind string, der []byte) error {
	tmp := path + ".tmp"
	data := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	return nil
}
