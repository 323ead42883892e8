package engineclient

import (
	"google.golang.org/grpc"

	"ankole.storage/instancemanager/proxy"
)

// Proxy reaches engines through the proxies of their instance managers, which pass the engine's own
// service on.
type Proxy struct {
	calls
	proxies *Proxies
}

var _ EngineClient = (*Proxy)(nil)

// NewProxy returns a client that uses the connections of proxies.
func NewProxy(proxies *Proxies) *Proxy {
	p := &Proxy{proxies: proxies}
	p.calls = calls{p}
	return p
}

func (p *Proxy) to(t Target) (*grpc.ClientConn, []string, error) {
	m, err := p.proxies.find(t.InstanceManager)
	if err != nil {
		return nil, nil, err
	}
	if m.conn == nil {
		return nil, nil, noProxy(m.Name)
	}
	return m.conn, []string{proxy.KeyAddress, t.Address}, nil
}

// Forget implements Client: the connection belongs to the instance manager.
func (p *Proxy) Forget(Target) {}
