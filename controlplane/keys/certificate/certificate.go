// Package certificate makes the certificates that the system gives itself: those of its webhooks
// and of the connections between managers and instance managers.
package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
)

// Pair is a certificate with its key, both PEM. Of several certificates in one text the first one
// counts.
type Pair struct{ Cert, Key []byte }

// Certificate parses the certificate.
func (p Pair) Certificate() (*x509.Certificate, error) {
	block, _ := pem.Decode(p.Cert)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no PEM certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// PrivateKey parses the key.
func (p Pair) PrivateKey() (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(p.Key)
	if block == nil {
		return nil, errors.New("no PEM key")
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse key: %w", err)
	}
	return key, nil
}

// Sign makes a key and a certificate for template, signed by authority; by itself where authority
// is nil.
func Sign(template *x509.Certificate, authority *Pair) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("generate key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return Pair{}, fmt.Errorf("serial number: %w", err)
	}
	parent, signer := template, key
	if authority != nil {
		if parent, err = authority.Certificate(); err != nil {
			return Pair{}, fmt.Errorf("certificate authority: %w", err)
		}
		if signer, err = authority.PrivateKey(); err != nil {
			return Pair{}, fmt.Errorf("certificate authority: %w", err)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate: %w", err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}, nil
}
