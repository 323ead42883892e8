package kube

import (
	"fmt"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"ankole.storage/standalone/pki"
)

// credentials are the files every component needs.
type credentials struct {
	etcd, apiserver, kubeletClient pki.Pair
	serviceAccountKey              string
	admin                          pki.Pair
	// kubeconfig files of the components.
	controllerManager, scheduler string
}

// KubeletClientUser is the name in the certificate with which the API server calls kubelets.
const KubeletClientUser = "kube-apiserver-kubelet-client"

func makeCredentials(cfg Config) (*credentials, error) {
	c := &credentials{}
	var err error
	if c.etcd, err = cfg.PKI.Server("etcd", cfg.Host, "localhost"); err != nil {
		return nil, err
	}
	hosts := []string{cfg.Host, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", firstServiceIP}
	if c.apiserver, err = cfg.PKI.Server("kube-apiserver", hosts...); err != nil {
		return nil, err
	}
	if c.kubeletClient, err = cfg.PKI.Client("kubelet-client", KubeletClientUser, "system:masters"); err != nil {
		return nil, err
	}
	if c.admin, err = cfg.PKI.Client("admin", "ankole-admin", "system:masters"); err != nil {
		return nil, err
	}
	if c.serviceAccountKey, err = cfg.PKI.ServiceAccountKey(); err != nil {
		return nil, err
	}
	if c.controllerManager, err = componentKubeconfig(cfg, "kube-controller-manager"); err != nil {
		return nil, err
	}
	c.scheduler, err = componentKubeconfig(cfg, "kube-scheduler")
	return c, err
}

// componentKubeconfig gives a component the identity that the default RBAC roles are bound to.
func componentKubeconfig(cfg Config, name string) (string, error) {
	pair, err := cfg.PKI.Client(name, "system:"+name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(pair.CertFile), name+".kubeconfig")
	return path, WriteKubeconfig(path, cfg, pair, false)
}

// WriteAdminKubeconfig writes the cluster administrator's kubeconfig, self-contained so that it can
// be copied elsewhere.
func WriteAdminKubeconfig(path string, cfg Config) error {
	pair, err := cfg.PKI.Client("admin", "ankole-admin", "system:masters")
	if err != nil {
		return err
	}
	return WriteKubeconfig(path, cfg, pair, true)
}

// WriteKubeconfig writes a kubeconfig for whoever holds a client certificate; inline makes it
// self-contained.
func WriteKubeconfig(path string, cfg Config, pair pki.Pair, inline bool) error {
	kc := clientcmdapi.NewConfig()
	kc.Clusters["ankole"] = &clientcmdapi.Cluster{
		Server:               "https://" + hostPort(cfg.Host, cfg.Port),
		CertificateAuthority: cfg.PKI.CAFile(),
	}
	kc.AuthInfos["user"] = &clientcmdapi.AuthInfo{ClientCertificate: pair.CertFile, ClientKey: pair.KeyFile}
	kc.Contexts["ankole"] = &clientcmdapi.Context{Cluster: "ankole", AuthInfo: "user"}
	kc.CurrentContext = "ankole"
	if inline {
		if err := clientcmdapi.FlattenConfig(kc); err != nil {
			return fmt.Errorf("kubeconfig: %w", err)
		}
	}
	if err := clientcmd.WriteToFile(*kc, path); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return nil
}
