// Package networks stands in for Multus in the nodes of a bed.
//
// It is a program of the Container Network Interface (CNI), the last one in the list that
// containerd runs for every Pod. A Pod that asks for the storage network by annotation gets an
// interface in it, made by the ordinary bridge program, and the annotation that tells it so; all
// others pass through.
package networks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// Program is the name under which containerd runs it.
	Program = "ankole-networks"
	// Version of CNI.
	Version = "0.4.0"

	annotationNetworks = "k8s.v1.cni.cncf.io/networks"
	annotationStatus   = "k8s.v1.cni.cncf.io/network-status"
	// callTimeout bounds one conversation with the API server.
	callTimeout = 10 * time.Second
)

// errNetworks marks what a Pod asks for and cannot get.
var errNetworks = errors.New("networks of the Pod")

// Config is this program's entry in the list.
type Config struct {
	Kubeconfig string          `json:"kubeconfig"`
	Network    string          `json:"network"` // the one that there is, namespace/name
	Delegate   json.RawMessage `json:"delegate"`
	PrevResult json.RawMessage `json:"prevResult"`
}

// Request is one entry of the annotation by which a Pod asks.
type Request struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Interface string `json:"interface"`
}

// status is one entry of the annotation that tells what the Pod has got.
type status struct {
	Name      string   `json:"name"`
	Interface string   `json:"interface,omitempty"`
	IPs       []string `json:"ips"`
	Default   bool     `json:"default,omitempty"`
	DNS       struct{} `json:"dns"`
}

// result is the part of a CNI result that is read.
type result struct {
	IPs []struct {
		Address string `json:"address"`
	} `json:"ips"`
}

func (r result) addresses() (list []string) {
	for _, ip := range r.IPs {
		list = append(list, ip.Address[:strings.IndexByte(ip.Address+"/", '/')])
	}
	return list
}

// Parse returns what a Pod in a namespace asks for. Without a name interfaces are net1, net2, …
func Parse(annotation, namespace string) ([]Request, error) {
	if annotation == "" {
		return nil, nil
	}
	var list []Request
	if err := json.Unmarshal([]byte(annotation), &list); err != nil {
		return nil, fmt.Errorf("%w: annotation %s is not a JSON list of networks: %w", errNetworks, annotationNetworks, err)
	}
	for i := range list {
		if list[i].Namespace == "" {
			list[i].Namespace = namespace
		}
		if list[i].Interface == "" {
			list[i].Interface = fmt.Sprintf("net%d", i+1)
		}
	}
	return list, nil
}

// Main answers one call, in the way of CNI: what is to be done stands in the environment, the
// configuration on standard input, and a failure is an object on standard output.
func Main(stdin io.Reader, stdout io.Writer) int {
	err := call(stdin, stdout)
	if err == nil {
		return 0
	}
	_ = json.NewEncoder(stdout).Encode(map[string]any{"cniVersion": Version, "code": 100, "msg": err.Error()})
	return 1
}

func call(stdin io.Reader, stdout io.Writer) error {
	command := os.Getenv("CNI_COMMAND")
	if command == "VERSION" {
		return json.NewEncoder(stdout).Encode(map[string]any{"cniVersion": Version, "supportedVersions": []string{Version}})
	}
	var cfg Config
	if err := json.NewDecoder(stdin).Decode(&cfg); err != nil {
		return fmt.Errorf("%w: configuration: %w", errNetworks, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	switch command {
	case "ADD":
		if err := add(ctx, cfg); err != nil {
			return err
		}
		_, err := stdout.Write(cfg.PrevResult)
		return err
	case "DEL":
		// Also for Pods that never asked, since nobody can be asked about a Pod that is gone: the
		// bridge program finds no interface then, and no address.
		return delegate(ctx, cfg, "lhnet1", nil)
	}
	return nil
}

// add gives the Pod what it asks for, and tells it.
func add(ctx context.Context, cfg Config) error {
	namespace, name := argument("K8S_POD_NAMESPACE"), argument("K8S_POD_NAME")
	rest, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		return fmt.Errorf("%w: %w", errNetworks, err)
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("%w: %w", errNetworks, err)
	}
	pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("%w: %w", errNetworks, err)
	}
	requests, err := Parse(pod.Annotations[annotationNetworks], namespace)
	if err != nil || len(requests) == 0 {
		return err
	}
	var first result
	if err := json.Unmarshal(cfg.PrevResult, &first); err != nil {
		return fmt.Errorf("%w: result of the first network: %w", errNetworks, err)
	}
	list := []status{{Name: "pods", Interface: "eth0", IPs: first.addresses(), Default: true}}
	for _, r := range requests {
		if full := r.Namespace + "/" + r.Name; full != cfg.Network {
			return fmt.Errorf("%w: there is no network %s; there is %s", errNetworks, full, cfg.Network)
		}
		var got result
		if err := delegate(ctx, cfg, r.Interface, &got); err != nil {
			return err
		}
		list = append(list, status{Name: cfg.Network, Interface: r.Interface, IPs: got.addresses()})
	}
	text, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("%w: %w", errNetworks, err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]string{annotationStatus: string(text)}}})
	if err != nil {
		return fmt.Errorf("%w: %w", errNetworks, err)
	}
	if _, err := client.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("%w: %w", errNetworks, err)
	}
	return nil
}

// argument finds a key in what the container runtime says about the Pod.
func argument(key string) string {
	for pair := range strings.SplitSeq(os.Getenv("CNI_ARGS"), ";") {
		if k, v, _ := strings.Cut(pair, "="); k == key {
			return v
		}
	}
	return ""
}

// delegate has the bridge program do what this one was asked for, on an interface of the Pod.
func delegate(ctx context.Context, cfg Config, device string, into *result) error {
	var what struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(cfg.Delegate, &what); err != nil {
		return fmt.Errorf("%w: %w", errNetworks, err)
	}
	dir, _, _ := strings.Cut(os.Getenv("CNI_PATH"), ":")
	cmd := exec.CommandContext(ctx, filepath.Join(dir, what.Type))
	cmd.Env = append(os.Environ(), "CNI_IFNAME="+device)
	cmd.Stdin = bytes.NewReader(cfg.Delegate)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w: interface %s: %w: %s", errNetworks, device, err, bytes.TrimSpace(out))
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("%w: interface %s: %w", errNetworks, device, err)
	}
	return nil
}
