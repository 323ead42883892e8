package node

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

// Names of the configuration files, in the node's folder and as templates.
const (
	containerdFile = "containerd.toml"
	kubeletFile    = "kubelet.yaml"
	proxyFile      = "kube-proxy.yaml"
)

//go:embed templates/*
var templates embed.FS

// writeConfigs fills the templates.
func writeConfigs(cfg Config) error {
	values := struct {
		Config
		Socket, Pause, CNI string
	}{cfg, ContainerdSocket, PauseImageName, cniDir}
	for _, name := range []string{containerdFile, kubeletFile, proxyFile} {
		t, err := template.New(name).Option("missingkey=error").ParseFS(templates, "templates/"+name)
		if err != nil {
			return fmt.Errorf("configuration %s: %w", name, err)
		}
		var b bytes.Buffer
		if err := t.Execute(&b, values); err != nil {
			return fmt.Errorf("configuration %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(cfg.Dir, name), b.Bytes(), 0o600); err != nil {
			return fmt.Errorf("configuration %s: %w", name, err)
		}
	}
	return nil
}
