package node

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNetworksOf: a Pod is told its address on each network it asks for, its own one first, as
// Multus does it.
func TestNetworksOf(t *testing.T) {
	const own = `{"name":"","interface":"eth0","ips":["127.9.9.1"],"default":true,"dns":{}}`
	networks := []PodNetwork{{"kube-system/a", Place{Address: "127.9.8.1"}}, {"space/b", Place{Address: "127.9.7.1"}}}
	for name, tt := range map[string]struct {
		networks    []PodNetwork
		asked, want string
		refused     string
	}{
		"nothing asked for": {networks: networks},
		"a cluster without": {asked: `[{"namespace":"kube-system","name":"a"}]`},
		"one": {networks: networks, asked: `[{"namespace":"kube-system","name":"a","interface":"lhnet1"}]`,
			want: "[" + own + `,{"name":"kube-system/a","interface":"lhnet1","ips":["127.9.8.1"],"dns":{}}]`},
		"two, with the defaults": {networks: networks, asked: `[{"namespace":"kube-system","name":"a"},{"name":"b"}]`,
			want: "[" + own + `,{"name":"kube-system/a","interface":"net1","ips":["127.9.8.1"],"dns":{}},` +
				`{"name":"space/b","interface":"net2","ips":["127.9.7.1"],"dns":{}}]`},
		"unknown": {networks: networks, asked: `[{"namespace":"kube-system","name":"b"}]`,
			refused: "there is no network kube-system/b; --pod-network gives kube-system/a, space/b"},
		"no list": {networks: networks, asked: `a, b`, refused: "is not a JSON list"},
	} {
		a := testAgent(t)
		a.cfg.Networks = tt.networks
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Annotations: map[string]string{}}}
		if tt.asked != "" {
			pod.Annotations["k8s.v1.cni.cncf.io/networks"] = tt.asked
		}
		got, err := a.networksOf(pod)
		if got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		if (err != nil) != (tt.refused != "") || err != nil &&
			(!errors.Is(err, errNetwork) || !strings.Contains(err.Error(), tt.refused)) {
			t.Errorf("%s: error %v, want one with %q", name, err, tt.refused)
		}
	}
}
